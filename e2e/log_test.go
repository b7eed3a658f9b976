package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// log is the event log of a run.
type log []event

// log reads the log of an ended run and checks the invariants of every log.
func (s *server) log(t *testing.T, runID string) log {
	t.Helper()
	l := log(s.events(t, runID))
	if problems := l.problems(runID); len(problems) > 0 {
		t.Fatalf("log of %s:\n%s\n%s", runID, strings.Join(problems, "\n"), strings.Join(l.lines(), "\n"))
	}
	return l
}

// ends are the terminal events of runs, steps, hooks and waits.
var ends = []string{
	"run_completed", "run_failed", "run_cancelled", "step_completed", "step_failed", "hook_disposed",
	"hook_conflict", "wait_completed", "wait_cancelled",
}

// problems returns the violations of the invariants of every log: positions are dense from 1, timestamps do not
// decrease, every entity is created once, before its other events, and ends at most once. The run is created first and
// ends. After its end, only events of steps that were already running may follow.
func (l log) problems(runID string) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	over, created := map[string]bool{}, map[string]bool{}
	for i, e := range l {
		if want := fmt.Sprintf("evnt_%026d", i+1); e.ID != want || e.RunID != runID {
			add("event %d is %s of %s, want %s", i+1, e.ID, e.RunID, want)
		}
		if i > 0 && e.CreatedAt.Before(l[i-1].CreatedAt) {
			add("event %d is older than its predecessor", i+1)
		}
		id := e.CorrelationID
		begins := strings.HasSuffix(e.Type, "_created") || e.Type == "hook_conflict" || e.Type == "attr_set" && id != ""
		switch {
		case begins == created[id]:
			add("event %d: %s of %q, which existed before: %v", i+1, e.Type, id, created[id])
		case over[id]:
			add("event %d: %s of %q, which has ended", i+1, e.Type, id)
		case over[""] && (begins || !strings.HasPrefix(e.Type, "step_")):
			add("event %d: %s after the run's end", i+1, e.Type)
		}
		created[id] = true
		over[id] = over[id] || slices.Contains(ends, e.Type)
	}
	if !over[""] {
		add("the run has not ended")
	}
	return problems
}

// names returns a stable name for each entity: the function's name for a step, else the kind of entity.
func (l log) names() map[string]string {
	names := map[string]string{"": "run"}
	for _, e := range l {
		kind, _, _ := strings.Cut(e.Type, "_")
		if name, ok := e.Data["stepName"].(string); ok && kind == "step" {
			kind = name[strings.LastIndex(name, "/")+1:]
		}
		if _, known := names[e.CorrelationID]; !known {
			names[e.CorrelationID] = kind
		}
	}
	return names
}

// lines formats the log for comparison in tests: one event per line, steps by name.
func (l log) lines() []string {
	names := l.names()
	lines := make([]string, len(l))
	for i, e := range l {
		lines[i] = e.Type
		if strings.HasPrefix(e.Type, "step_") {
			lines[i] += " " + names[e.CorrelationID]
		}
	}
	return lines
}

// threads summarizes a log whose interleaving is not deterministic: one line per entity with its events, sorted. Equal
// lines are merged and prefixed with their count.
func (l log) threads() []string {
	names, happened := l.names(), map[string]string{}
	for _, e := range l {
		_, what, _ := strings.Cut(e.Type, "_")
		happened[e.CorrelationID] += " " + what
	}
	counts := map[string]int{}
	for id, what := range happened {
		counts[names[id]+":"+what]++
	}
	threads := slices.Sorted(maps.Keys(counts))
	for i, thread := range threads {
		if n := counts[thread]; n > 1 {
			threads[i] = fmt.Sprintf("%d × %s", n, thread)
		}
	}
	return threads
}

// of returns the events of one type.
func (l log) of(typ string) log {
	var found log
	for _, e := range l {
		if e.Type == typ {
			found = append(found, e)
		}
	}
	return found
}

// wantLog compares a log with the expected lines, in order.
func (s *server) wantLog(t *testing.T, runID string, want ...string) log {
	t.Helper()
	l := s.log(t, runID)
	if diff := cmp.Diff(want, l.lines()); diff != "" {
		t.Errorf("log of %s (-want +got):\n%s", runID, diff)
	}
	return l
}

// wantThreads compares a log with the expected events of each entity, in any interleaving.
func (s *server) wantThreads(t *testing.T, runID string, want ...string) log {
	t.Helper()
	l := s.log(t, runID)
	got := l.threads()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log of %s by entity (-want +got):\n%s\n%s", runID, diff, strings.Join(l.lines(), "\n"))
	}
	return l
}

// step returns the events of a step that succeeds at its first attempt.
func step(name string) []string {
	return []string{"step_created " + name, "step_started " + name, "step_completed " + name}
}

// sequence flattens events and groups of events.
func sequence(parts ...any) (lines []string) {
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			lines = append(lines, part)
		case []string:
			lines = append(lines, part...)
		}
	}
	return lines
}
