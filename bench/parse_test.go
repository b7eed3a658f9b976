package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProcessorTimeOfChildren: that of children that are running counts.
func TestProcessorTimeOfChildren(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "yes >/dev/null & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL), cmd.Wait() }()
	for took := time.Duration(0); took < 100*time.Millisecond; time.Sleep(time.Millisecond) {
		var err error
		if took, err = processorTime(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := readStat(cmd.Process.Pid); err != nil || own(s) >= 100*time.Millisecond {
		t.Errorf("the shell itself took %s, %v", own(s), err)
	}
}

func TestReadPgbenchLog(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "log")
	write := func(s string) {
		if err := os.WriteFile(name, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0 1 2000 0 1700000000 1\n1 1 4000 0 1700000000 2\n")
	s := newSample()
	if err := readPgbenchLog(name, s); err != nil || s.Ops != 2 || s.Latency.quantiles().Max < 3.99 {
		t.Errorf("%d transactions, %+v, %v; want 2, at most 4 ms", s.Ops, s.Latency.quantiles(), err)
	}
	write("progress: 5.0 s\n")
	if err := readPgbenchLog(name, newSample()); err == nil {
		t.Error("an invalid log was accepted")
	}
}

func TestShapes(t *testing.T) {
	t.Parallel()
	upTo := func(n int) func(int) bool { return func(step int) bool { return step < n } }
	for _, of := range []struct {
		workflow           string
		created, completed int
		want               decision
	}{
		{"seq-2", 0, 0, decision{create: []int{0}}},
		{"seq-2", 1, 0, decision{pending: []int{0}}},
		{"seq-2", 1, 1, decision{create: []int{1}}},
		{"seq-2", 2, 2, decision{complete: true}},
		{"wide-3", 0, 0, decision{create: []int{0, 1, 2}}},
		{"wide-3", 3, 1, decision{pending: []int{1, 2}}},
		{"wide-3", 3, 3, decision{complete: true}},
	} {
		s, err := shapeOf(workflowPrefix + of.workflow)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.next(upTo(of.created), upTo(of.completed)); !reflect.DeepEqual(got, of.want) {
			t.Errorf("%s with %d created, %d completed: %+v, want %+v", of.workflow, of.created, of.completed, got, of.want)
		}
	}
	if s, err := shapeOf(workflowPrefix + signalShape); err != nil || !s.signal {
		t.Errorf("got %+v, %v for a signal", s, err)
	}
	for _, name := range []string{"", "seq-0", "seq-x", "deep-3"} {
		if _, err := shapeOf(name); err == nil {
			t.Errorf("%q was accepted as a workflow", name)
		}
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	data, err := appendFrame(nil, stepCreated("w", "step_1"))
	if err != nil {
		t.Fatal(err)
	}
	end, err := encode.Marshal(map[string]any{"_end": 1, "next": "eid:x", "hasMore": true})
	if err != nil {
		t.Fatal(err)
	}
	whole := append(data, 0, 0, 0, byte(len(end)))
	whole = append(append(whole, end...), 0, 0, 0, 0)
	events, last, err := readFrames(whole)
	if err != nil || !last.HasMore || last.Next != "eid:x" || !reflect.DeepEqual(events, []logEvent{{"step_created", "step_1"}}) {
		t.Errorf("got %+v, %+v, %v", events, last, err)
	}
	for cut := range whole {
		if _, _, err := readFrames(whole[:cut]); err == nil {
			t.Errorf("a list cut at %d was accepted", cut)
		}
	}
}

func TestStepIDIsUnique(t *testing.T) {
	t.Parallel()
	const a, b = "wrun_01M7YJQT9G2WZTTEKJ7C4F7PGS", "wrun_01M7YJQT9G2WZTXEKJ7C4F7PGS"
	seen := map[string]bool{}
	for _, run := range []string{a, b} {
		for n := range 100 {
			id := stepID(run, n)
			if len(id) != len(run) || seen[id] {
				t.Fatalf("%s is not unique", id)
			}
			seen[id] = true
		}
	}
}

func TestTopicOf(t *testing.T) {
	t.Parallel()
	if got := topicOf("__wkf_workflow_workflow//./a//b"); got != "__wkf_workflow_workflow----a--b" {
		t.Errorf("got %s", got)
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	rows := sampleRows{
		"events":       {{"run_id", "'x'::text"}, {"seq", "'3'::bigint"}, {"xid", "'9'::xid8"}, {"data", `'{"a": 1}'::jsonb`}},
		"steps":        {{"run_id", "'x'::text"}, {"id", "'y'::text"}, {"created_seq", "'3'::bigint"}},
		"messages":     {{"id", "'m'::text"}},
		"message_keys": {{"key", "'k'::text"}},
	}
	got := rows.script(workload{"append", true})
	want := `\set i :i + 1
WITH r AS (UPDATE runs SET last_seq = last_seq + 1, updated_at = now() WHERE id = :prefix || '0000' RETURNING id, last_seq),
 e AS (INSERT INTO events ("run_id", "seq", "data")
  SELECT r.id, r.last_seq, '{"a": 1}'::jsonb
  FROM r)
INSERT INTO steps ("run_id", "id", "created_seq")
  SELECT r.id, ` + floorStep + `, r.last_seq
  FROM r;
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if send := rows.script(workload{"send", false}); strings.Count(send, ";") != 1 || !strings.Contains(send, "INSERT INTO messages (\"id\")") {
		t.Errorf("not one statement:\n%s", send)
	}
}
