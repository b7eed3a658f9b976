package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	const rest = " S 7 1 1 0 -1 4194560 10 20 0 0 150 50 30 20 20 0 4 0 100 1 1"
	for _, of := range []struct {
		name, line string
		want       stat
		bad        bool
	}{
		{"OK", "42 (postgres)" + rest, stat{42, 7, 2 * time.Second, 500 * time.Millisecond}, false},
		{"NameWithParentheses", "42 (a ) b) (c)" + rest, stat{42, 7, 2 * time.Second, 500 * time.Millisecond}, false},
		{"Short", "42 (postgres) S 7", stat{}, true},
		{"Empty", "", stat{}, true},
		{"NoNumbers", "42 (postgres) S x 1 1 0 -1 4194560 10 20 0 0 a b c d 1", stat{}, true},
	} {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseStat([]byte(of.line))
			if (err != nil) != of.bad || got != of.want {
				t.Errorf("got %+v, %v; want %+v", got, err, of.want)
			}
		})
	}
}

func TestWithChildren(t *testing.T) {
	t.Parallel()
	parent := stat{PID: 1, Parent: 0, Own: 1, Children: 10}
	all := []stat{parent, {PID: 2, Parent: 1, Own: 100, Children: 1000}, {PID: 3, Parent: 2, Own: 5}, {PID: 4, Parent: 9, Own: 7}}
	if got := withChildren(parent, all); got != 1111 {
		t.Errorf("got %d, want 1111: the process with its ended children, and the running child with its ended children", got)
	}
}

func TestParseBenchmarks(t *testing.T) {
	t.Parallel()
	const out = `goos: linux
BenchmarkSteps/own_runs/clients=8-2         	    2000	    250000 ns/op	         1.500 p50-ms	         9.250 p99-ms
PASS`
	got, err := parseBenchmarks([]byte(out))
	want := []row{{
		Case: "append, own runs", Variant: "go", Clients: 8, Ops: 2000, Seconds: 0.5, Latency: quantiles{P50: 1.5, P99: 9.25},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := parseBenchmarks([]byte("BenchmarkOther 1 2 ns/op 3 x")); err == nil {
		t.Error("a benchmark with an unexpected name was accepted")
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
	got := rows.script("append", floorHot, pipeline)
	want := `\set i :i + 1
\startpipeline
BEGIN;
UPDATE runs SET last_seq = last_seq + 1, updated_at = now() WHERE id = :prefix || '0000';
INSERT INTO events ("run_id", "seq", "data")
  SELECT r.id, r.last_seq, '{"a": 1}'::jsonb
  FROM runs r WHERE r.id = :prefix || '0000';
INSERT INTO steps ("run_id", "id", "created_seq")
  SELECT r.id, ` + floorStep + `, r.last_seq
  FROM runs r WHERE r.id = :prefix || '0000';
COMMIT;
\endpipeline
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	one := rows.script("send", floorOwn, oneStatement)
	if strings.Contains(one, "BEGIN") || strings.Count(one, ";") != 1 || !strings.Contains(one, "INSERT INTO messages (\"id\")") {
		t.Errorf("not one statement:\n%s", one)
	}
	both := rows.script("append and send", floorOwn, statementByStatement)
	if strings.Count(both, ";\n") != 7 || strings.Contains(both, "pipeline") {
		t.Errorf("not seven statements:\n%s", both)
	}
}
