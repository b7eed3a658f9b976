package eventlog

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestLargePayloadsTakeMemory checks that each read takes memory for the payloads that it returns before it loads them,
// unless they are small, and that counting changes no result.
func TestLargePayloadsTakeMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const kB = 1 << 10
	id := f.run(t, started, hook("hook_created")) // three events
	for _, size := range []int{30 * kB, 30 * kB, 500 * kB, 2000 * kB} {
		r := on(id, "hook_received", "hook_1")
		r.Payload = bytes.Repeat([]byte("x"), size)
		f.must(t, r)
	}
	first := pg.Page{Limit: 5}
	all := pg.Page{Limit: 100}
	events := func(p pg.Page, with read.Payloads) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) { return f.Events(ctx, home, id, p, with) }
	}
	event := func(seq int64) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) { return f.Event(ctx, home, id, seq) }
	}
	for name, test := range map[string]struct {
		read     func(context.Context) (any, error)
		min, max int64 // of the memory; events have a little data besides their payloads
	}{
		"a small payload":  {event(4), 0, 0},
		"a large payload":  {event(6), 500 * kB, 500 * kB},
		"small events":     {events(first, read.WithPayloads), 0, 0},
		"all events":       {events(all, read.WithPayloads), 2560 * kB, 2561 * kB},
		"without payloads": {events(all, read.WithoutPayloads), 0, 0},
		"events of a hook": {func(ctx context.Context) (any, error) {
			return f.EventsByCorrelation(ctx, home, id, "hook_1", all, read.WithPayloads)
		}, 2560 * kB, 2561 * kB},
		"events by position": {func(ctx context.Context) (any, error) {
			at := []read.Position{{RunID: id, Seq: 4}, {RunID: id, Seq: 6}, {RunID: id, Seq: 7}}
			return f.EventsAt(ctx, at, read.WithPayloads)
		}, 2530 * kB, 2530 * kB},
		"the list of a run": {func(ctx context.Context) (any, error) { // has no payload above 1 MiB
			return f.RunEvents(ctx, home, id, read.EventQuery{}, all, read.WithPayloads)
		}, 560 * kB, 561 * kB},
		"the list of a project": {func(ctx context.Context) (any, error) {
			page, err := f.ProjectEvents(ctx, home, read.EventQuery{RunID: id}, all, read.WithPayloads)
			return page.Entries, err
		}, 560 * kB, 561 * kB},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := test.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			taken := int64(0)
			got, err := test.read(read.WithMemory(t.Context(), func(_ context.Context, n int64) error {
				taken += n
				return nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(read.Entry{}), cmp.Comparer(bytes.Equal)); diff != "" {
				t.Errorf("counting changed the result (-want +got):\n%s", diff)
			}
			if taken < test.min || taken > test.max {
				t.Errorf("%d bytes were taken, want %d to %d", taken, test.min, test.max)
			}
			errNone := errors.New("no memory")
			_, err = test.read(read.WithMemory(t.Context(), func(context.Context, int64) error { return errNone }))
			if refused := test.max > 0; errors.Is(err, errNone) != refused {
				t.Errorf("without memory: got %v, want an error: %t", err, refused)
			}
		})
	}
}

// TestMemoryIsReused checks that a request that has sent what it read holds no more memory for what it reads next.
func TestMemoryIsReused(t *testing.T) {
	t.Parallel()
	var taken []int64
	ctx := read.WithMemory(t.Context(), func(_ context.Context, n int64) error {
		taken = append(taken, n)
		return nil
	})
	for _, n := range []int64{100, 50, 120} {
		read.ReuseMemory(ctx)
		if err := read.TakeMemory(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := read.TakeMemory(ctx, 10); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{100, 20, 10}, taken); diff != "" {
		t.Errorf("taken differs (-want +got):\n%s", diff)
	}
}
