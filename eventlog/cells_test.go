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

// roads lead an entity from nothing to a status, in a running run unless it is about runs.
var roads = map[string]map[string][]Request{
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
	},
}

// TestEveryCellOfTheTransitionTablesThroughPostgres asks each event in each status: the row moves as the
// table says, or nothing is written and the error is the table's.
func TestEveryCellOfTheTransitionTablesThroughPostgres(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	walk(t, f, "runs", entities.KindRun, entities.Runs, nil)
	live := entities.Run{Status: entities.RunRunning}
	walk(t, f, "steps", entities.KindStep, live.StepTable(), nil)
	walk(t, f, "hooks", entities.KindHook, live.HookTable(), nil)
	walk(t, f, "waits", entities.KindWait, live.WaitTable(), nil)
	over := entities.Run{Status: entities.RunCompleted}
	for _, end := range []Request{completed, failed, cancelled} {
		after := " after " + string(end.Type)
		walk(t, f, "steps"+after, entities.KindStep, over.StepTable(), &end)
		walk(t, f, "hooks"+after, entities.KindHook, over.HookTable(), &end)
		walk(t, f, "waits"+after, entities.KindWait, over.WaitTable(), &end)
	}
}

func walk[S ~string](t *testing.T, f *fixture, name, kind string, table entities.Table[S], end *Request) {
	t.Helper()
	for event, row := range table {
		if event == entities.EventHookConflict {
			continue // only the server writes it: see the contests for tokens
		}
		for status, cell := range row {
			road, ok := roads[kind][string(status)]
			if !ok {
				t.Errorf("%s: no road to status %s", kind, status)
			}
			if end != nil {
				road = append(retained(road), *end)
			}
			t.Run(fmt.Sprintf("%s, %s when %s", name, event, status), func(t *testing.T) {
				t.Parallel()
				tryCell(t, f, road, event, string(cell.To), cell.No)
			})
		}
	}
}

// retained is a road whose last hook, if it is active, outlives the run.
func retained(road []Request) []Request {
	road = slices.Clone(road)
	if last := &road[len(road)-1]; last.Type == entities.EventHookCreated {
		last.Data.TokenRetentionUntil = ptr(day.Add(time.Hour))
	}
	return road
}

// tryCell walks the road in a run of its own and then asks for the event.
func tryCell(t *testing.T, f *fixture, road []Request, event entities.EventType, to string, no entities.Refusal) {
	t.Helper()
	id := newRunID()
	for _, r := range road {
		f.must(t, retold(r, id))
	}
	ask := onRun(id, event)
	if event == entities.EventRunCreated {
		ask = runCreated(id)
	} else if kind := event.Kind(); kind != entities.KindRun || event == entities.EventAttrSet {
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
		if result.Event == nil || result.Event.Type != event || result.Event.Seq != int64(len(road)+1) {
			t.Errorf("got event %+v, want %s at %d", result.Event, event, len(road)+1)
		}
		wantRows(t, f, id, result, to)
		return
	case entities.Repeat:
		if err != nil || !result.Repeated {
			t.Errorf("got event %v and error %v, want nothing new", result.Event, err)
		}
	default:
		var refused *entities.TransitionError
		if !errors.As(err, &refused) || refused.Refusal != no {
			t.Errorf("got error %v, want the refusal %q", err, no)
		}
	}
	if len(road) == 0 {
		return
	}
	if diff := cmp.Diff(before, f.rows(t, id)); diff != "" {
		t.Errorf("a refused event changed the rows (-before +after):\n%s", diff)
	}
	if got := len(f.events(t, id)); got != len(road) {
		t.Errorf("the log has %d events, want %d", got, len(road))
	}
}

// wantRows compares the rows with the fold of the log, and what the append said about the entity with both.
func wantRows(t *testing.T, f *fixture, id entities.RunID, result Result, status string) {
	t.Helper()
	rows := f.rows(t, id)
	if diff := cmp.Diff(fold(f.events(t, id)), rows); diff != "" {
		t.Errorf("rows are not the fold of the log (-fold +rows):\n%s", diff)
	}
	if diff := cmp.Diff(*rows.Run, result.Run); diff != "" {
		t.Errorf("the answer's run is not the row (-row +answer):\n%s", diff)
	}
	got := string(rows.Run.Status)
	switch result.Event.Type.Kind() {
	case entities.KindStep:
		row := rows.Steps["step_1"]
		got = string(row.Status)
		if diff := cmp.Diff(&row, result.Step); diff != "" {
			t.Errorf("the answer's step is not the row (-row +answer):\n%s", diff)
		}
	case entities.KindWait:
		row := rows.Waits["wait_1"]
		got = string(row.Status)
		if diff := cmp.Diff(&row, result.Wait); diff != "" {
			t.Errorf("the answer's wait is not the row (-row +answer):\n%s", diff)
		}
	case entities.KindHook:
		got = "disposed"
		if row, ok := rows.Hooks["hook_1"]; ok {
			got = "active"
			if diff := cmp.Diff(&row, result.Hook); diff != "" {
				t.Errorf("the answer's hook is not the row (-row +answer):\n%s", diff)
			}
		} else if result.Hook != nil {
			t.Errorf("the answer has a hook that is gone: %+v", result.Hook)
		}
	}
	if got != status {
		t.Errorf("status is %s, want %s", got, status)
	}
}
