package codec

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzUnmarshal ensures that nothing panics, that every error is ErrMalformed, and that accepted data can be sent
// and accepted again.
func FuzzUnmarshal(f *testing.F) {
	vs := loadVectors(f)
	for name := range vs.Values {
		f.Add(vs.value(f, name))
	}
	for text := range vs.Reads {
		f.Add(unhex(f, text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var raw Raw
		for _, v := range []any{&raw, new(any), new(Map), new(eventMeta), new(record), new(Int), new(Time), new(Bytes)} {
			if err := Unmarshal(data, v); err != nil && !errors.Is(err, ErrMalformed) {
				t.Fatalf("into %T: %v", v, err)
			}
		}
		if raw == nil {
			return
		}
		again, err := Marshal(raw)
		if err != nil || !bytes.Equal(again, raw) {
			t.Fatalf("%x came back as %x, error %v", raw, again, err)
		}
		var m Map
		if Unmarshal(data, &m) != nil {
			return
		}
		again, err = Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := Unmarshal(again, new(Map)); err != nil {
			t.Fatalf("%x: %v", again, err)
		}
	})
}

// FuzzReadFrame ensures that nothing panics, and that writing an accepted frame yields the
// same bytes.
func FuzzReadFrame(f *testing.F) {
	vs := loadVectors(f)
	for name := range vs.Binaries {
		data := vs.binary(f, name)
		f.Add(data)
		f.Add(data[:len(data)-1])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, err := range Frames(bytes.NewReader(data)) {
			checkKind(t, err)
		}
		frame, err := ReadFrame(bytes.NewReader(data))
		checkKind(t, err)
		if err != nil {
			return
		}
		var again bytes.Buffer
		w := NewFrameWriter(&again)
		if err := errors.Join(w.WriteFrame(frame.Meta, frame.Body), w.Flush()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), data) {
			t.Fatalf("%x came back as %x", data, again.Bytes())
		}
	})
}

func checkKind(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
}
