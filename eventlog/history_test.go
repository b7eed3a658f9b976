package eventlog

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/pg"
)

// runWithHistory creates an ended run with hooks and waits in every status, among them two hooks that the end disposes
// of. Its events are a second apart: event n is from after(n-1).
func runWithHistory(t *testing.T, f *fixture) entities.RunID {
	t.Helper()
	f.run(t, hookCreated(theRun, "hook_there", "taken"))
	id := newRunID()
	kept := hookCreated(id, "hook_kept", "mine")
	kept.Data.IsWebhook, kept.Data.TokenRetentionUntil = ptr(true), ptr(day.Add(time.Hour))
	for _, r := range []Request{
		runCreated(id),                                                            // 1
		on(id, "hook_created", "hook_quiet"), on(id, "hook_created", "hook_used"), // 2, 3
		hookCreated(id, "hook_lost", "taken"), on(id, "hook_created", "hook_gone"), kept, // 4, 5, 6
		on(id, "hook_received", "hook_used"), on(id, "hook_received", "hook_gone"), // 7, 8
		on(id, "hook_disposed", "hook_gone"), on(id, "hook_received", "hook_used"), // 9, 10
		on(id, "wait_created", "wait_over"), on(id, "wait_created", "wait_never"), on(id, "wait_completed", "wait_over"), // 11–13
	} {
		f.must(t, r)
		f.clock.move(time.Second)
	}
	return id
}

func after(seconds int) *time.Time { return ptr(day.Add(time.Duration(seconds) * time.Second)) }

func TestHookHistories(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := runWithHistory(t, f)
	var end *time.Time
	made := func(hook entities.HookID, seq int64, event entities.EventType, received, disposed *time.Time) read.HookHistory {
		return read.HookHistory{
			RunID: id, ID: hook, Seq: seq, CreatedAt: *after(int(seq - 1)), Type: event, ReceivedAt: received, DisposedAt: disposed,
			RunEndedAt: end,
		}
	}
	gone := made("hook_gone", 5, "hook_created", after(7), after(8)) // which the run itself disposed of
	gone.ClosedAt = after(8)
	want := func() []read.HookHistory {
		gone.RunEndedAt = end
		return []read.HookHistory{
			made("hook_quiet", 2, "hook_created", nil, end), made("hook_used", 3, "hook_created", after(9), end),
			made("hook_lost", 4, "hook_conflict", nil, nil), gone,
			made("hook_kept", 6, "hook_created", nil, nil), // which is retained
		}
	}
	check := func(want []read.HookHistory) {
		t.Helper()
		got, next, err := f.HookHistories(t.Context(), home, id, pg.Page{Limit: 5})
		if err != nil || next != "" {
			t.Fatalf("got next %q and error %v", next, err)
		}
		for i := range got {
			if single, err := f.HookHistory(t.Context(), home, id, got[i].ID); err != nil || !cmp.Equal(single, got[i]) {
				t.Errorf("%s read alone: got %+v and error %v", got[i].ID, single, err)
			}
			if got[i].ID == "hook_kept" && (got[i].Data.IsWebhook == nil || !*got[i].Data.IsWebhook) {
				t.Errorf("hook_kept has data %+v, want a webhook's", got[i].Data)
			}
			got[i].Data = entities.EventData{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("histories (-want +got):\n%s", diff)
		}
	}
	check(want())
	f.must(t, onRun(id, "run_completed"))
	end = after(13)
	check(want())
}

// TestHistoryOfARetainedHook: a retained hook is live until its retention ends.
func TestHistoryOfARetainedHook(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := hookCreated(theRun, "hook_1", "T")
	r.Data.TokenRetentionUntil = ptr(day.Add(time.Hour))
	id := f.run(t, started, r, completed)
	disposed := func() *time.Time {
		t.Helper()
		h, err := f.HookHistory(t.Context(), home, id, "hook_1")
		if err != nil {
			t.Fatal(err)
		}
		return h.DisposedAt
	}
	if at := disposed(); at != nil {
		t.Errorf("it was disposed of at %s, before the end of its retention", at)
	}
	f.clock.move(time.Hour)
	if at := disposed(); at == nil || !at.Equal(day.Add(time.Hour)) {
		t.Errorf("it was disposed of at %v, want the end of its retention", at)
	}
}

func TestWaitHistories(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := runWithHistory(t, f)
	data := entities.EventData{ResumeAt: on(id, "wait_created", "").Data.ResumeAt}
	over := read.WaitHistory{RunID: id, ID: "wait_over", Seq: 11, CreatedAt: *after(10), Data: data, CompletedAt: after(12)}
	never := read.WaitHistory{RunID: id, ID: "wait_never", Seq: 12, CreatedAt: *after(11), Data: data}
	for range 2 {
		for status, want := range map[entities.WaitStatus][]read.WaitHistory{
			"": {over, never}, "waiting": {never}, "completed": {over},
		} {
			got, next, err := f.WaitHistories(t.Context(), home, id, status, pg.Page{Limit: 2})
			if err != nil || next != "" {
				t.Fatalf("got next %q and error %v", next, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status %q (-want +got):\n%s", status, diff)
			}
			for _, w := range got {
				if status != "" && w.Status() != status {
					t.Errorf("%s is %s, want %s", w.ID, w.Status(), status)
				}
			}
		}
		if got, err := f.WaitHistory(t.Context(), home, id, "wait_over"); err != nil || !cmp.Equal(got, over) {
			t.Errorf("read alone: got %+v and error %v, want %+v", got, err, over)
		}
		f.must(t, onRun(id, "run_cancelled")) // which changes nothing
	}
	if _, _, err := f.WaitHistories(t.Context(), home, id, "asleep", pg.Page{Limit: 2}); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("unknown status: got error %v", err)
	}
}

func TestI9HistoriesAreScopedToProject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := runWithHistory(t, f)
	page := pg.Page{Limit: 9}
	if got, _, err := f.HookHistories(t.Context(), stranger, id, page); err != nil || len(got) != 0 {
		t.Errorf("hooks: got %v and error %v", got, err)
	}
	if got, _, err := f.WaitHistories(t.Context(), stranger, id, "", page); err != nil || len(got) != 0 {
		t.Errorf("waits: got %v and error %v", got, err)
	}
	if got, err := f.FilteredEvents(t.Context(), stranger, id, read.EventFilter{}, page); err != nil || len(got.Events) != 0 {
		t.Errorf("events: got %v and error %v", got, err)
	}
	for project, run := range map[entities.Project]entities.RunID{stranger: id, "": "", home: newRunID()} {
		if _, err := f.HookHistory(t.Context(), project, run, "hook_used"); !errors.Is(err, entities.ErrHookNotFound) {
			t.Errorf("hook of %q in %q: got error %v", run, project, err)
		}
		if _, err := f.WaitHistory(t.Context(), project, run, "wait_over"); !errors.Is(err, entities.ErrWaitNotFound) {
			t.Errorf("wait of %q in %q: got error %v", run, project, err)
		}
	}
	if h, err := f.HookHistory(t.Context(), home, "", "hook_used"); err != nil || h.RunID != id {
		t.Errorf("hook of any run: got %+v and error %v", h, err)
	}
	for _, wrong := range []entities.HookID{"", "wait_over"} {
		if _, err := f.HookHistory(t.Context(), home, id, wrong); !errors.Is(err, entities.ErrHookNotFound) {
			t.Errorf("hook %q: got error %v", wrong, err)
		}
	}
}

func TestFilteredEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := runWithHistory(t, f)
	for _, tt := range []struct {
		filter read.EventFilter
		want   []int64
	}{
		{read.EventFilter{}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}},
		{read.EventFilter{Type: "hook_received"}, []int64{7, 8, 10}},
		{read.EventFilter{CorrelationID: "hook_used"}, []int64{3, 7, 10}},
		{read.EventFilter{Type: "hook_received", CorrelationID: "hook_used"}, []int64{7, 10}},
		{read.EventFilter{Type: "noop"}, nil},
		{read.EventFilter{CorrelationID: "hook_none"}, nil},
	} {
		pages := eventPager(t, func(p pg.Page) (read.EventPage, error) {
			return f.FilteredEvents(t.Context(), home, id, tt.filter, p)
		})
		var want []string
		for _, seq := range tt.want {
			want = append(want, string(entities.Event{Seq: seq}.ID()))
		}
		for limit := 1; limit < 4; limit++ {
			if diff := cmp.Diff(want, readAll(t, pages, pg.Page{Limit: limit})); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", tt.filter, diff)
			}
		}
	}
	page, err := f.FilteredEvents(t.Context(), home, id, read.EventFilter{Type: "run_created"}, pg.Page{Limit: 1})
	if err != nil || len(page.Events) != 1 || page.Events[0].Payload != nil {
		t.Errorf("got %+v and error %v, want one event without its payload", page, err)
	}
}

func TestLastStarts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	again := on(theRun, "step_started", "step_1")
	again.Extra = []byte{0xa0}
	id := f.run(t, started, on(theRun, "step_created", "step_1"), on(theRun, "step_created", "step_2"),
		on(theRun, "step_created", "step_3"), on(theRun, "step_started", "step_1"), on(theRun, "step_started", "step_2"), again)
	got, err := f.LastStarts(t.Context(), id, []entities.StepID{"step_1", "step_3", "step_none"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got["step_1"].Seq != 8 || len(got["step_1"].Extra) != 1 {
		t.Errorf("got %+v, want the event at 8 of step_1 alone", got)
	}
}
