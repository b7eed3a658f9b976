package eventlog

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

// requestsByStatus has the requests that bring an entity to each status, in a running run unless the entity is the run.
var requestsByStatus = map[string]map[string][]Request{
	entities.KindRun: {
		"none":      nil,
		"pending":   {created},
		"running":   {created, started},
		"completed": {created, started, completed},
		"failed":    {created, started, failed},
		"cancelled": {created, started, cancelled},
	},
	entities.KindStep: {
		"none":      {created, started},
		"pending":   {created, started, step("step_created")},
		"running":   {created, started, step("step_created"), step("step_started")},
		"completed": {created, started, step("step_created"), step("step_started"), step("step_completed")},
		"failed":    {created, started, step("step_created"), step("step_started"), step("step_failed")},
	},
	entities.KindHook: {
		"none":     {created, started},
		"active":   {created, started, hook("hook_created")},
		"disposed": {created, started, hook("hook_created"), hook("hook_disposed")},
	},
	entities.KindWait: {
		"none":      {created, started},
		"waiting":   {created, started, sleep("wait_created")},
		"completed": {created, started, sleep("wait_created"), sleep("wait_completed")},
		"cancelled": {created, started, sleep("wait_created"), sleep("wait_cancelled")},
	},
}

// TestTransitionTablesThroughPostgres requests each event in each status: the row changes as the
// table says, or nothing is written and the error is that of the table.
func TestTransitionTablesThroughPostgres(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tryTable(t, f, "runs", entities.KindRun, entities.Runs, nil)
	live := entities.Run{Status: entities.RunRunning}
	tryTable(t, f, "steps", entities.KindStep, live.StepTable(), nil)
	tryTable(t, f, "hooks", entities.KindHook, live.HookTable(), nil)
	tryTable(t, f, "waits", entities.KindWait, live.WaitTable(), nil)
	fencedEnd := entities.Run{Status: entities.RunCompleted, SpecVersion: entities.SpecFence}
	tryTable(t, f, "steps of a fenced run after the end", entities.KindStep, fencedEnd.StepTable(), &completed, fence)
	tryTable(t, f, "waits of a fenced run after the end", entities.KindWait, fencedEnd.WaitTable(), &completed, fence)
	ended := entities.Run{Status: entities.RunCompleted}
	for _, end := range []Request{completed, failed, cancelled} {
		after := " after " + string(end.Type)
		tryTable(t, f, "steps"+after, entities.KindStep, ended.StepTable(), &end)
		tryTable(t, f, "hooks"+after, entities.KindHook, ended.HookTable(), &end)
		tryTable(t, f, "waits"+after, entities.KindWait, ended.WaitTable(), &end)
	}
}

func tryTable[S ~string](t *testing.T, f *fixture, name, kind string, table entities.Table[S], end *Request,
	change ...func(*Request),
) {
	t.Helper()
	for event, row := range table {
		if event == entities.EventHookConflict {
			continue // only the server writes it: see the tests of token conflicts
		}
		for status, cell := range row {
			if event == entities.EventCancelRequested && string(status) == string(entities.RunPending) {
				continue // the run ends at once instead: see the tests of cancellation
			}
			before, ok := requestsByStatus[kind][string(status)]
			if !ok {
				t.Errorf("%s: no requests for status %s", kind, status)
			}
			if end != nil {
				before = append(retainLastHook(before), *end)
			}
			before = slices.Clone(before)
			for _, change := range change {
				for i := range before {
					change(&before[i])
				}
			}
			t.Run(fmt.Sprintf("%s, %s when %s", name, event, status), func(t *testing.T) {
				t.Parallel()
				tryCell(t, f, before, event, string(cell.To), string(cell.No))
			})
		}
	}
}

// fence makes the run that the request creates one with a fence.
func fence(r *Request) { r.SpecVersion = entities.SpecFence }

// retainLastHook returns the requests with a last hook whose token is retained after the end of the run.
func retainLastHook(before []Request) []Request {
	before = slices.Clone(before)
	if last := &before[len(before)-1]; last.Type == entities.EventHookCreated {
		last.Data.TokenRetentionUntil = ptr(day.Add(time.Hour))
	}
	return before
}

// tryCell appends the history to a new run and then requests the event.
func tryCell(t *testing.T, f *fixture, history []Request, event entities.EventType, to, no string) {
	t.Helper()
	id := newRunID()
	for _, r := range history {
		if (event == entities.EventCancelRequested || event == entities.EventStoreSet) && r.Type == entities.EventRunCreated {
			r.Data.Driver = entities.DriverServer // other runs cannot be asked to cancel, and have no store
		}
		f.must(t, forRun(r, id))
	}
	ask := onRun(id, event)
	if event == entities.EventRunCreated {
		ask = runCreated(id)
	} else if kind := event.Kind(); kind != entities.KindRun || event == entities.EventAttrSet || event == entities.EventStoreSet {
		ask = on(id, event, map[string]string{
			entities.KindStep: "step_1", entities.KindHook: "hook_1", entities.KindWait: "wait_1", entities.KindRun: "attr_1",
		}[kind])
	}
	before := f.rows(t, id)
	result, err := f.Append(t.Context(), home, ask)
	switch no {
	case "":
		if err != nil {
			t.Fatal(err)
		}
		if result.Event == nil || result.Event.Type != event || result.Event.Seq != int64(len(history)+1) {
			t.Errorf("got event %+v, want %s at %d", result.Event, event, len(history)+1)
		}
		wantRows(t, f, id, result, to)
		return
	case string(entities.Repeat):
		if err != nil || !result.Repeated {
			t.Errorf("got event %v and error %v, want nothing new", result.Event, err)
		}
	default:
		var refused *entities.TransitionError
		if !errors.As(err, &refused) || string(refused.Refusal) != no {
			t.Errorf("got error %v, want the refusal %q", err, no)
		}
	}
	if len(history) == 0 {
		return
	}
	if diff := cmp.Diff(before, f.rows(t, id)); diff != "" {
		t.Errorf("a refused event changed the rows (-before +after):\n%s", diff)
	}
	if got := len(f.events(t, id)); got != len(history) {
		t.Errorf("the log has %d events, want %d", got, len(history))
	}
}

// wantRows compares the rows with the fold of the log, and the result of the append with the rows.
func wantRows(t *testing.T, f *fixture, id entities.RunID, result Result, status string) {
	t.Helper()
	rows := f.rows(t, id)
	if diff := cmp.Diff(fold(f.events(t, id)), rows); diff != "" {
		t.Errorf("rows are not the fold of the log (-fold +rows):\n%s", diff)
	}
	if diff := cmp.Diff(*rows.Run, result.Run); diff != "" {
		t.Errorf("the result's run is not the row (-row +result):\n%s", diff)
	}
	got := string(rows.Run.Status)
	switch result.Event.Type.Kind() {
	case entities.KindStep:
		row := rows.Steps["step_1"]
		got = string(row.Status)
		if diff := cmp.Diff(&row, result.Step); diff != "" {
			t.Errorf("the result's step is not the row (-row +result):\n%s", diff)
		}
	case entities.KindWait:
		row, ok := rows.Waits["wait_1"]
		if got = string(row.Status); !ok && result.Wait == nil && rows.Run.Status.Ended() {
			got = status // the end has deleted the row
			break
		}
		if diff := cmp.Diff(&row, result.Wait); diff != "" {
			t.Errorf("the result's wait is not the row (-row +result):\n%s", diff)
		}
	case entities.KindHook:
		got = "disposed"
		if row, ok := rows.Hooks["hook_1"]; ok {
			got = "active"
			if diff := cmp.Diff(&row, result.Hook); diff != "" {
				t.Errorf("the result's hook is not the row (-row +result):\n%s", diff)
			}
		} else if result.Hook != nil {
			t.Errorf("the result has a deleted hook: %+v", result.Hook)
		}
	}
	if got != status {
		t.Errorf("status is %s, want %s", got, status)
	}
}
