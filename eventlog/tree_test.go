package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/pg"
)

// limitTrees sets the limits of the project.
func (f *fixture) limitTrees(t *testing.T, l admin.Limits) {
	t.Helper()
	_, err := f.pool.Exec(t.Context(), `
		INSERT INTO projects (name, created_at, daily_starts, max_depth, max_descendants) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (name) DO UPDATE SET daily_starts = $3, max_depth = $4, max_descendants = $5`,
		home, day, l.DailyStarts, l.MaxDepth, l.MaxDescendants)
	if err != nil {
		t.Fatal(err)
	}
}

// root starts a run that the server continues.
func (f *fixture) root(t *testing.T) entities.RunID {
	t.Helper()
	run, _, err := f.Start(t.Context(), home, NewRun(day, nil, entities.EventData{DeploymentID: "d", WorkflowName: "w"}))
	if err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// starts returns the request for a step that starts a run: a child, or one for which nobody waits.
func starts(step string, child bool) Request {
	run := NewRun(day, nil, entities.EventData{DeploymentID: "d", WorkflowName: "w"})
	r := Request{
		Type: entities.EventStepCreated, CorrelationID: step, SpecVersion: entities.SpecDriven, Child: &run,
		Data: entities.EventData{StepName: "w"},
	}
	if child {
		r.Data.Step = &entities.StepSpec{ChildID: run.RunID}
	} else {
		r.Output = fmt.Appendf(nil, `{"runId":%q}`, run.RunID)
	}
	return r
}

// start has a run start another one, and returns the status of the step and its error code.
func (f *fixture) start(t *testing.T, log *Log, of entities.RunID, r Request) (entities.StepStatus, string) {
	t.Helper()
	results, err := log.AppendAll(t.Context(), home, of, []Request{r}, AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return results[0].Step.Status, results[0].Event.Data.ErrorCode
}

func (f *fixture) wantStart(t *testing.T, of entities.RunID, r Request, code string) entities.RunID {
	t.Helper()
	status, got := f.start(t, f.Log, of, r)
	if got != code || (code != "") != (status == entities.StepFailed) {
		t.Fatalf("step %s: got %s %q, want the code %q", r.CorrelationID, status, got, code)
	}
	if differences, err := Verify(t.Context(), f.pool, f.clock.now, of); err != nil || len(differences) > 0 {
		t.Errorf("verify: %v %v", differences, err)
	}
	return r.Child.RunID
}

// openBelow counts the open descendants of a run.
func (f *fixture) openBelow(t *testing.T, root entities.RunID) (n int) {
	t.Helper()
	err := f.pool.QueryRow(t.Context(),
		`SELECT count(*) FROM runs WHERE root_id = $1 AND completed_at IS NULL`, root).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRunsKnowTheirTree: children, runs that are started and left, and runs that a client starts with a parent.
func TestRunsKnowTheirTree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	root := f.root(t)
	child := f.wantStart(t, root, starts("a", true), "")
	left := f.wantStart(t, child, starts("b", false), "")
	r := NewRun(day, nil, entities.EventData{DeploymentID: "d", WorkflowName: "w", ParentID: left})
	if _, _, err := f.Start(t.Context(), home, r); err != nil {
		t.Fatal(err)
	}
	for id, depth := range map[entities.RunID]int{root: 0, child: 1, left: 2, r.RunID: 3} {
		run := f.rows(t, id).Run
		if want := root; run.Depth != depth || (depth > 0) != (run.RootID == want) {
			t.Errorf("run at depth %d: got depth %d below %q", depth, run.Depth, run.RootID)
		}
		if differences, err := Verify(t.Context(), f.pool, f.clock.now, id); err != nil || len(differences) > 0 {
			t.Errorf("verify: %v %v", differences, err)
		}
	}
	page, err := f.Events(t.Context(), home, child, pg.Page{Limit: 10}, read.WithPayloads)
	if err != nil || len(page.Events) != 3 || string(page.Events[2].Payload) != fmt.Sprintf(`{"runId":%q}`, left) {
		t.Errorf("got the log %+v, %v; want the ID of the run that was started", page.Events, err)
	}
}

// TestStartTooDeepFailsItsStep with a code, and starts nothing.
func TestStartTooDeepFailsItsStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limitTrees(t, admin.Limits{MaxDepth: ptr(int64(1))})
	root := f.root(t)
	child := f.wantStart(t, root, starts("a", true), "")
	f.wantStart(t, child, starts("b", true), "too_deep")
	f.wantStart(t, child, starts("c", false), "too_deep")
	if n := f.openBelow(t, root); n != 1 {
		t.Errorf("%d runs are below the root, want 1", n)
	}
	r := NewRun(day, nil, entities.EventData{DeploymentID: "d", WorkflowName: "w", ParentID: child})
	_, _, err := f.Start(t.Context(), home, r)
	if !errors.Is(err, admin.ErrTooDeep) || !strings.Contains(err.Error(), string(root)) ||
		!strings.Contains(err.Error(), "limits.maxDepth") {
		t.Errorf("got %v, want a refusal that names the root and the setting", err)
	}
	page, err := f.Events(t.Context(), home, child, pg.Page{Limit: 10}, read.WithPayloads)
	want := fmt.Sprintf(`"details":{"limit":1,"root":%q,"used":1}`, root)
	if err != nil || len(page.Events) != 5 || !strings.Contains(string(page.Events[2].Payload), want) ||
		page.Events[1].Data.Step != nil {
		t.Errorf("got the log %+v, %v; want steps without a child that fail with %s", page.Events, err, want)
	}
}

// TestDefaultDepth: without a setting, 32 runs may lead to a run.
func TestDefaultDepth(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.root(t)
	for range admin.DefaultMaxDepth {
		id = f.wantStart(t, id, starts("a", false), "")
	}
	f.wantStart(t, id, starts("a", false), "too_deep")
}

// TestRacingStartsDoNotExceedTheTree: many runs of one tree start others at once, several by one answer (I4).
func TestRacingStartsDoNotExceedTheTree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limitTrees(t, admin.Limits{MaxDescendants: ptr(int64(30))})
	root := f.root(t)
	var parents []entities.RunID
	for i := range 10 {
		parents = append(parents, f.wantStart(t, root, starts(fmt.Sprint("s", i), false), ""))
	}
	var wg sync.WaitGroup
	var failed sync.Map
	for _, p := range parents {
		for i := range 4 {
			wg.Go(func() {
				requests := []Request{starts(fmt.Sprint("a", i), true), starts(fmt.Sprint("b", i), false)}
				results, err := f.AppendAll(context.WithoutCancel(t.Context()), home, p, requests, AppendOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range results {
					if r.Step.Status == entities.StepFailed {
						failed.Store(r.Event, r.Event.Data.ErrorCode)
					}
				}
			})
		}
	}
	wg.Wait()
	refused := 0
	failed.Range(func(_, code any) bool {
		refused++
		return code == "too_many_descendants"
	})
	if n := f.openBelow(t, root); n != 30 || refused != 60 {
		t.Errorf("%d runs are open and %d were refused, want 30 and 60", n, refused)
	}
	// What has ended makes room, which a process sees when it counts again.
	if _, err := f.Append(t.Context(), home, onRun(parents[9], entities.EventRunCancelled)); err != nil {
		t.Fatal(err)
	}
	f.clock.move(treeTTL)
	f.wantStart(t, parents[0], starts("later", false), "")
	f.wantStart(t, parents[0], starts("toomany", false), "too_many_descendants")
}

// withKey gives the run that a request starts a unique key.
func withKey(r Request, key string) Request {
	r.Child.Data.UniqueKey = key
	return r
}

// endsOf returns the output of each step of a run that has ended, or the code of its failure.
func (f *fixture) endsOf(t *testing.T, of entities.RunID) map[string]string {
	t.Helper()
	page, err := f.Events(t.Context(), home, of, pg.Page{Limit: 100}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]string{}
	for _, e := range page.Events {
		switch e.Type {
		case entities.EventStepCompleted:
			ends[e.CorrelationID] = string(e.Payload)
		case entities.EventStepFailed:
			ends[e.CorrelationID] = e.Data.ErrorCode
		default:
		}
	}
	return ends
}

// TestKeysOfStartedRuns: one live run of a workflow has each. A start for which nobody waits has that run as its output,
// and a child fails. When the run has ended, the key is free.
func TestKeysOfStartedRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	root, other := f.root(t), f.root(t)
	first, free := withKey(starts("first", false), "k"), withKey(starts("free", true), "l")
	begin := func(of entities.RunID, requests ...Request) {
		t.Helper()
		if _, err := f.AppendAll(t.Context(), home, of, requests, AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	begin(root, first, withKey(starts("again", false), "k"), withKey(starts("child", true), "k"), free)
	begin(other, withKey(starts("join", false), "k"), withKey(starts("joinChild", false), "l"), withKey(starts("child", true), "l"))
	holds := func(r Request) string { return string(StartedRun(r.Child.RunID)) }
	for of, want := range map[entities.RunID]map[string]string{
		root:  {"first": holds(first), "again": holds(first), "child": "key_taken"},
		other: {"join": holds(first), "joinChild": holds(free), "child": "key_taken"},
	} {
		if diff := cmp.Diff(want, f.endsOf(t, of)); diff != "" {
			t.Errorf("ends of the steps (-want +got):\n%s", diff)
		}
		if differences, err := Verify(t.Context(), f.pool, f.clock.now, of); err != nil || len(differences) > 0 {
			t.Errorf("verify: %v %v", differences, err)
		}
	}
	if n := f.openBelow(t, root) + f.openBelow(t, other); n != 2 {
		t.Errorf("%d runs were started, want 2", n)
	}
	if _, err := f.Append(t.Context(), home, onRun(first.Child.RunID, entities.EventRunCancelled)); err != nil {
		t.Fatal(err)
	}
	f.wantStart(t, other, withKey(starts("later", true), "k"), "")
}

// TestRacersForAKeyStartOneRun: all others learn which has it.
func TestRacersForAKeyStartOneRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	logs := []*Log{f.Log, f.with(noQueue{})}
	const racers = 16
	parents := make([]entities.RunID, racers)
	for i := range parents {
		parents[i] = f.root(t)
	}
	var wg sync.WaitGroup
	for i, p := range parents {
		wg.Go(func() {
			request := withKey(starts("s", i%4 == 0), "k")
			if _, err := logs[i%2].AppendAll(t.Context(), home, p, []Request{request}, AppendOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var holder entities.RunID
	if err := f.pool.QueryRow(t.Context(), `SELECT id FROM runs WHERE unique_key = 'k'`).Scan(&holder); err != nil {
		t.Fatal(err)
	}
	waiting := 0
	for i, p := range parents {
		switch end := f.endsOf(t, p)["s"]; {
		case i%4 > 0 && end != string(StartedRun(holder)), i%4 == 0 && end != "" && end != "key_taken":
			t.Errorf("racer %d: got %q, and %s has the key", i, end, holder)
		case end == "":
			waiting++
		}
	}
	if waiting > 1 {
		t.Errorf("%d parents wait for a child with the key", waiting)
	}
}

// TestLostKeyIsDecidedAgain: another run takes the key after a start has found it free, and before it has its row.
func TestLostKeyIsDecidedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	root := f.root(t)
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	holder := entities.NewRunID(day)
	if _, err := tx.Exec(t.Context(), `
		INSERT INTO runs SELECT (jsonb_populate_record(r, jsonb_build_object('id', $2::text, 'unique_key', 'k'))).*
		FROM runs r WHERE id = $1`, root, holder); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := f.AppendAll(t.Context(), home, root, []Request{withKey(starts("s", false), "k")}, AppendOptions{})
		failed <- err
	}()
	eventually(t, "the start waits for the other run", func() (waits bool) {
		if err := f.pool.QueryRow(t.Context(), `
			SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`,
		).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if end := f.endsOf(t, root)["s"]; end != string(StartedRun(holder)) {
		t.Errorf("got %s, want the run %s that has the key", end, holder)
	}
}

// TestCancelledRootClosesItsTree, on all servers at once and at any depth, also for runs that go on.
func TestCancelledRootClosesItsTree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.with(noQueue{})
	root := f.root(t)
	child := f.wantStart(t, root, starts("a", true), "")
	left := f.wantStart(t, child, starts("b", false), "")
	if _, code := f.start(t, other, left, starts("before", false)); code != "" {
		t.Fatalf("before the cancellation: got %q", code)
	}
	if _, err := f.Append(t.Context(), home, onRun(root, entities.EventRunCancelled)); err != nil {
		t.Fatal(err)
	}
	f.wantStart(t, left, starts("c", false), "root_cancelled")
	if _, code := f.start(t, other, left, starts("d", true)); code != "root_cancelled" {
		t.Errorf("another server: got %q", code)
	}
	r := NewRun(day, nil, entities.EventData{DeploymentID: "d", WorkflowName: "w", ParentID: left})
	if _, _, err := f.Start(t.Context(), home, r); !errors.Is(err, admin.ErrRootCancelled) {
		t.Errorf("a client's start: got %v", err)
	}
	r = NewRun(day, nil, entities.EventData{DeploymentID: "d", WorkflowName: "w", RootID: root, Depth: 2})
	if _, _, err := f.Start(t.Context(), home, r); !errors.Is(err, admin.ErrRootCancelled) {
		t.Errorf("a trigger's start: got %v", err)
	}
	f.root(t)
}

// TestStartsOfRunsCountAgainstTheQuota, whichever way: a start that fails gives its place back.
func TestStartsOfRunsCountAgainstTheQuota(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limitTrees(t, admin.Limits{DailyStarts: ptr(int64(4))})
	root := f.root(t)
	if _, err := f.pool.Exec(t.Context(),
		`ALTER TABLE runs ADD CONSTRAINT broken CHECK (depth = 0) NOT VALID`); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := f.AppendAll(t.Context(), home, root, []Request{starts("a", true)}, AppendOptions{}); err == nil {
			t.Fatal("got no error")
		}
	}
	if _, err := f.pool.Exec(t.Context(), `ALTER TABLE runs DROP CONSTRAINT broken`); err != nil {
		t.Fatal(err)
	}
	child := f.wantStart(t, root, starts("a", true), "")
	left := f.wantStart(t, root, starts("b", false), "")
	repeated := starts("b", false)
	repeated.Once = true
	if r, err := f.AppendAll(t.Context(), home, root, []Request{repeated}, AppendOptions{}); err != nil || !r[0].Repeated {
		t.Fatalf("repeated: got %+v, %v", r, err)
	}
	f.wantStart(t, left, starts("c", true), "")
	f.wantStart(t, child, starts("d", true), "start_quota")
	f.wantStart(t, child, starts("e", false), "start_quota")
	r := NewRun(day, nil, entities.EventData{DeploymentID: "d", WorkflowName: "w", ParentID: child})
	if _, _, err := f.Start(t.Context(), home, r); !errors.Is(err, admin.ErrStartQuota) {
		t.Errorf("a client's start: got %v", err)
	}
	f.clock.move(24 * time.Hour)
	f.wantStart(t, child, starts("tomorrow", true), "")
}
