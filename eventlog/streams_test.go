package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	someRun entities.RunID      = "wrun_hc_1" // streams need no run
	strm    entities.StreamName = "strm_1"
)

// testTimeout is how long a test waits before it fails.
const testTimeout = time.Minute

// replica is the streams of one server, with its own hub.
type replica struct {
	*read.Streams
	hub *pg.Hub
}

func newReplica(t *testing.T, pool *pgxpool.Pool) replica {
	t.Helper()
	hub := pg.NewHub(pool, "stepwell_test", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return replica{Streams: read.NewStreams(pool, hub, (&clock{at: day}).now), hub: hub}
}

func (r replica) write(t *testing.T, chunks ...string) {
	t.Helper()
	var data [][]byte
	for _, chunk := range chunks {
		data = append(data, []byte(chunk))
	}
	if err := r.Write(t.Context(), home, someRun, strm, data); err != nil {
		t.Fatal(err)
	}
}

func (r replica) close(t *testing.T) {
	t.Helper()
	if err := r.Close(t.Context(), home, someRun, strm); err != nil {
		t.Fatal(err)
	}
}

// tail runs Streams.Tail in the background.
type tail struct {
	chunks chan string // closed when the tail returns
	err    error       // of the tail
	cancel context.CancelFunc
}

func (r replica) tail(t *testing.T, from int64) *tail {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	l := &tail{chunks: make(chan string, 1000), cancel: cancel}
	go func() {
		defer close(l.chunks)
		l.err = r.Tail(ctx, home, strm, from, func(chunk store.Chunk) error {
			l.chunks <- string(chunk.Data)
			return nil
		})
	}()
	return l
}

// next returns the next chunk; false if the tail has ended.
func (l *tail) next(t *testing.T) (string, bool) {
	t.Helper()
	select {
	case chunk, ok := <-l.chunks:
		return chunk, ok
	case <-time.After(testTimeout):
		t.Fatal("no further chunk came")
		return "", false
	}
}

// want fails the test unless these are the next chunks.
func (l *tail) want(t *testing.T, chunks ...string) {
	t.Helper()
	for _, want := range chunks {
		if got, ok := l.next(t); !ok {
			t.Fatalf("the tail ended with error %v, want chunk %.20q", l.err, want)
		} else if got != want {
			t.Fatalf("got chunk %.20q, want %.20q", got, want)
		}
	}
}

// wantEnd fails the test unless the tail ends with the error and without further chunks.
func (l *tail) wantEnd(t *testing.T, want error) {
	t.Helper()
	if chunk, ok := l.next(t); ok {
		t.Fatalf("another chunk came: %.20q", chunk)
	}
	if !errors.Is(l.err, want) {
		t.Errorf("the tail ended with error %v, want %v", l.err, want)
	}
}

func onePool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return testdb.Pool(t)
}

func TestStreamReturnsChunksInOrder(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	r.write(t, "one")
	r.write(t, "two", "", "three")
	info, err := r.Info(t.Context(), home, strm)
	if err != nil || info.Chunks != 4 || info.ClosedAt != nil || info.RunID != someRun {
		t.Errorf("got %+v and error %v, want an open stream of 4 chunks", info, err)
	}
	chunks, _, err := r.Chunks(t.Context(), home, strm, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var want []store.Chunk
	for i, data := range []string{"one", "two", "", "three"} {
		want = append(want, store.Chunk{Idx: int64(i), Data: []byte(data)})
	}
	if diff := cmp.Diff(want, chunks); diff != "" {
		t.Errorf("chunks differ (-want +got):\n%s", diff)
	}
	r.close(t)
	closed, err := r.Info(t.Context(), home, strm)
	if err != nil || closed.ClosedAt == nil || closed.Chunks != 4 {
		t.Errorf("after the close: got %+v and error %v, want it closed with 4 chunks", closed, err)
	}
}

func TestChunksArePaged(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	r.write(t, "0", "1", "2", "3", "4")
	tests := map[string]struct {
		from  int64
		limit int
		want  string
	}{
		"all":               {0, 10, "01234"},
		"the first":         {0, 2, "01"},
		"a middle page":     {2, 2, "23"},
		"the last page":     {4, 2, "4"},
		"past the end":      {5, 2, ""},
		"far past the end":  {math.MaxInt64, 2, ""},
		"before the start":  {-3, 2, "01"},
		"far before it":     {math.MinInt64, 2, "01"},
		"the largest limit": {1, math.MaxInt32, "1234"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chunks, stream, err := r.Chunks(t.Context(), home, strm, test.from, test.limit)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, chunk := range chunks {
				got.Write(chunk.Data)
			}
			if got.String() != test.want || stream.Chunks != 5 {
				t.Errorf("got %q of %d chunks, want %q of 5", got.String(), stream.Chunks, test.want)
			}
		})
	}
}

func TestLargeChunksEndPageEarly(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	large := strings.Repeat("x", read.MaxPageBytes)
	r.write(t, "small", large, "small", large)
	var sizes []int
	for from := int64(0); from < 4; {
		chunks, _, err := r.Chunks(t.Context(), home, strm, from, 10)
		if err != nil || len(chunks) == 0 {
			t.Fatalf("from %d: got %d chunks and error %v", from, len(chunks), err)
		}
		sizes, from = append(sizes, len(chunks)), chunks[len(chunks)-1].Idx+1
	}
	if diff := cmp.Diff([]int{2, 2}, sizes); diff != "" {
		t.Errorf("page sizes differ (-want +got):\n%s", diff)
	}
	t.Run("but a tail emits all chunks", func(t *testing.T) {
		l := r.tail(t, 0)
		r.close(t)
		l.want(t, "small", large, "small", large)
		l.wantEnd(t, nil)
	})
}

func TestWritesAfterTheCloseAreIgnored(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	r.write(t, "in time")
	r.close(t)
	closed, err := r.Info(t.Context(), home, strm)
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, "too late")
	r.close(t)
	again, err := r.Info(t.Context(), home, strm)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(closed, again); diff != "" {
		t.Errorf("the closed stream changed (-before +after):\n%s", diff)
	}
	l := r.tail(t, 0)
	l.want(t, "in time")
	l.wantEnd(t, nil)
}

func TestStreamMayBeClosedUnwritten(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	r.close(t)
	r.write(t, "too late")
	r.tail(t, 0).wantEnd(t, nil)
	if info, err := r.Info(t.Context(), home, strm); err != nil || info.ClosedAt == nil || info.Chunks != 0 {
		t.Errorf("got %+v and error %v, want a closed stream of no chunks", info, err)
	}
}

func TestUnwrittenStreamIsEmpty(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	info, err := r.Info(t.Context(), home, strm)
	if diff := cmp.Diff(store.Stream{Name: strm}, info); err != nil || diff != "" {
		t.Errorf("error %v, info differs (-want +got):\n%s", err, diff)
	}
	chunks, _, err := r.Chunks(t.Context(), home, strm, 0, 10)
	if err != nil || len(chunks) != 0 {
		t.Errorf("got %d chunks and error %v, want none", len(chunks), err)
	}
	for _, chunks := range [][][]byte{nil, {}} {
		if err := r.Write(t.Context(), home, someRun, strm, chunks); err != nil {
			t.Errorf("writing nothing: %v", err)
		}
	}
	if info, err := r.Info(t.Context(), home, strm); err != nil || info.Chunks != 0 {
		t.Errorf("after writing nothing: got %+v and error %v, want no chunks", info, err)
	}
}

func TestNilChunkIsStoredAsEmpty(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	if err := r.Write(t.Context(), home, someRun, strm, [][]byte{nil, []byte("a")}); err != nil {
		t.Fatal(err)
	}
	r.close(t)
	l := r.tail(t, 0)
	l.want(t, "", "a")
	l.wantEnd(t, nil)
}

func TestInvalidStreamNamesAreRejected(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	for _, test := range []struct {
		run  entities.RunID
		name entities.StreamName
	}{
		{"", strm}, {"a/b", strm}, {someRun, ""}, {someRun, "a\x00"},
		{someRun, entities.StreamName(strings.Repeat("s", 1025))},
	} {
		if err := r.Write(t.Context(), home, test.run, test.name, [][]byte{{1}}); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("write %q %q: got error %v, want ErrInvalid", test.run, test.name, err)
		}
		if err := r.Close(t.Context(), home, test.run, test.name); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("close %q %q: got error %v, want ErrInvalid", test.run, test.name, err)
		}
	}
}

func TestStreamsOfARunAreListedByName(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	for _, name := range []entities.StreamName{"strm_b", "strm_a", "strm_C"} {
		if err := r.Write(t.Context(), home, "wrun_1", name, [][]byte{{1}}); err != nil {
			t.Fatal(err)
		}
	}
	r.write(t, "of another run")
	got, err := r.List(t.Context(), home, "wrun_1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]entities.StreamName{"strm_C", "strm_a", "strm_b"}, got); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
}

func TestConcurrentStreamWritersKeepIndexesDense(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	const each = 5
	for i, err := range race(func(i int) error {
		for j := range each {
			// Two chunks, which must be consecutive.
			data := []byte(fmt.Sprint(i, " ", j))
			if err := r.Write(t.Context(), home, someRun, strm, [][]byte{data, data}); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	chunks, stream, err := r.Chunks(t.Context(), home, strm, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(chunks), racers*each*2; got != want || stream.Chunks != int64(want) {
		t.Fatalf("got %d chunks of %d, want %d", got, stream.Chunks, want)
	}
	next := map[string]string{} // the next write of each writer
	for i, chunk := range chunks {
		if chunk.Idx != int64(i) {
			t.Fatalf("chunk %d has index %d", i, chunk.Idx)
		}
		if i%2 == 1 && !bytes.Equal(chunk.Data, chunks[i-1].Data) {
			t.Errorf("chunks %q and %q of one write are not consecutive", chunks[i-1].Data, chunk.Data)
		}
		if i%2 == 0 {
			writer, turn, _ := strings.Cut(string(chunk.Data), " ")
			if want := next[writer]; want != "" && want != turn {
				t.Errorf("writer %s: got write %s, want %s", writer, turn, want)
			}
			next[writer] = string(rune(turn[0] + 1))
		}
	}
}

func TestTailFollowsStreamAcrossReplicas(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	here, there := newReplica(t, testdb.Connect(t, dsn)), newReplica(t, testdb.Connect(t, dsn))
	early := here.tail(t, 0) // before the first write
	there.write(t, "one", "two")
	early.want(t, "one", "two")
	late := there.tail(t, 0)
	late.want(t, "one", "two")
	here.write(t, "three")
	early.want(t, "three")
	late.want(t, "three")
	there.close(t)
	early.wantEnd(t, nil)
	late.wantEnd(t, nil)
}

func TestTailStartsAtIndex(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	r.write(t, "0", "1", "2")
	tails := map[int64][]string{
		0: {"0", "1", "2", "3"}, 2: {"2", "3"}, 3: {"3"}, 4: nil, 100: nil,
		-1: {"2", "3"}, -3: {"0", "1", "2", "3"}, -100: {"0", "1", "2", "3"}, math.MinInt64: {"0", "1", "2", "3"},
	}
	var readers []*tail
	var wants [][]string
	for from, want := range tails {
		l := r.tail(t, from)
		if from < 3 { // it has chunks to read, so it has started before the next write
			l.want(t, want[:len(want)-1]...)
			want = want[len(want)-1:]
		}
		readers, wants = append(readers, l), append(wants, want)
	}
	r.write(t, "3")
	r.close(t)
	for i, l := range readers {
		l.want(t, wants[i]...)
		l.wantEnd(t, nil)
	}
}

func TestTailReadsLongStreams(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	var want []string
	for i := range 2*256 + 1 {
		want = append(want, fmt.Sprint(i))
	}
	r.write(t, want...)
	r.close(t)
	var got []string
	err := r.Tail(t.Context(), home, strm, 0, func(chunk store.Chunk) error {
		if chunk.Idx != int64(len(got)) {
			t.Errorf("got chunk %d, want %d", chunk.Idx, len(got))
		}
		got = append(got, string(chunk.Data))
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %d chunks and error %v, want %d in order", len(got), err, len(want))
	}
}

func TestCancelledTailUnsubscribes(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	r.write(t, "one")
	l := r.tail(t, 0)
	l.want(t, "one")
	if got := r.hub.Subscribers(read.StreamTopic(home, strm)); got != 1 {
		t.Fatalf("the stream has %d subscribers, want 1", got)
	}
	l.cancel()
	l.wantEnd(t, context.Canceled)
	if got := r.hub.Subscribers(read.StreamTopic(home, strm)); got != 0 {
		t.Errorf("the stream still has %d subscribers", got)
	}
}

func TestTailReturnsErrorOfEmit(t *testing.T) {
	t.Parallel()
	r := newReplica(t, onePool(t))
	r.write(t, "one", "two")
	emitted := 0
	err := r.Tail(t.Context(), home, strm, 0, func(store.Chunk) error {
		emitted++
		return errBroken
	})
	if !errors.Is(err, errBroken) || emitted != 1 {
		t.Errorf("got error %v after %d chunks, want the emitter's after 1", err, emitted)
	}
	if got := r.hub.Subscribers(read.StreamTopic(home, strm)); got != 0 {
		t.Errorf("the stream still has %d subscribers", got)
	}
}

func TestStreamWritesAndClosesNotify(t *testing.T) {
	t.Parallel()
	hub := pg.NewHub(nil, "stepwell_test", nil) // does not run: only notifications of this process
	r := replica{Streams: read.NewStreams(onePool(t), hub, (&clock{at: day}).now), hub: hub}
	hints, cancel := hub.Subscribe(read.StreamTopic(home, strm))
	defer cancel()
	others, cancelOthers := hub.Subscribe(read.StreamTopic(stranger, strm))
	defer cancelOthers()
	r.write(t, "one")
	if len(hints) != 1 {
		t.Fatal("a write was not notified")
	}
	<-hints
	r.close(t)
	if len(hints) != 1 {
		t.Error("a close was not notified")
	}
	if len(others) != 0 {
		t.Error("another project was notified")
	}
}

func TestTailPollsWithoutNotifications(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	deaf := replica{hub: pg.NewHub(nil, "stepwell_test", nil)} // never runs
	deaf.Streams = read.NewStreams(testdb.Connect(t, dsn), deaf.hub, (&clock{at: day}).now)
	l := deaf.tail(t, 0)
	newReplica(t, testdb.Connect(t, dsn)).write(t, "one")
	l.want(t, "one")
}
