package archive

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/archive/s3test"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

const location = "s3://" + s3test.Bucket + "/some/prefix"

// access returns the settings for the server.
func access(s *s3test.Server) S3 {
	return S3{Endpoint: s.Endpoint, AccessKeyID: s3test.AccessKeyID, SecretAccessKey: s3test.SecretAccessKey}
}

func (f *fixture) bucket(t *testing.T, s3 S3) *Bucket {
	t.Helper()
	b, err := NewBucket(location, s3, f.maintainer)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (f *fixture) key() string { return "some/prefix/home/" + string(f.run) + runfile.Suffix }

// enlarge adds incompressible data to the run.
func (f *fixture) enlarge(t *testing.T, megabytes int) {
	t.Helper()
	for range megabytes {
		chunk := make([]byte, 1<<20)
		_, _ = rand.Read(chunk)
		if err := f.streams().Write(t.Context(), project, f.run, "large", [][]byte{chunk}); err != nil {
			t.Fatal(err)
		}
	}
}

// retention returns a retention that archives the run.
func (f *fixture) retention(t *testing.T, s storing, drop func(context.Context, pgx.Tx) error) *upkeep.Retention {
	t.Helper()
	return upkeep.NewRetention(f.pool, upkeep.RetentionOptions{
		Keep: time.Nanosecond, Archive: s.Store,
		DeleteRelated: func(ctx context.Context, tx pgx.Tx, _ entities.Project, _ []entities.RunID) error {
			return drop(ctx, tx)
		},
	})
}

func dropNothing(context.Context, pgx.Tx) error { return nil }

// wantObjects fails the test unless the bucket has exactly these objects and no parts of uploads.
func wantObjects(t *testing.T, s *s3test.Server, want map[string][]byte) {
	t.Helper()
	got := s.Objects(t)
	if !maps.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("got objects %q, want %q, or their contents differ",
			slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	if n := s.Uploads(t); n != 0 {
		t.Errorf("there are %d parts of uploads left", n)
	}
}

// load imports the run from the bucket.
func (b *Bucket) load(ctx context.Context, s3 S3, f *fixture) error {
	file, err := s3.Open(ctx, b.Path(project, f.run))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	r, err := runfile.NewReader(file)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = f.maintainer.Import(ctx, r.Next)
	return err
}

// TestBucketPassIsRepeatableAfterACrash: the run was stored, but its deletion was lost. The next pass stores the same
// file again and deletes the run; an import from the bucket restores it exactly.
func TestBucketPassIsRepeatableAfterACrash(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	for name, megabytes := range map[string]int{"in one request": 0, "in parts": 9} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.enlarge(t, megabytes)
			b := f.bucket(t, access(s))
			if err := b.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			before, want := f.contents(t), s.Objects(t)
			want[f.key()] = f.file(t)
			crash := func(ctx context.Context, tx pgx.Tx) error { return errors.Join(errBroken, tx.Conn().Close(ctx)) }
			if _, err := f.retention(t, b, crash).Pass(t.Context()); !errors.Is(err, errBroken) {
				t.Fatalf("got %v", err)
			}
			wantObjects(t, s, want)
			f.wantContents(t, before)
			done, err := f.retention(t, b, dropNothing).Pass(t.Context())
			if err != nil || done.Runs != 1 {
				t.Fatalf("got %+v, error %v", done, err)
			}
			wantObjects(t, s, want)
			if left := f.contents(t); left["events"]+left["streams"] != "" {
				t.Errorf("rows are left: %.500s", left)
			}
			if err := b.load(t.Context(), access(s), f); err != nil {
				t.Fatal(err)
			}
			f.wantContents(t, before)
		})
	}
}

// TestInterruptedUploadLeavesThePreviousFile, and succeeds when it is repeated.
func TestInterruptedUploadLeavesThePreviousFile(t *testing.T) {
	t.Parallel()
	data := make([]byte, 2*partSize+partSize/2)
	_, _ = rand.Read(data)
	for name, tt := range map[string]struct {
		size int
		cut  int64
	}{
		"at once": {1, 1}, "in the only request": {partSize, partSize / 2}, "in the first part": {len(data), partSize / 2},
		"in the second part": {len(data), 2*partSize - 1}, "in the last part": {len(data), int64(len(data)) - 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f := s3test.New(t), &fixture{}
			b := f.bucket(t, access(s))
			put := func(data []byte) error {
				return b.write(t.Context(), object{s3test.Bucket, "file"}, func(w io.Writer) error { return writeAll(w, data) })
			}
			want := map[string][]byte{}
			for round := range 2 {
				s.Cut(tt.cut)
				if err := put(data[:tt.size]); !errors.Is(err, ErrUnreachable) {
					t.Errorf("got %v, want %v", err, ErrUnreachable)
				}
				s.Mend()
				if got := s.Objects(t); !maps.EqualFunc(got, want, bytes.Equal) {
					t.Errorf("round %d: after the cut the bucket has %q", round, slices.Collect(maps.Keys(got)))
				}
				data := data[:tt.size-round]
				if err := put(data); err != nil {
					t.Error(err)
				}
				want["file"] = data
				if got := s.Objects(t); !maps.EqualFunc(got, want, bytes.Equal) {
					t.Errorf("round %d: after the repetition the file is missing or differs", round)
				}
			}
		})
	}
}

func TestRunStaysWhenTheUploadIsInterrupted(t *testing.T) {
	t.Parallel()
	s, f := s3test.New(t), newFixture(t)
	f.enlarge(t, 1)
	before := f.contents(t)
	s.Cut(1 << 19)
	r := f.retention(t, f.bucket(t, access(s)), func(context.Context, pgx.Tx) error { return errBroken }) // if it gets that far
	if _, err := r.Pass(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want %v", err, ErrUnreachable)
	}
	f.wantContents(t, before)
	wantObjects(t, s, map[string][]byte{})
}

// TestLateUploadDoesNotReplaceANewerFile: the run may be deleted by now, and the late export incomplete.
func TestLateUploadDoesNotReplaceANewerFile(t *testing.T) {
	t.Parallel()
	s, f := s3test.New(t), &fixture{}
	b, o := f.bucket(t, access(s)), object{s3test.Bucket, "file"}
	old, large := []byte("old"), bytes.Repeat([]byte("old"), partSize/2)
	first := true
	for _, late := range [][]byte{old, large} {
		for i, newer := range []string{"newer", "newest"} {
			err := b.write(t.Context(), o, func(w io.Writer) error {
				if first { // no file exists before it
					wantObjects(t, s, map[string][]byte{})
					first = false
				}
				text := fmt.Sprint(newer, len(late))
				if err := b.write(t.Context(), o, func(w io.Writer) error { return writeAll(w, []byte(text)) }); err != nil {
					t.Error(err)
				}
				return writeAll(w, late)
			})
			if err == nil || !strings.Contains(err.Error(), "another worker wrote the file meanwhile") {
				t.Errorf("%d bytes, file %d: got %v", len(late), i, err)
			}
			wantObjects(t, s, map[string][]byte{"file": fmt.Append(nil, newer, len(late))})
		}
	}
}

func writeAll(w io.Writer, p []byte) error {
	_, err := w.Write(p)
	return err
}

// TestStoreOnServersWithoutConditionalWrites falls back to unconditional writes.
func TestStoreOnServersWithoutConditionalWrites(t *testing.T) {
	t.Parallel()
	s, f := s3test.New(t), &fixture{}
	refused := 0
	b := f.bucket(t, tampering(t, s, func(r *http.Request) {
		if r.Header.Get("If-Match")+r.Header.Get("If-None-Match") != "" {
			r.Method = "PATCH" // an unsupported method
			refused++
		}
	}, func(r *http.Response) error {
		if r.Request.Method == "PATCH" {
			r.StatusCode = http.StatusNotImplemented
		}
		return nil
	}))
	for _, size := range []int{1, partSize + 1} {
		for range 2 {
			err := b.write(t.Context(), object{s3test.Bucket, "file"}, func(w io.Writer) error { return writeAll(w, make([]byte, size)) })
			if err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
			wantObjects(t, s, map[string][]byte{"file": make([]byte, size)})
		}
	}
	if refused != 4 {
		t.Errorf("refused %d conditions, want 4", refused)
	}
}

// TestFailedExportLeavesNothing in the bucket, not even parts.
func TestFailedExportLeavesNothing(t *testing.T) {
	t.Parallel()
	s, f := s3test.New(t), newFixture(t)
	f.enlarge(t, 10)
	f.exec(t, `DELETE FROM stream_chunks WHERE idx = 9`)
	if _, err := f.bucket(t, access(s)).Store(t.Context(), project, f.run); err == nil {
		t.Error("it was stored")
	}
	wantObjects(t, s, map[string][]byte{})
	ctx, cancel := context.WithCancelCause(t.Context())
	err := f.bucket(t, access(s)).write(ctx, object{s3test.Bucket, "file"}, func(w io.Writer) error {
		_, err := w.Write(make([]byte, partSize+1))
		cancel(errBroken)
		return err
	})
	if !errors.Is(err, errBroken) {
		t.Errorf("a server that stops: got %v", err)
	}
	wantObjects(t, s, map[string][]byte{})
}

// TestUploadsOfAnySizeAreStored includes sizes at the boundary of a part.
func TestUploadsOfAnySizeAreStored(t *testing.T) {
	t.Parallel()
	s, f := s3test.New(t), &fixture{}
	b := f.bucket(t, access(s))
	data := make([]byte, 2*partSize+1)
	_, _ = rand.Read(data)
	want := map[string][]byte{}
	for _, size := range []int{0, 1, partSize - 1, partSize, partSize + 1, 2 * partSize, 2*partSize + 1} {
		key := fmt.Sprint(size)
		want[key] = data[:size]
		err := b.write(t.Context(), object{s3test.Bucket, key}, func(w io.Writer) error {
			for piece := range slices.Chunk(data[:size], 1_000_003) {
				if n, err := w.Write(piece); n != len(piece) || err != nil {
					return fmt.Errorf("wrote %d of %d: %w", n, len(piece), err)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	wantObjects(t, s, want)
}

// TestLargeRunIsArchivedInBoundedMemory exports 50 MiB.
func TestLargeRunIsArchivedInBoundedMemory(t *testing.T) { //nolint:paralleltest // it measures the memory of all
	s, f := s3test.New(t), newFixture(t)
	f.enlarge(t, 50)
	f.wantBounded(t, f.bucket(t, access(s)))
	if n := len(s.Objects(t)[f.key()]); n < 50<<20 {
		t.Errorf("the file has %d bytes only", n)
	}
	f.wantBounded(t, f.database())
	testdb.In(f.pool).Want(t, "files of 50 parts", 1, `SELECT count(*) FROM archive_files WHERE last AND part >= 50`)
}

// wantBounded fails the test if storing the run takes much memory.
func (f *fixture) wantBounded(t *testing.T, place storing) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // so that the measurement contains little garbage
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	base, peak := m.HeapAlloc, uint64(0)
	ctx, done := context.WithCancel(t.Context())
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		for ticker := time.NewTicker(2 * time.Millisecond); ctx.Err() == nil; <-ticker.C {
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
	}()
	_, err := place.Store(t.Context(), project, f.run)
	done()
	<-sampled
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the heap went from %d to %d MiB", base>>20, peak>>20)
	if peak > base+64<<20 {
		t.Errorf("the heap grew by %d MiB", (peak-base)>>20)
	}
}

// TestRunsWaitForTheBucket: runs are not deleted while the server is down.
func TestRunsWaitForTheBucket(t *testing.T) {
	t.Parallel()
	s, f := s3test.New(t), newFixture(t)
	b, before := f.bucket(t, access(s)), f.contents(t)
	r := f.retention(t, b, dropNothing)
	s.Stop()
	if err := b.Check(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("check: got %v", err)
	}
	for range 2 {
		if done, err := r.Pass(t.Context()); done.Runs != 0 || !errors.Is(err, ErrUnreachable) {
			t.Errorf("got %+v, error %v", done, err)
		}
	}
	f.wantContents(t, before)
	s.Start(t)
	if done, err := r.Pass(t.Context()); err != nil || done.Runs != 1 {
		t.Errorf("got %+v, error %v", done, err)
	}
	if err := b.load(t.Context(), access(s), f); err != nil {
		t.Error(err)
	}
	f.wantContents(t, before)
}

// tampering is a proxy before s that changes requests and responses.
func tampering(t *testing.T, s *s3test.Server, request func(*http.Request), answer func(*http.Response) error) S3 {
	t.Helper()
	target, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // which is signed
			if request != nil {
				request(r.Out)
			}
		},
		ModifyResponse: answer,
	})
	t.Cleanup(web.Close)
	s3 := access(s)
	s3.Endpoint = web.URL
	return s3
}

// TestRunStaysUnlessTheBucketHasIt: a run is deleted only if the bucket confirms the file as it was sent.
func TestRunStaysUnlessTheBucketHasIt(t *testing.T) {
	t.Parallel()
	s, f := s3test.New(t), newFixture(t)
	before := f.contents(t)
	confirming := func(change func(*http.Response)) func(*http.Response) error {
		written := false
		return func(r *http.Response) error {
			if written && r.Request.Method == http.MethodHead {
				change(r)
			}
			written = written || r.Request.Method == http.MethodPut
			return nil
		}
	}
	header := func(name, value string) func(*http.Response) error {
		return confirming(func(r *http.Response) { r.Header.Set(name, value) })
	}
	for name, tt := range map[string]struct {
		request func(*http.Request)
		answer  func(*http.Response) error
		want    string
	}{
		"rotten": {func(r *http.Request) {
			if r.Method == http.MethodPut {
				data, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				data[len(data)/2] ^= 1
				r.Body = io.NopCloser(bytes.NewReader(data))
			}
		}, nil, "write " + location + "/home/" + string(f.run) + runfile.Suffix + ": 400 "},
		"another size": {nil, header("Content-Length", "7"), "but there are 7 as"},
		"another file": {nil, header("ETag", `"7"`), `as "7"`},
		"lost":         {nil, confirming(func(r *http.Response) { r.StatusCode = http.StatusNotFound }), "the file is not in the bucket"},
	} {
		b := f.bucket(t, tampering(t, s, tt.request, tt.answer))
		r := f.retention(t, b, func(context.Context, pgx.Tx) error { return errBroken })
		if _, err := r.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error that says %s", name, err, tt.want)
		}
	}
	f.wantContents(t, before)
}
