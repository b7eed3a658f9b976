package eventlog

import (
	"bytes"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestHookTokenIsReusableAfterDisposal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ends := map[string]entities.EventType{
		"disposed": "hook_disposed", "run completed": "run_completed", "run failed": "run_failed",
		"run cancelled": "run_cancelled",
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := f.run(t, started), f.run(t, started)
			token := "token of " + string(first)
			f.must(t, hookCreated(first, "hook_1", token))
			if got := f.must(t, hookCreated(second, "hook_1", token)); got.Event.Type != entities.EventHookConflict {
				t.Fatalf("while the token is held: got %s, want hook_conflict", got.Event.Type)
			} else if got.Hook != nil {
				t.Errorf("a hook_conflict has a hook: %+v", got.Hook)
			}
			ask := onRun(first, end)
			if end == entities.EventHookDisposed {
				ask = on(first, end, "hook_1")
			}
			f.must(t, ask)
			if _, err := store.HookByToken(t.Context(), f.pool, home, token, day); !errors.Is(err, entities.ErrHookNotFound) {
				t.Errorf("the token still has a hook: error %v", err)
			}
			if got := f.must(t, hookCreated(second, "hook_2", token)); got.Event.Type != entities.EventHookCreated {
				t.Errorf("after the end of its hook: got %s, want hook_created", got.Event.Type)
			}
			hook, err := store.HookByToken(t.Context(), f.pool, home, token, day)
			if err != nil || hook.RunID != second || hook.ID != "hook_2" {
				t.Errorf("the token belongs to %+v, %v", hook, err)
			}
		})
	}
}

func TestI10PayloadsAreReturnedUnchanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	large := make([]byte, 1<<20)
	if _, err := rand.Read(large); err != nil {
		t.Fatal(err)
	}
	payloads := map[string][]byte{
		"every byte": all, "1 MiB": large, "1 MiB of one byte": bytes.Repeat([]byte{0}, 1<<20), "a NUL": {0}, "none": nil,
		"JSON with odd spaces": []byte("{ \"a\" :1,\r\n\"a\":2 }"), "not UTF-8": {0xff, 0xfe}, "a backslash": []byte(`\x41`),
	}
	for name, payload := range payloads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := f.run(t, started, hook("hook_created"))
			r := on(id, "hook_received", "hook_1")
			r.Payload, r.Extra = payload, payload
			appended := f.must(t, r).Event
			page, err := f.EventsByCorrelation(t.Context(), home, id, "hook_1", pg.Page{Limit: 10}, read.WithPayloads)
			if err != nil {
				t.Fatal(err)
			}
			at := read.Position{RunID: id, Seq: appended.Seq}
			several, err := f.EventsAt(t.Context(), []read.Position{at}, read.WithPayloads)
			if err != nil {
				t.Fatal(err)
			}
			one, err := f.Event(t.Context(), home, id, appended.Seq)
			if err != nil {
				t.Fatal(err)
			}
			for from, got := range map[string]entities.Event{
				"the answer": *appended, "Events": f.events(t, id)[appended.Seq-1], "Event": one, "EventsAt": several[at],
				"EventsByCorrelation": page.Events[len(page.Events)-1],
			} {
				if !bytes.Equal(got.Payload, payload) || !bytes.Equal(got.Extra, payload) {
					t.Errorf("%s: payload or extra differs", from)
				}
				if (got.Payload == nil) != (payload == nil) {
					t.Errorf("%s: got nil %t, want %t", from, got.Payload == nil, payload == nil)
				}
			}
		})
	}
}

func TestWithoutPayloadsOmitsPayloads(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := runCreated(newRunID())
	r.Extra = []byte{0xa0}
	f.must(t, r)
	page, err := f.Events(t.Context(), home, r.RunID, pg.Page{Limit: 10}, read.WithoutPayloads)
	if err != nil {
		t.Fatal(err)
	}
	at := read.Position{RunID: r.RunID, Seq: 1}
	several, err := f.EventsAt(t.Context(), []read.Position{at, {RunID: r.RunID, Seq: 2}, {RunID: "wrun_none", Seq: 1}}, read.WithoutPayloads)
	if err != nil {
		t.Fatal(err)
	}
	if len(several) != 1 {
		t.Errorf("EventsAt found %d events, want 1", len(several))
	}
	for from, got := range map[string]entities.Event{"Events": page.Events[0], "EventsAt": several[at]} {
		if got.Payload != nil {
			t.Errorf("%s has a payload", from)
		}
		if diff := cmp.Diff(r.Extra, got.Extra); diff != "" {
			t.Errorf("%s: extra differs (-want +got):\n%s", from, diff)
		}
		if diff := cmp.Diff(r.Data, got.Data); diff != "" {
			t.Errorf("%s: data differs (-want +got):\n%s", from, diff)
		}
	}
}

func TestTimesAreUTCInWholeMilliseconds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	east := time.FixedZone("east", 9*3600)
	f.clock.at = day.Add(123456789 * time.Nanosecond).In(east)
	fine := ptr(day.Add(time.Hour + 987654321*time.Nanosecond).In(east))
	cut := day.Add(time.Hour + 987*time.Millisecond)
	id := newRunID()
	creation := runCreated(id)
	creation.OccurredAt = fine
	sleeping, retrying := on(id, "wait_created", "wait_1"), on(id, "step_retrying", "step_1")
	sleeping.Data.ResumeAt, retrying.Data.RetryAfter = fine, fine
	for _, r := range []Request{
		creation, onRun(id, "run_started"), on(id, "step_created", "step_1"), on(id, "step_started", "step_1"), retrying,
		sleeping, on(id, "wait_completed", "wait_1"), on(id, "hook_created", "hook_1"), on(id, "step_failed", "step_1"),
	} {
		result := f.must(t, r)
		checkTimes(t, "the answer's event", map[string]*time.Time{
			"createdAt": &result.Event.CreatedAt, "occurredAt": result.Event.OccurredAt,
			"resumeAt": result.Event.Data.ResumeAt, "retryAfter": result.Event.Data.RetryAfter,
		})
	}
	for _, e := range f.events(t, id) {
		checkTimes(t, string(e.Type), map[string]*time.Time{
			"createdAt": &e.CreatedAt, "occurredAt": e.OccurredAt, "resumeAt": e.Data.ResumeAt, "retryAfter": e.Data.RetryAfter,
		})
	}
	rows := f.rows(t, id)
	step, hook, wait, run := rows.Steps["step_1"], rows.Hooks["hook_1"], rows.Waits["wait_1"], rows.Run
	checkTimes(t, "run", map[string]*time.Time{
		"createdAt": &run.CreatedAt, "updatedAt": &run.UpdatedAt, "startedAt": run.StartedAt,
	})
	checkTimes(t, "step", map[string]*time.Time{
		"createdAt": &step.CreatedAt, "updatedAt": &step.UpdatedAt, "startedAt": step.StartedAt,
		"completedAt": step.CompletedAt, "retryAfter": step.RetryAfter,
	})
	checkTimes(t, "hook", map[string]*time.Time{"createdAt": &hook.CreatedAt})
	checkTimes(t, "wait", map[string]*time.Time{
		"createdAt": &wait.CreatedAt, "updatedAt": &wait.UpdatedAt, "completedAt": wait.CompletedAt,
		"resumeAt": wait.ResumeAt,
	})
	for what, got := range map[string]*time.Time{
		"retry": step.RetryAfter, "resume": wait.ResumeAt, "occurred": f.events(t, id)[0].OccurredAt,
	} {
		if got == nil || !got.Equal(cut) {
			t.Errorf("%s: got %v, want %s", what, got, cut)
		}
	}
	if got, want := run.CreatedAt, day.Add(123*time.Millisecond); !got.Equal(want) {
		t.Errorf("the run was created at %s, want %s", got, want)
	}
}

// checkTimes fails the test for each time that is not in UTC and whole milliseconds. Nil times are skipped.
func checkTimes(t *testing.T, what string, times map[string]*time.Time) {
	t.Helper()
	for name, at := range times {
		if at == nil {
			continue
		}
		if at.Location() != time.UTC || !at.Equal(at.Truncate(time.Millisecond)) {
			t.Errorf("%s: %s is %v", what, name, at)
		}
	}
}

func TestRepeatedRunStartedReturnsRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	got := f.must(t, onRun(id, "run_started"))
	if first := f.events(t, id)[1]; !got.Repeated || got.Event == nil || got.Event.Seq != first.Seq || got.Event.Type != first.Type {
		t.Errorf("got event %+v, want the run_started", got.Event)
	}
	if got := len(f.events(t, id)); got != 2 {
		t.Errorf("the log has %d events, want 2 (3.5)", got)
	}
	if diff := cmp.Diff(*f.rows(t, id).Run, got.Run); diff != "" {
		t.Errorf("run differs (-row +answer):\n%s", diff)
	}
}

func TestInvalidRequestWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old := runCreated("wrun_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	f.refused(t, old, entities.ErrInvalid)
	if got := f.rows(t, old.RunID); got.Run != nil {
		t.Errorf("the run exists: %+v", got.Run)
	}
	id := f.run(t)
	f.refused(t, on(id, "hook_conflict", "hook_1"), entities.ErrInvalid)
	f.refused(t, on(id, "step_created", ""), entities.ErrInvalid)
	if got := len(f.events(t, id)); got != 1 {
		t.Errorf("the log has %d events, want 1", got)
	}
}
