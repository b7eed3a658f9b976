package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// pager reads one page of a list. It returns the IDs on the page and the cursor of the next one.
type pager func(pg.Page) (ids []string, next string, err error)

// readAll reads a list page by page. Every page but the last must be full.
func readAll(t *testing.T, read pager, page pg.Page) []string {
	t.Helper()
	var all []string
	for {
		ids, next, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ids...)
		if next == "" {
			return all
		}
		if len(ids) != page.Limit {
			t.Fatalf("a page of %d has %d items and a next page", page.Limit, len(ids))
		}
		page.Cursor = next
	}
}

func eventPager(t *testing.T, list func(pg.Page) (read.EventPage, error)) pager {
	t.Helper()
	return func(p pg.Page) (ids []string, next string, err error) {
		page, err := list(p)
		for _, e := range page.Events {
			ids = append(ids, string(e.ID()))
		}
		if page.More {
			next = read.EventCursor(page.Events[len(page.Events)-1])
		}
		return ids, next, err
	}
}

// allLists returns all lists of a database with two runs, and the IDs on each, oldest first.
func allLists(t *testing.T) map[string]struct {
	read pager
	want []string
} {
	t.Helper()
	f := newFixture(t)
	ctx := t.Context()
	var runs, steps, hooks, waits, events, about []string
	id := f.run(t, started)
	f.run(t, step("step_created"), hook("hook_created")) // noise
	// Two of each have the same time, so that the ID decides.
	for i := range 7 {
		f.clock.move(time.Duration(i%2) * time.Millisecond)
		runs = append(runs, string(f.run(t)))
		// IDs are in reverse order of creation: steps are listed by position, not by ID.
		stepID, hookID, waitID := fmt.Sprintf("step_%d", 9-i), fmt.Sprintf("hook_%d", i), fmt.Sprintf("wait_%d", i)
		f.must(t, on(id, "step_created", stepID))
		f.must(t, on(id, "hook_created", hookID))
		f.must(t, on(id, "wait_created", waitID))
		steps, hooks, waits = append(steps, stepID), append(hooks, hookID), append(waits, waitID)
		f.must(t, on(id, "hook_received", "hook_0"))
	}
	for _, e := range f.events(t, id) {
		events = append(events, string(e.ID()))
		if e.CorrelationID == "hook_0" {
			about = append(about, string(e.ID()))
		}
	}
	// Runs created at the same time are ordered by their IDs, which are random here.
	slices.SortStableFunc(runs, func(a, b string) int {
		return strings.Compare(createdAt(t, f, a)+a, createdAt(t, f, b)+b)
	})
	return map[string]struct {
		read pager
		want []string
	}{
		"events": {eventPager(t, func(p pg.Page) (read.EventPage, error) {
			return f.Events(ctx, home, id, p, read.WithPayloads)
		}), events},
		"events without payloads": {eventPager(t, func(p pg.Page) (read.EventPage, error) {
			return f.Events(ctx, home, id, p, read.WithoutPayloads)
		}), events},
		"events by correlation ID in the run": {eventPager(t, func(p pg.Page) (read.EventPage, error) {
			return f.EventsByCorrelation(ctx, home, id, "hook_0", p, read.WithPayloads)
		}), about},
		"events by correlation ID in any run": {eventPager(t, func(p pg.Page) (read.EventPage, error) {
			return f.EventsByCorrelation(ctx, home, "", "hook_0", p, read.WithPayloads)
		}), about},
		"filtered events": {eventPager(t, func(p pg.Page) (read.EventPage, error) {
			return f.FilteredEvents(ctx, home, id, read.EventFilter{CorrelationID: "hook_0"}, p)
		}), about},
		"steps": {func(p pg.Page) ([]string, string, error) {
			items, next, err := store.ListSteps(ctx, f.pool, home, id, p)
			return idsOf(items, func(s entities.Step) string { return string(s.ID) }), next, err
		}, steps},
		"hooks of a run": {func(p pg.Page) ([]string, string, error) {
			items, next, err := store.ListHooks(ctx, f.pool, home, id, day, p)
			return idsOf(items, func(h entities.Hook) string { return string(h.ID) }), next, err
		}, hooks},
		"histories of hooks": {func(p pg.Page) ([]string, string, error) {
			items, next, err := f.HookHistories(ctx, home, id, p)
			return idsOf(items, func(h read.HookHistory) string { return string(h.ID) }), next, err
		}, hooks},
		"histories of waits": {func(p pg.Page) ([]string, string, error) {
			items, next, err := f.WaitHistories(ctx, home, id, "", p)
			return idsOf(items, func(w read.WaitHistory) string { return string(w.ID) }), next, err
		}, waits},
		"runs from the third on": {func(p pg.Page) ([]string, string, error) {
			items, next, err := store.ListRuns(ctx, f.pool, home, store.RunFilter{Status: "pending"}, p)
			return idsOf(items, func(r entities.Run) string {
				if !slices.Contains(runs, string(r.ID)) {
					return "noise"
				}
				return string(r.ID)
			}), next, err
		}, runs},
	}
}

// idsOf returns the IDs of the items.
func idsOf[T any](items []T, id func(T) string) (ids []string) {
	for _, item := range items {
		ids = append(ids, id(item))
	}
	return ids
}

// createdAt returns the creation time of a run, as text that sorts.
func createdAt(t *testing.T, f *fixture, id string) string {
	t.Helper()
	run, err := store.RunByID(t.Context(), f.pool, home, entities.RunID(id))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%020d ", run.CreatedAt.UnixMilli())
}

func TestListsArePagedInBothDirections(t *testing.T) {
	t.Parallel()
	for name, list := range allLists(t) {
		for _, limit := range []int{1, 2, 3, 7, 100, pg.MaxPage} {
			for _, descending := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d, descending %t", name, limit, descending), func(t *testing.T) {
					t.Parallel()
					want := slices.Clone(list.want)
					if descending {
						slices.Reverse(want)
					}
					got := readAll(t, list.read, pg.Page{Limit: limit, Descending: descending})
					got = slices.DeleteFunc(got, func(id string) bool { return id == "noise" })
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("list differs (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

func TestUnknownCursorsAreInvalid(t *testing.T) {
	t.Parallel()
	cursors := []string{
		"nonsense", "eid:", "eid:1", ":", "12:", "\x00", "1772366400000:\x00", "99999999999999999999",
	}
	for name, list := range allLists(t) {
		for _, cursor := range cursors {
			t.Run(fmt.Sprintf("%s, %q", name, cursor), func(t *testing.T) {
				t.Parallel()
				if _, _, err := list.read(pg.Page{Limit: 10, Cursor: cursor}); !errors.Is(err, entities.ErrInvalid) {
					t.Errorf("got error %v, want ErrInvalid", err)
				}
			})
		}
	}
}

func TestCursorAtEndReturnsEmptyLastPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	log := f.events(t, id)
	end := pg.Page{Limit: 10, Cursor: read.EventCursor(log[len(log)-1])}
	page, err := f.Events(t.Context(), home, id, end, read.WithPayloads)
	if err != nil || len(page.Events) != 0 || page.More {
		t.Errorf("got %d events, more %t, error %v; want none", len(page.Events), page.More, err)
	}
	f.must(t, onRun(id, "run_completed"))
	page, err = f.Events(t.Context(), home, id, end, read.WithPayloads)
	if err != nil || len(page.Events) != 1 || page.Events[0].Type != entities.EventRunCompleted {
		t.Errorf("after an append: got %+v, error %v; want just that", page.Events, err)
	}
	t.Run("an event ID is a cursor too", func(t *testing.T) {
		page, err := f.Events(t.Context(), home, id, pg.Page{Limit: 10, Cursor: string(log[0].ID())}, read.WithPayloads)
		if err != nil || len(page.Events) != 2 {
			t.Errorf("got %d events, error %v; want 2", len(page.Events), err)
		}
	})
}

func TestMissingEntitiesAreNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t)
	ctx, none, page := t.Context(), newRunID(), pg.Page{Limit: 10}
	_, noEvents := f.Events(ctx, home, none, page, read.WithPayloads)
	_, noEvent := f.Event(ctx, home, id, 2)
	_, noRun := store.RunByID(ctx, f.pool, home, none)
	_, noStep := store.StepByID(ctx, f.pool, home, id, "step_none")
	_, noHook := store.HookByID(ctx, f.pool, home, "hook_none", day)
	_, noToken := store.HookByToken(ctx, f.pool, home, "T", day)
	for name, test := range map[string]struct{ got, want error }{
		"events": {noEvents, entities.ErrRunNotFound}, "event": {noEvent, entities.ErrEventNotFound},
		"run": {noRun, entities.ErrRunNotFound}, "step": {noStep, entities.ErrStepNotFound},
		"hook": {noHook, entities.ErrHookNotFound}, "token": {noToken, entities.ErrHookNotFound},
	} {
		if !errors.Is(test.got, test.want) {
			t.Errorf("%s: got error %v, want %v", name, test.got, test.want)
		}
	}
	for _, correlationID := range []string{"none", ""} {
		got, err := f.EventsByCorrelation(ctx, home, id, correlationID, page, read.WithPayloads)
		if err != nil || len(got.Events) != 0 || got.More {
			t.Errorf("events of correlation ID %q: got %+v, %v; want none", correlationID, got, err)
		}
	}
}

func TestLargePayloadsEndPageEarly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, hook("hook_created"))
	large := bytes.Repeat([]byte("16 MiB in fours!"), 4<<20/16)
	for range 9 {
		r := on(id, "hook_received", "hook_1")
		r.Payload = large
		f.must(t, r)
	}
	pool, counted := countingPool(t, f.pool)
	log := New(pool, f.hub, noQueue{}, f.clock.now)
	for _, test := range []struct {
		descending bool
		want       []int
	}{
		{false, []int{7, 4, 1}}, // three small events and four of 4 MiB are 16 MiB; then four; then the last
		{true, []int{4, 4, 4}},  // four; four; the last and the small ones
	} {
		var sizes []int
		page := pg.Page{Limit: 100, Descending: test.descending}
		for more := true; more; {
			before := counted.Load()
			got, err := log.Events(t.Context(), home, id, page, read.WithPayloads)
			if err != nil {
				t.Fatal(err)
			}
			if sent := counted.Load() - before; sent > read.MaxPageBytes+1<<20 {
				t.Errorf("the database sent %d bytes for a page of %d", sent, read.MaxPageBytes)
			}
			for _, e := range got.Events {
				if e.Type == entities.EventHookReceived && !bytes.Equal(e.Payload, large) {
					t.Errorf("event %d came with %d bytes, want %d", e.Seq, len(e.Payload), len(large))
				}
			}
			sizes, more = append(sizes, len(got.Events)), got.More
			page.Cursor = read.EventCursor(got.Events[len(got.Events)-1])
		}
		if diff := cmp.Diff(test.want, sizes); diff != "" {
			t.Errorf("descending %t: page sizes differ (-want +got):\n%s", test.descending, diff)
		}
	}
	got, err := f.Events(t.Context(), home, id, pg.Page{Limit: 100}, read.WithoutPayloads)
	if err != nil || len(got.Events) != 12 || got.More {
		t.Errorf("without payloads: got %d events, more %t, error %v; want all 12", len(got.Events), got.More, err)
	}
}

// countingPool returns a pool with the same configuration that counts the bytes that the database sends.
func countingPool(t *testing.T, like *pgxpool.Pool) (*pgxpool.Pool, *atomic.Int64) {
	t.Helper()
	config, counted := like.Config(), new(atomic.Int64)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return countingConn{conn, counted}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, counted
}

type countingConn struct {
	net.Conn
	counted *atomic.Int64
}

func (c countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.counted.Add(int64(n))
	return n, err
}
