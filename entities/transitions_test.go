package entities

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The statuses and events of each kind, in the order of the golden files. They are listed here again on purpose: the
// tests must notice a status or event that a table lacks.
var (
	runStatuses  = []RunStatus{RunNone, RunPending, RunRunning, RunCompleted, RunFailed, RunCancelled}
	stepStatuses = []StepStatus{StepNone, StepPending, StepRunning, StepCompleted, StepFailed}
	hookStatuses = []HookStatus{HookNone, HookActive, HookDisposed}
	waitStatuses = []WaitStatus{WaitNone, WaitWaiting, WaitCompleted, WaitCancelled}

	runEvents = []EventType{
		EventRunCreated, EventRunStarted, EventRunCompleted, EventRunFailed, EventRunCancelled, EventCancelRequested,
		EventAttrSet, EventStoreSet,
	}
	lateEvents = []EventType{EventStepCompleted, EventStepFailed}
	stepEvents = []EventType{
		EventStepCreated, EventStepStarted, EventStepCompleted, EventStepFailed, EventStepRetrying,
	}
	hookEvents = []EventType{EventHookCreated, EventHookReceived, EventHookDisposed, EventHookConflict}
	waitEvents = []EventType{EventWaitCreated, EventWaitCompleted, EventWaitCancelled}
)

// chart is a transition table whose statuses are strings, whatever its kind.
type chart struct {
	kind     string
	statuses []string
	events   []EventType
	table    map[EventType]map[string]cell[string]
	next     func(status string, event EventType) (string, error)
}

func chartOf[S ~string](kind string, t Table[S], statuses []S, events []EventType) chart {
	c := chart{kind: kind, events: events, table: map[EventType]map[string]cell[string]{}}
	for _, s := range statuses {
		c.statuses = append(c.statuses, string(s))
	}
	for event, row := range t {
		c.table[event] = map[string]cell[string]{}
		for status, to := range row {
			c.table[event][string(status)] = cell[string]{To: string(to.To), No: to.No}
		}
	}
	c.next = func(status string, event EventType) (string, error) {
		to, err := t.Next(kind, "the_id", S(status), event)
		return string(to), err
	}
	return c
}

// charts returns all tables, by the names of their golden files.
func charts() map[string]chart {
	return map[string]chart{
		"runs":                   chartOf(KindRun, Runs, runStatuses, runEvents),
		"steps":                  chartOf(KindStep, steps, stepStatuses, stepEvents),
		"steps_after_end":        chartOf(KindStep, stepsAfterEnd, stepStatuses, stepEvents),
		"steps_after_end_next":   chartOf(KindStep, stepsAfterEndNext, stepStatuses, stepEvents),
		"late_results":           chartOf(KindStep, LateResults, stepStatuses, lateEvents),
		"steps_after_end_fenced": chartOf(KindStep, stepsAfterEndFenced, stepStatuses, stepEvents),
		"waits_after_end_fenced": chartOf(KindWait, waitsAfterEndFenced, waitStatuses, waitEvents),
		"hooks":                  chartOf(KindHook, hooks, hookStatuses, hookEvents),
		"hooks_after_end":        chartOf(KindHook, hooksAfterEnd, hookStatuses, hookEvents),
		"waits":                  chartOf(KindWait, waits, waitStatuses, waitEvents),
		"waits_after_end":        chartOf(KindWait, waitsAfterEnd, waitStatuses, waitEvents),
	}
}

// markdown renders the chart as a table: an arrow precedes the next status, other words are refusals.
func (c chart) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| event \\ status | %s |\n", strings.Join(c.statuses, " | "))
	fmt.Fprintf(&b, "|---|%s\n", strings.Repeat("---|", len(c.statuses)))
	for _, event := range c.events {
		fmt.Fprintf(&b, "| %s |", event)
		for _, status := range c.statuses {
			to, err := c.next(status, event)
			var refused *TransitionError
			if errors.As(err, &refused) {
				fmt.Fprintf(&b, " %s |", refused.Refusal)
			} else if err != nil {
				fmt.Fprintf(&b, " ERROR: %v |", err)
			} else {
				fmt.Fprintf(&b, " → %s |", to)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestTransitionsEqualTheGoldenFiles(t *testing.T) {
	t.Parallel()
	for name, c := range charts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, got := filepath.Join("testdata", name+".md"), c.markdown()
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s differs; to change the rule, run with -update (-want +got):\n%s", file, diff)
			}
		})
	}
}

func TestTransitionTablesAreTotal(t *testing.T) {
	t.Parallel()
	for name, c := range charts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, want := len(c.table), len(c.events); got != want {
				t.Errorf("the table has %d events, want %d", got, want)
			}
			for _, event := range c.events {
				row := c.table[event]
				if got, want := len(row), len(c.statuses); got != want {
					t.Errorf("%s has %d statuses, want %d", event, got, want)
				}
				for _, status := range c.statuses {
					cell, ok := row[status]
					if !ok {
						t.Errorf("no cell for %s in status %s", event, status)
					}
					if (cell.To == "") == (cell.No == "") {
						t.Errorf("%s in status %s: got To %q and No %q, want exactly one", event, status, cell.To, cell.No)
					}
					if cell.To != "" && (cell.To == "none" || !slices.Contains(c.statuses, cell.To)) {
						t.Errorf("%s in status %s leads to %q, which is not a status of a %s", event, status, cell.To, c.kind)
					}
				}
			}
		})
	}
}

func TestI3FinalStatusesNeverChange(t *testing.T) {
	t.Parallel()
	final := map[string][]string{
		KindRun:  {"completed", "failed", "cancelled"},
		KindStep: {"completed", "failed"},
		KindHook: {"disposed"},
		KindWait: {"completed"},
	}
	for name, c := range charts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for event, row := range c.table {
				for _, status := range final[c.kind] {
					// The documented exception, which does not change the status either.
					if event == EventRunCancelled && status == "cancelled" {
						if got := row[status].To; got != "cancelled" {
							t.Errorf("run_cancelled in status cancelled leads to %q, want cancelled", got)
						}
						continue
					}
					if cell := row[status]; cell.No == "" && cell.To != status { // recorded again after the end, of a fenced run
						t.Errorf("%s changes %s to %s", event, status, cell.To)
					}
				}
			}
		})
	}
}

func TestOnlyRunningStepsContinueAfterTheEnd(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"steps_after_end", "steps_after_end_next", "hooks_after_end", "waits_after_end"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := charts()[name]
			for event, row := range c.table {
				for status, cell := range row {
					disposal := event == EventHookDisposed && status == "active" // of a retained hook
					if cell.No == "" && status != "running" && !disposal {
						t.Errorf("%s changes a %s from %s to %s: only a running step may continue", event, c.kind, status, cell.To)
					}
				}
			}
		})
	}
}

func TestRunStatusEnded(t *testing.T) {
	t.Parallel()
	want := map[RunStatus]bool{RunCompleted: true, RunFailed: true, RunCancelled: true}
	for _, s := range runStatuses {
		if got := s.Ended(); got != want[s] {
			t.Errorf("%s.Ended() = %t, want %t", s, got, want[s])
		}
	}
}

func TestNextErrors(t *testing.T) {
	t.Parallel()
	t.Run("an event of another kind is invalid", func(t *testing.T) {
		t.Parallel()
		_, err := steps.Next(KindStep, "step_1", StepPending, EventRunStarted)
		wantInvalid(t, err, false)
	})
	t.Run("an unknown status is an error", func(t *testing.T) {
		t.Parallel()
		got, err := steps.Next(KindStep, "step_1", "odd", EventStepStarted)
		if err == nil || got != "odd" {
			t.Errorf("got %q and error %v, want the status unchanged and an error", got, err)
		}
	})
	t.Run("a refusal has all fields", func(t *testing.T) {
		t.Parallel()
		got, err := steps.Next(KindStep, "step_1", StepFailed, EventStepCompleted)
		if got != StepFailed {
			t.Errorf("got status %q, want it unchanged", got)
		}
		want := &TransitionError{
			Kind: KindStep, ID: "step_1", Status: "failed", Event: EventStepCompleted, Refusal: Conflict,
		}
		if diff := cmp.Diff(error(want), err); diff != "" {
			t.Errorf("error differs (-want +got):\n%s", diff)
		}
	})
}

func TestTablesFollowTheRunsStatusAndVersion(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		run   Run
		steps Table[StepStatus]
		hooks Table[HookStatus]
		waits Table[WaitStatus]
	}{
		"live":               {Run{Status: RunRunning, SpecVersion: specSlots - 1}, steps, hooks, waits},
		"live, slots":        {Run{Status: RunPending, SpecVersion: specSlots}, steps, hooks, waits},
		"ended":              {Run{Status: RunFailed, SpecVersion: specSlots - 1}, stepsAfterEnd, hooksAfterEnd, waitsAfterEnd},
		"ended, slots":       {Run{Status: RunFailed, SpecVersion: specSlots}, stepsAfterEndNext, hooksAfterEnd, waitsAfterEnd},
		"live, fenced":       {Run{Status: RunRunning, SpecVersion: SpecFence}, steps, hooks, waits},
		"ended, fenced":      {Run{Status: RunFailed, SpecVersion: SpecFence}, stepsAfterEndFenced, hooksAfterEnd, waitsAfterEndFenced},
		"ended, later slots": {Run{Status: RunCompleted, SpecVersion: specSlots + 1}, stepsAfterEndNext, hooksAfterEnd, waitsAfterEnd},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.steps, test.run.StepTable()); diff != "" {
			t.Errorf("%s: steps differ (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.hooks, test.run.HookTable()); diff != "" {
			t.Errorf("%s: hooks differ (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.waits, test.run.WaitTable()); diff != "" {
			t.Errorf("%s: waits differ (-want +got):\n%s", name, diff)
		}
	}
}
