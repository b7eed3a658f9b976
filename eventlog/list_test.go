package eventlog

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestListsHaveEveryFieldOfTheirEvents compares the events of each list with those that are read one by one: of two
// runs, with equal data and with more different data than a list remembers.
func TestListsHaveEveryFieldOfTheirEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var runs []entities.RunID
	for range 2 {
		id := f.run(t, started, hook("hook_created"), hook("hook_received"), onRun("", "attr_set"))
		runs = append(runs, id)
		for i := range 100 {
			f.clock.move(time.Millisecond)
			r := on(id, "step_created", fmt.Sprintf("step_%d", i))
			r.OccurredAt = ptr(day.Add(time.Duration(i) * time.Second))
			r.Extra = []byte{0xa1, 0x61, 0x61, byte(i % 20)}
			f.must(t, r)
			end := on(id, "step_started", r.CorrelationID)
			end.Data.StepName = fmt.Sprintf("step %d", i)
			f.must(t, end)
		}
	}
	want := map[entities.RunID][]entities.Event{}
	for _, id := range runs {
		for seq := range int64(len(f.events(t, id))) {
			e, err := f.Event(t.Context(), home, id, seq+1)
			if err != nil {
				t.Fatal(err)
			}
			want[id] = append(want[id], e)
		}
	}
	ofRun := func(all []entities.Event, id entities.RunID) (events []entities.Event) {
		for _, e := range all {
			if e.RunID == id {
				events = append(events, e)
			}
		}
		return events
	}
	entries := func(l read.Listing, err error) ([]entities.Event, error) {
		var events []entities.Event
		for _, e := range l.Entries {
			if e.Size != int64(len(e.Payload)) {
				t.Errorf("event %d of %s: size %d, want %d", e.Seq, e.RunID, e.Size, len(e.Payload))
			}
			events = append(events, e.Event())
		}
		return events, err
	}
	f.waitForOpenTransactions(t) // the events of a project end before the oldest one
	page := pg.Page{Limit: pg.MaxPage}
	for _, id := range runs {
		for name, list := range map[string]func() ([]entities.Event, error){
			"Events": func() ([]entities.Event, error) {
				got, err := f.Events(t.Context(), home, id, page, read.WithPayloads)
				return got.Events, err
			},
			"Prefix": func() ([]entities.Event, error) {
				got, err := f.Prefix(t.Context(), id, int64(len(want[id])), page)
				return got.Events, err
			},
			"RunEvents": func() ([]entities.Event, error) {
				return entries(f.RunEvents(t.Context(), home, id, read.EventQuery{}, page, read.WithPayloads))
			},
			"ProjectEvents": func() ([]entities.Event, error) {
				return entries(f.ProjectEvents(t.Context(), home, read.EventQuery{}, page, read.WithPayloads))
			},
		} {
			got, err := list()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[id], ofRun(got, id)); diff != "" {
				t.Errorf("%s differs from the events one by one (-want +got):\n%s", name, diff)
			}
		}
	}
}

// TestLargeEventAfterThePageIsNotLoaded: the row that tells that more events follow may be large.
func TestLargeEventAfterThePageIsNotLoaded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, hook("hook_created"))
	for _, size := range []int{10, read.MaxPageBytes + 1, 20} {
		r := on(id, "hook_received", "hook_1")
		r.Payload = make([]byte, size)
		f.must(t, r)
	}
	for _, c := range []struct {
		page  pg.Page
		sizes []int
		more  bool
	}{
		{pg.Page{Limit: 4}, []int{len("input"), 0, 0, 10}, true},
		{pg.Page{Limit: 5}, []int{len("input"), 0, 0, 10, read.MaxPageBytes + 1}, true},
		{pg.Page{Limit: 6}, []int{len("input"), 0, 0, 10, read.MaxPageBytes + 1}, true}, // ends early
		{pg.Page{Limit: 6, Cursor: read.EventCursorAt(5)}, []int{20}, false},
		{pg.Page{Limit: 1, Descending: true}, []int{20}, true},
	} {
		got, err := f.Events(t.Context(), home, id, c.page, read.WithPayloads)
		if err != nil {
			t.Fatal(err)
		}
		var sizes []int
		for _, e := range got.Events {
			sizes = append(sizes, len(e.Payload))
		}
		if diff := cmp.Diff(c.sizes, sizes); diff != "" || got.More != c.more {
			t.Errorf("%+v: more is %t, want %t; sizes (-want +got):\n%s", c.page, got.More, c.more, diff)
		}
	}
}

// TestPageThatIsReadAgainLosesNoEvent: the payloads need memory, so they are read again, after another event has come to
// the front of the page.
func TestPageThatIsReadAgainLosesNoEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	large := step("step_created")
	large.Payload = make([]byte, 100<<10)
	id := f.run(t, started, large)
	grown := false
	ctx := read.WithMemory(t.Context(), func(context.Context, int64) error {
		if !grown {
			grown = true
			f.must(t, forRun(sleep("wait_created"), id))
		}
		return nil
	})
	var positions []int64
	p := pg.Page{Limit: 10, Descending: true}
	for more := true; more; {
		page, err := f.Events(ctx, home, id, p, read.WithPayloads)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			positions = append(positions, e.Seq)
		}
		more, p.Cursor = page.More, read.EventCursor(page.Events[len(page.Events)-1])
	}
	if diff := cmp.Diff([]int64{4, 3, 2, 1}, positions); diff != "" || !grown {
		t.Errorf("grown: %v; positions (-want +got):\n%s", grown, diff)
	}
}
