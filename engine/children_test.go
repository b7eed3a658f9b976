package engine

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

func TestChildrenEndWithTheirParentUnlessLeft(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) {
		if c.Run.Workflow == "order" {
			c.reply(
				object{"type": "startChild", "id": "a", "workflow": "child", "attributes": object{"name": "a"}},
				object{"type": "startChild", "id": "b", "workflow": "child", "onParentEnd": "leave", "attributes": object{"name": "b"}},
			)
			return
		}
		c.reply(object{"type": "openHook", "id": "h"})
	}))
	id := d.startRun(t, `null`)
	child := func(name string) entities.Run {
		list, _, err := store.ListRuns(t.Context(), d.pool, project,
			store.RunFilter{WorkflowName: "child", Attributes: map[string]string{"name": name}}, pg.Page{Limit: 10})
		if err != nil || len(list) > 1 {
			t.Fatalf("children %s: got %v and error %v", name, list, err)
		}
		if len(list) == 0 {
			return entities.Run{}
		}
		return list[0]
	}
	testdb.Eventually(t, "both children run", func() bool {
		return child("a").Status == entities.RunRunning && child("b").Status == entities.RunRunning
	})
	cancelRun(t, d, id)
	if status, _ := d.waitForEnd(t, child("a").ID); status != entities.RunCancelled {
		t.Errorf("the child is %s, want cancelled", status)
	}
	d.waitForEmptyQueue(t)
	if got := child("b").Status; got != entities.RunRunning {
		t.Errorf("the child with onParentEnd leave is %s, want running", got)
	}
	if a := child("a"); a.ParentID != id || a.ParentStep != "a" {
		t.Errorf("the child's parent is %s %s", a.ParentID, a.ParentStep)
	}
}

// TestResultsOfChildren checks the results that a parent gets for a failed and for a cancelled child.
func TestResultsOfChildren(t *testing.T) {
	t.Parallel()
	workflow := func(c *functionCall) {
		if c.has("step_failed", "bad") && c.has("step_failed", "gone") {
			c.reply(object{"type": "complete", "output": []any{c.log["step_failed bad"], c.log["step_failed gone"]}})
			return
		}
		c.reply(
			object{"type": "startChild", "id": "bad", "workflow": "bad"},
			object{"type": "startChild", "id": "gone", "workflow": "gone"},
		)
	}
	gone := make(chan entities.RunID, 10)
	d := startServer(t, serve(t, func(c *functionCall) {
		switch c.Run.Workflow {
		case "bad":
			c.reply(object{"type": "fail", "error": object{"message": "spoilt", "code": "E1", "details": object{"n": 1}}})
		case "gone":
			gone <- c.Run.ID
			c.reply(object{"type": "openHook", "id": "h"})
		default:
			workflow(c)
		}
	}))
	id := d.startRun(t, `null`)
	child := testdb.Receive(t, "the child", gone)
	d.waitForEvent(t, child, "hook_created h")
	cancelRun(t, d, child)
	d.wantEnd(t, id, entities.RunCompleted, fmt.Sprintf(
		`[{"message":"spoilt","code":"E1","details":{"n":1}},{"message":"run %s was cancelled","code":"child_cancelled"}]`, child))
}

// TestSweeperRestoresMissingWork: the server never loses work, but an operator may delete its message.
func TestSweeperRestoresMissingWork(t *testing.T) {
	t.Parallel()
	const (
		step = iota
		wait
		child
		start
	)
	for name, lost := range map[string]int{"step": step, "wait": wait, "report of a child": child, "start": start} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			workflow := []func(*functionCall){
				step:  completeWith("step_completed", "x", object{"type": "runStep", "id": "x"}),
				wait:  completeWith("wait_completed", "x", object{"type": "wait", "id": "x", "for": "1s"}),
				child: completeWith("step_completed", "x", object{"type": "startChild", "id": "x", "workflow": "child"}),
				start: func(c *functionCall) { c.reply(object{"type": "complete"}) },
			}[lost]
			f := serve(t, func(c *functionCall) {
				switch {
				case c.Type == contract.TypeStep:
				case c.Run.Workflow == "child":
					c.reply(object{"type": "complete"})
				default:
					workflow(c)
				}
			})
			d := newServer(t, testdb.New(t))
			d.register(t, deployment, f.URL)
			if lost != start {
				// This worker stops before the work of the step or the child ends.
				away := d.newWorker(t, d.works)
				startWorker(t, away)
				id := d.startRun(t, `null`)
				d.waitForEvent(t, id, map[int]string{step: "step_created x", wait: "wait_created x", child: "step_created x"}[lost])
				stopWorker(t, away)
			} else {
				d.startRun(t, `null`)
			}
			d.deleteWork(t)
			w := d.newWorker(t, d.works)
			sweeper := cluster.NewSweeper(d.pool, d.Queue, slog.New(slog.DiscardHandler))
			sweeper.Quiet, sweeper.Interval = 0, time.Second
			startWorker(t, w)
			testdb.Eventually(t, "all runs have ended", func() bool {
				if _, err := sweeper.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				list, _, err := store.ListRuns(t.Context(), d.pool, project, store.RunFilter{}, pg.Page{Limit: 10})
				if err != nil {
					t.Fatal(err)
				}
				return !slices.ContainsFunc(list, func(r entities.Run) bool { return !r.Status.Ended() })
			})
		})
	}
}

// TestDeletedChildCountsAsFailed: retention may delete a child before its end was reported to the parent.
func TestDeletedChildCountsAsFailed(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	d.register(t, deployment, serve(t, completeWith("step_failed", "x", object{"type": "startChild", "id": "x", "workflow": "w"})).URL)
	id, child := d.startRun(t, `null`), entities.NewRunID(time.Now())
	if _, err := d.log.AppendAll(t.Context(), project, id, []eventlog.Request{{
		Type: entities.EventStepCreated, CorrelationID: "x", Data: entities.EventData{
			StepName: "w", Step: &entities.StepSpec{ChildID: child},
		},
		Messages: []message.Message{{
			Project: project, DeploymentID: deployment, RunID: id, Topic: "w", Work: message.WorkReport, Subject: "x",
		}},
	}}, eventlog.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	d.worker(t, d.works)
	d.wantEnd(t, id, entities.RunCompleted, fmt.Sprintf(`{"message":"run %s was deleted","code":"child_failed"}`, child))
}

// TestSweeperRestoresAnyPieceOfWork, and nothing else, whatever other work the run still has.
func TestSweeperRestoresAnyPieceOfWork(t *testing.T) {
	t.Parallel()
	for work, reason := range map[message.Work]string{
		"":                   "",
		message.WorkRun:      "wait nap is over",
		message.WorkStep:     "step x is pending",
		message.WorkDeadline: "deadline",
		message.WorkCancel:   "after its grace",
	} {
		t.Run(string(work), func(t *testing.T) {
			t.Parallel()
			d := newServer(t, testdb.New(t))
			at := time.Now().Add(time.Hour)
			id := d.startRun(t, `null`, func(r *eventlog.Request) { r.Data.Deadline = &at })
			if _, err := d.log.AppendAll(t.Context(), project, id, []eventlog.Request{
				{Type: entities.EventRunStarted},
				{Type: entities.EventWaitCreated, CorrelationID: "nap", Data: entities.EventData{ResumeAt: &at}},
				{Type: entities.EventStepCreated, CorrelationID: "x", Data: entities.EventData{
					StepName: "x", Step: &entities.StepSpec{DeploymentID: deployment, MaxAttempts: 1},
				}},
				{Type: entities.EventCancelRequested, Grace: time.Hour},
			}, eventlog.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			const all = `SELECT array_agg(work || ' ' || subject || ' ' || (due_at > now() + interval '59 min') ORDER BY work) FROM messages`
			var before, after []string
			d.Scan(t, all, nil, &before)
			d.Exec(t, `DELETE FROM messages WHERE work = $1`, work)
			woken := d.sweep(t, func(s *cluster.Sweeper) { s.Quiet = 0 })
			switch {
			case work == "" && len(woken) > 0:
				t.Errorf("woke %+v although no work is missing", woken)
			case work != "" && (len(woken) != 1 || !strings.Contains(woken[0].Reason, reason)):
				t.Errorf("woke %+v, want the run, for %q", woken, reason)
			}
			if d.Scan(t, all, nil, &after); !slices.Equal(after, before) {
				t.Errorf("got work %q, want %q", after, before)
			}
			if again := d.sweep(t, func(s *cluster.Sweeper) { s.Quiet = 0 }); len(again) > 0 {
				t.Errorf("woke %+v once more", again)
			}
		})
	}
}

// deleteWork deletes all work.
func (d *server) deleteWork(t *testing.T) {
	t.Helper()
	if _, err := d.pool.Exec(t.Context(), `DELETE FROM messages WHERE work <> ''`); err != nil {
		t.Fatal(err)
	}
}
