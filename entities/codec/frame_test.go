package codec

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestReadFrame(t *testing.T) {
	t.Parallel()
	vs := loadVectors(t)
	for name, c := range map[string]struct{ body, eventType string }{
		"request": {"devl[1]", "run_created"},
		"noBody":  {"", "run_started"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := vs.binary(t, name)
			for _, r := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data))} {
				f, err := ReadFrame(r)
				if err != nil {
					t.Fatal(err)
				}
				var meta eventMeta
				if err := Unmarshal(f.Meta, &meta); err != nil {
					t.Fatal(err)
				}
				if string(f.Body) != c.body || meta.EventType != c.eventType {
					t.Errorf("got body %q of %s, want %q of %s", f.Body, meta.EventType, c.body, c.eventType)
				}
			}
		})
	}
}

func TestReadFrameRejects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		kind error
		want string
	}{
		"Empty":       {"", ErrMalformed, "no frame"},
		"CutLength":   {"\x00\x00", ErrMalformed, "frame meta length cut short: 2 of 4 bytes"},
		"CutMeta":     {"\x00\x00\x00\x02\xa0", ErrMalformed, "frame meta cut short: 1 of 2 bytes"},
		"NoMeta":      {"\x00\x00\x00\x02", ErrMalformed, "frame meta cut short: 0 of 2 bytes"},
		"NoBody":      {"\x00\x00\x00\x01\xa0", ErrMalformed, "frame body length cut short: 0 of 4 bytes"},
		"CutBodySize": {"\x00\x00\x00\x01\xa0\x00", ErrMalformed, "frame body length cut short: 1 of 4 bytes"},
		"CutBody":     {"\x00\x00\x00\x01\xa0\x00\x00\x00\x03ab", ErrMalformed, "frame body cut short: 2 of 3 bytes"},
		"Trailing":    {"\x00\x00\x00\x01\xa0\x00\x00\x00\x01ab", ErrMalformed, "bytes after the end of the frame"},
		"BigMeta":     {"\x00\x10\x00\x01", ErrTooLarge, "frame meta of 1048577 bytes, limit 1048576"},
		"BigBody":     {"\x00\x00\x00\x01\xa0\xff\xff\xff\xff", ErrTooLarge, "frame body of 4294967295 bytes, limit 134217728"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := ReadFrame(strings.NewReader(c.in))
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, error %v, want %v: %s", f, err, c.kind, c.want)
			}
		})
	}
}

func TestReadFrameAcceptsItsLimits(t *testing.T) {
	t.Parallel()
	in := "\x00\x10\x00\x00" + strings.Repeat("\xa0", maxMeta) + "\x08\x00\x00\x00abc"
	want := "frame body cut short: 3 of 134217728 bytes"
	if _, err := ReadFrame(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestLargeFrames reads frames that are larger than the buffers of reader and writer, between small ones.
func TestLargeFrames(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	w := NewFrameWriter(&buf)
	var bodies [][]byte
	for _, size := range []int{3, bufferedFrames - 1, bufferedFrames, 1_000_000, 0, 5} {
		bodies = append(bodies, bytes.Repeat([]byte("x"), size))
		if err := w.WriteFrame([]byte{0xa0}, bodies[len(bodies)-1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for f, err := range Frames(&buf) {
		if err != nil || !bytes.Equal(f.Body, bodies[n]) {
			t.Errorf("frame %d: got %d bytes, error %v; want %d", n, len(f.Body), err, len(bodies[n]))
		}
		n++
	}
	if n != len(bodies) {
		t.Errorf("got %d frames, want %d", n, len(bodies))
	}
}

// countedWrites counts the writes to it.
type countedWrites struct{ writes, bytes int }

func (c *countedWrites) Write(p []byte) (int, error) {
	c.writes++
	c.bytes += len(p)
	return len(p), nil
}

func TestSmallFramesShareWrites(t *testing.T) {
	t.Parallel()
	var out countedWrites
	w := NewFrameWriter(&out)
	const frames, size = 1000, 100 + 9 // with the lengths and the metadata
	for range frames {
		if err := w.WriteFrame([]byte{0xa0}, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if most := frames*size/bufferedFrames + 1; out.writes > most || out.bytes != frames*size {
		t.Errorf("%d bytes in %d writes, want %d in at most %d", out.bytes, out.writes, frames*size, most)
	}
}

// TestReadFrameAllocatesAsItReads ensures that a large announced length allocates nothing. Not parallel: it counts
// allocated bytes.
//
//nolint:paralleltest // it counts what the process allocates
func TestReadFrameAllocatesAsItReads(t *testing.T) {
	in := "\x00\x00\x00\x01\xa0\x08\x00\x00\x00abc"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := ReadFrame(strings.NewReader(in))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v, want %v", err, ErrMalformed)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("allocated %d bytes for 12", got)
	}
}

// TestReadErrorsPassThrough ensures that a broken connection is not reported as malformed data.
func TestReadErrorsPassThrough(t *testing.T) {
	t.Parallel()
	whole := "\x00\x00\x00\x01\xa0\x00\x00\x00\x01a"
	for n := range len(whole) + 1 {
		_, err := ReadFrame(io.MultiReader(strings.NewReader(whole[:n]), brokenPipe{}))
		if !errors.Is(err, errPipe) || errors.Is(err, ErrMalformed) {
			t.Errorf("after %d bytes: got %v, want %v", n, err, errPipe)
		}
	}
	if _, err := ReadChunks(brokenPipe{}); !errors.Is(err, errPipe) {
		t.Errorf("chunks: got %v, want %v", err, errPipe)
	}
}

// TestFrames reads lists that cbor-x encoded, with their sentinels.
func TestFrames(t *testing.T) {
	t.Parallel()
	vs := loadVectors(t)
	for name, want := range map[string]struct {
		bodies []string
		end    endMeta
	}{
		"list":      {[]string{"one", "", ""}, endMeta{End: 1, Next: "evnt_2", HasMore: true}},
		"emptyList": {[]string{""}, endMeta{End: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bodies []string
			var end endMeta
			for f, err := range Frames(bytes.NewReader(vs.binary(t, name))) {
				if err == nil {
					err = Unmarshal(f.Meta, &end)
				}
				if err != nil {
					t.Fatal(err)
				}
				bodies = append(bodies, string(f.Body))
			}
			if diff := cmp.Diff(want.bodies, bodies); diff != "" || end != want.end {
				t.Errorf("end %v, want %v; bodies (-want +got)\n%s", end, want.end, diff)
			}
		})
	}
}

func TestFramesEndsAtTheFirstError(t *testing.T) {
	t.Parallel()
	list := loadVectors(t).binary(t, "list")
	var last error
	for _, err := range Frames(bytes.NewReader(list[:len(list)-1])) {
		if last != nil {
			t.Fatalf("continued after %v", last)
		}
		last = err
	}
	if !errors.Is(last, ErrMalformed) {
		t.Errorf("got %v, want %v", last, ErrMalformed)
	}
}

// TestFrameWriter compares a written list with the vector "list", except for map lengths, which cbor-x writes in 16
// bits.
func TestFrameWriter(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	w := NewFrameWriter(&buf)
	meta, err := Marshal(map[string]string{"eventId": "evnt_1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return w.WriteFrame(meta, []byte("one")) },
		func() error { return w.WriteFrame(meta, nil) },
		func() error { return w.WriteEnd("", false, nil) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	want := "00000010" + "a1676576656e7449646665766e745f31" + "00000003" + "6f6e65" +
		"00000010" + "a1676576656e7449646665766e745f31" + "00000000" +
		"00000010" + "a2645f656e6401676861734d6f7265f4" + "00000000"
	if got := buf.Bytes(); !bytes.Equal(got, unhex(t, want)) {
		t.Errorf("got %x, want %s", got, want)
	}
	if err := w.WriteFrame(meta, nil); !errors.Is(err, errEnded) {
		t.Errorf("after the sentinel: got %v, want %v", err, errEnded)
	}
}

func TestFrameWriterFails(t *testing.T) {
	t.Parallel()
	w := NewFrameWriter(brokenPipe{})
	if err := w.WriteFrame([]byte{0xa0}, make([]byte, bufferedFrames)); !errors.Is(err, errPipe) {
		t.Errorf("frame: got %v, want %v", err, errPipe)
	}
	if err := w.WriteEnd("c", true, nil); !errors.Is(err, errPipe) {
		t.Errorf("sentinel: got %v, want %v", err, errPipe)
	}
}

func TestFramesStopsWithTheLoop(t *testing.T) {
	t.Parallel()
	r := bytes.NewReader(loadVectors(t).binary(t, "list"))
	for _, err := range Frames(r) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if r.Len() == 0 {
		t.Error("read on after the loop ended")
	}
}
