package engine

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/contract"
	"github.com/stepwell-dev/stepwell/queue/why"
)

func (r *replica) explain(t testing.TB, id entities.RunID) why.Explanation {
	t.Helper()
	e, err := why.Of(t.Context(), r.pool, project, id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// reason waits until the run has a reason of the kind, and returns it.
func (r *replica) reason(t testing.TB, id entities.RunID, kind why.Kind) why.Reason {
	t.Helper()
	_, found := r.explainAs(t, id, kind)
	return found
}

// explainAs waits until the run has a reason of the kind, and returns that and the explanation.
func (r *replica) explainAs(t testing.TB, id entities.RunID, kind why.Kind) (last why.Explanation, found why.Reason) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last explanation: %+v", last)
		}
	})
	eventually(t, "the run has the reason "+string(kind), func() bool {
		last = r.explain(t, id)
		i := slices.IndexFunc(last.Reasons, func(r why.Reason) bool { return r.Kind == kind })
		if i >= 0 {
			found = last.Reasons[i]
		}
		return i >= 0
	})
	return last, found
}

// whyScene brings about a reason.
type whyScene struct {
	// answer serves the function, until remedy has ended.
	answer func(*functionCall)
	start  func(*eventlog.Request)
	// arrange does something to the run before the question.
	arrange func(t *testing.T, d *server, id entities.RunID)
	kind    why.Kind
	verdict why.Verdict
	check   func(why.Reason) bool
	// remedy does what the reason names. The function then completes the run.
	remedy func(t *testing.T, d *server, id entities.RunID, r why.Reason, url string)
}

// remedied fails the test unless the reason names the remedy.
func remedied(t *testing.T, r why.Reason, remedy why.Remedy) {
	t.Helper()
	if !slices.Contains(r.Remedies, remedy) {
		t.Errorf("got remedies %v, want %s among them", r.Remedies, remedy)
	}
}

func retries(t *testing.T, d *server, _ entities.RunID, r why.Reason, _ string) {
	t.Helper()
	remedied(t, r, why.RetryMessage)
	if _, err := d.Retry(t.Context(), project, r.MessageID); err != nil {
		t.Fatal(err)
	}
}

func registers(t *testing.T, d *server, _ entities.RunID, r why.Reason, url string) {
	t.Helper()
	remedied(t, r, why.PutDeployment)
	d.register(t, r.DeploymentID, url)
}

func resumes(t *testing.T, d *server, id entities.RunID, r why.Reason, _ string) {
	t.Helper()
	d.happens(t, id, eventlog.Request{Type: entities.EventHookReceived, CorrelationID: string(r.HookID), Payload: []byte(`1`)})
}

func waits(*testing.T, *server, entities.RunID, why.Reason, string) {}

func (d *server) happens(t *testing.T, id entities.RunID, r eventlog.Request) {
	t.Helper()
	r.RunID, r.SpecVersion = id, entities.SpecDriven
	if _, err := d.log.Append(t.Context(), project, r); err != nil {
		t.Fatal(err)
	}
}

func commands(list ...object) func(*functionCall) {
	return func(c *functionCall) {
		if c.Type == contract.TypeWorkflow {
			c.reply(list...)
		}
	}
}

func answersStatus(status int, body string) func(*functionCall) {
	return func(c *functionCall) { c.replyAs(status, body) }
}

// hangs answers only when the test ends.
func hangs(c *functionCall) { <-c.r.Context().Done() }

func whyScenes() map[string]whyScene {
	runStep := object{"type": "runStep", "id": "x", "name": "charge", "retry": object{"maxAttempts": 5, "backoff": "2s"}}
	inStep := func(do func(*functionCall)) func(*functionCall) {
		return func(c *functionCall) {
			if c.Type == contract.TypeStep {
				do(c)
				return
			}
			c.reply(runStep)
		}
	}
	parks := func(t *testing.T, d *server, id entities.RunID) {
		d.reason(t, id, why.FunctionFails)
		d.exec(t, `UPDATE messages SET parked_at = now() WHERE run_id = $1 AND lease = ''`, id)
	}
	return map[string]whyScene{
		"fails": {
			answer: answersStatus(500, "oops"), kind: why.FunctionFails, verdict: why.VerdictRetrying, remedy: retries,
			check: func(r why.Reason) bool {
				return strings.Contains(r.Error.Message, "oops") && r.At != nil && r.Since != nil
			},
		},
		"parked": {
			answer: answersStatus(500, "oops"), arrange: parks, kind: why.Parked, verdict: why.VerdictBlocked, remedy: retries,
			check: func(r why.Reason) bool {
				return strings.Contains(r.Error.Message, "oops") && r.At == nil && r.Since != nil
			},
		},
		"diverged": {
			answer: answersStatus(500, `{"error":{"code":"diverged","message":"order.go:41"}}`), kind: why.Diverged,
			verdict: why.VerdictBlocked, remedy: registers,
			check: func(r why.Reason) bool { return r.Error.Code == "diverged" && r.Error.Message == "order.go:41" },
		},
		"panics": {
			answer: answersStatus(500, `{"error":{"code":"panic","message":"nil map"}}`), kind: why.Held,
			verdict: why.VerdictBlocked, remedy: registers, check: func(r why.Reason) bool { return r.Error.Code == "panic" },
		},
		"answer that is refused": {
			answer: commands(object{"type": "dance"}), kind: why.AnswerRefused, verdict: why.VerdictBlocked, remedy: retries,
			check: func(r why.Reason) bool { return strings.Contains(r.Error.Message, `unknown command type "dance"`) },
		},
		"answer that the log refuses": {
			answer: commands(object{"type": "closeHook", "id": "none"}), kind: why.AnswerRefused, verdict: why.VerdictBlocked,
			remedy: retries, check: func(r why.Reason) bool { return strings.Contains(r.Error.Message, "hook none not found") },
		},
		"answer that waits for nothing": {
			answer: commands(object{"type": "setAttributes", "attributes": object{"a": "b"}}), kind: why.AnswerRefused,
			verdict: why.VerdictBlocked, remedy: retries,
			check: func(r why.Reason) bool { return strings.Contains(r.Error.Message, "wait for nothing") },
		},
		"unreachable": {
			start: func(r *eventlog.Request) { r.Data.DeploymentID = "away" },
			kind:  why.Unreachable, verdict: why.VerdictRetrying, remedy: registers,
			check: func(r why.Reason) bool { return strings.Contains(r.Error.Message, "refused") && r.Failures > 0 },
		},
		"deployment missing": {
			start: func(r *eventlog.Request) { r.Data.DeploymentID = "unknown" }, kind: why.DeploymentMissing,
			verdict: why.VerdictBlocked, remedy: registers, check: func(r why.Reason) bool { return r.DeploymentID == "unknown" },
		},
		"starts later": {
			start: func(r *eventlog.Request) {
				r.Data.StartAt = new(time.Time)
				*r.Data.StartAt = time.Now().Add(time.Second)
			},
			kind: why.StartDelay, verdict: why.VerdictScheduled, remedy: waits,
			check: func(r why.Reason) bool { return r.At != nil },
		},
		"called": {
			answer: hangs, kind: why.Called, verdict: why.VerdictWorking,
			check: func(r why.Reason) bool {
				return strings.HasPrefix(r.Server, "proc_") && r.Host != "" && time.Since(*r.Since) < time.Minute && r.Until != nil
			},
			remedy: func(t *testing.T, d *server, id entities.RunID, _ why.Reason, _ string) { cancelRun(t, d, id) },
		},
		"step runs": {
			answer: inStep(hangs), kind: why.StepRunning, verdict: why.VerdictWorking,
			check: func(r why.Reason) bool {
				return r.Attempt == 1 && r.MaxAttempts == 5 && r.Name == "charge" && r.Server != ""
			},
			remedy: func(t *testing.T, d *server, id entities.RunID, _ why.Reason, _ string) { cancelRun(t, d, id) },
		},
		"step is tried again": {
			answer: inStep(answersStatus(503, `{"error":{"code":"busy","message":"the bank is busy"}}`)),
			kind:   why.StepBackoff, verdict: why.VerdictRetrying, remedy: waits,
			check: func(r why.Reason) bool {
				return r.Attempt == 2 && r.Error.Code == "busy" && r.Error.Message == "the bank is busy" && r.At != nil
			},
		},
		"step cannot be called": {
			answer: commands(object{"type": "runStep", "id": "x", "deployment": "unknown"}), kind: why.DeploymentMissing,
			verdict: why.VerdictBlocked, remedy: registers,
			check: func(r why.Reason) bool { return r.StepID == "x" && r.DeploymentID == "unknown" },
		},
		"sleeps": {
			answer: commands(object{"type": "wait", "id": "nap", "for": "1s"}), kind: why.Wait, verdict: why.VerdictWaiting,
			remedy: waits, check: func(r why.Reason) bool { return r.WaitID == "nap" && r.At != nil },
		},
		"awaits one of two sleeps": {
			answer: func(c *functionCall) {
				c.replyAs(200, `{"commands":[{"type":"wait","id":"long","for":"1h"},{"type":"wait","id":"nap","for":"1s"}],
					"await":{"any":["wait:nap"]}}`)
			},
			kind: why.Wait, verdict: why.VerdictWaiting, remedy: waits, check: func(r why.Reason) bool { return r.WaitID == "nap" },
		},
		"hook": {
			answer: commands(object{"type": "openHook", "id": "approval"}), kind: why.Hook, verdict: why.VerdictWaiting,
			remedy: resumes, check: func(r why.Reason) bool { return r.HookID == "approval" && r.Since != nil },
		},
		"webhook": {
			answer: commands(object{"type": "openHook", "id": "w", "webhook": object{}}), kind: why.Webhook,
			verdict: why.VerdictWaiting, remedy: resumes, check: func(r why.Reason) bool { return r.HookID == "w" },
		},
		"inbox": {
			answer: commands(object{"type": "openHook", "id": "inbox:notes"}), kind: why.Inbox, verdict: why.VerdictWaiting,
			remedy: resumes, check: func(r why.Reason) bool { return r.Name == "notes" },
		},
		"signal": {
			answer: commands(object{"type": "openHook", "id": "s", "signal": object{"name": "paid", "condition": "true"}}),
			kind:   why.Signal, verdict: why.VerdictWaiting,
			check: func(r why.Reason) bool { return r.Name == "paid" && r.Condition == "true" },
			remedy: func(t *testing.T, d *server, _ entities.RunID, r why.Reason, _ string) {
				remedied(t, r, why.PostSignal)
				d.postSignal(t, time.Hour, newSignal(`1`, named(r.Name)))
			},
		},
		"child": {
			answer: func(c *functionCall) {
				if c.Run.Workflow == "kid" {
					c.reply(object{"type": "openHook", "id": "pickup"})
					return
				}
				c.reply(object{"type": "startChild", "id": "k", "workflow": "kid"})
			},
			kind: why.Child, verdict: why.VerdictWaiting,
			check: func(r why.Reason) bool { return r.StepID == "k" && !r.ChildStatus.Ended() && r.ChildID != "" },
			remedy: func(t *testing.T, d *server, _ entities.RunID, r why.Reason, url string) {
				remedied(t, r, why.ExplainRun)
				resumes(t, d, r.ChildID, d.reason(t, r.ChildID, why.Hook), url)
			},
		},
		"cancelling": {
			answer: commands(object{"type": "openHook", "id": "h"}),
			arrange: func(t *testing.T, d *server, id entities.RunID) {
				d.reason(t, id, why.Hook)
				d.happens(t, id, eventlog.Request{Type: entities.EventCancelRequested, Grace: time.Hour})
				d.exec(t, `DELETE FROM messages WHERE work = 'run'`)
			},
			kind: why.Cancelling, verdict: why.VerdictWorking,
			check: func(r why.Reason) bool { return r.Until != nil && r.Since != nil },
			remedy: func(t *testing.T, d *server, id entities.RunID, r why.Reason, _ string) {
				remedied(t, r, why.CancelRun)
				cancelRun(t, d, id)
			},
		},
		"stranded": {
			answer: commands(runStep),
			start: func(r *eventlog.Request) {
				r.Data.StartAt = new(time.Time)
				*r.Data.StartAt = time.Now().Add(time.Hour)
			},
			arrange: func(t *testing.T, d *server, id entities.RunID) {
				d.reason(t, id, why.StartDelay)
				d.exec(t, `DELETE FROM messages`)
				if got := d.reason(t, id, why.Unscheduled); got.Until == nil {
					t.Errorf("got %+v", got)
				}
				d.exec(t, `UPDATE runs SET updated_at = now() - interval '1 minute'`)
			},
			kind: why.Stranded, verdict: why.VerdictStranded,
			check: func(r why.Reason) bool { return strings.Contains(r.Detail, "no message starts it") && r.At != nil },
			remedy: func(t *testing.T, d *server, _ entities.RunID, _ why.Reason, _ string) {
				if woken := d.sweep(t); len(woken) != 1 {
					t.Errorf("the sweeper woke %+v", woken)
				}
			},
		},
	}
}

// TestRemediesEndReasons brings about each reason, asks why, does what the remedy names, and watches the reason go.
func TestRemediesEndReasons(t *testing.T) {
	t.Parallel()
	seen := map[why.Kind]bool{
		// Those that last as long as a server has no place, and those of the Workflow SDK, are scenes of their own.
		why.Queued: true, why.StepQueued: true, why.Client: true, why.TaskFails: true, why.Unscheduled: true,
	}
	for name, tt := range whyScenes() {
		seen[tt.kind] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.play(t)
		})
	}
	for _, kind := range why.Kinds() {
		if !seen[kind] {
			t.Errorf("no scene for the reason %s", kind)
		}
	}
}

func (tt whyScene) play(t *testing.T) {
	var over atomic.Bool
	f := serve(t, func(c *functionCall) {
		switch {
		case over.Load() && c.Type == contract.TypeWorkflow:
			c.reply(object{"type": "complete"})
		case over.Load():
			c.replyAs(http.StatusOK, `null`)
		case tt.answer != nil:
			tt.answer(c)
		}
	})
	d := startServer(t, f)
	d.register(t, "away", "http://127.0.0.1:1")
	change := []func(*eventlog.Request){}
	if tt.start != nil {
		change = append(change, tt.start)
	}
	id := d.startRun(t, `null`, change...)
	if tt.arrange != nil {
		tt.arrange(t, d, id)
	}
	e, r := d.explainAs(t, id, tt.kind)
	if e.Verdict != tt.verdict {
		t.Errorf("got verdict %s, want %s; reasons %+v", e.Verdict, tt.verdict, e.Reasons)
	}
	if !tt.check(r) {
		t.Errorf("got reason %+v", r)
	}
	over.Store(true)
	tt.remedy(t, d, id, r, f.URL)
	eventually(t, "the run has ended", func() bool { return d.explain(t, id).Verdict == why.VerdictEnded })
}

// TestStepsAwaitTheirPause: a message of a step that is tried again can be retried by hand, but the attempt still waits
// for its time. So this is no remedy.
func TestStepsAwaitTheirPause(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) {
		if c.Type == contract.TypeStep {
			c.replyAs(http.StatusServiceUnavailable, "")
			return
		}
		c.reply(object{"type": "runStep", "id": "x", "retry": object{"backoff": "5m"}})
	}))
	id := d.startRun(t, `null`)
	r := d.reason(t, id, why.StepBackoff)
	if len(r.Remedies) > 0 {
		t.Errorf("got remedies %v", r.Remedies)
	}
	if _, err := d.Retry(t.Context(), project, r.MessageID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message was delivered again", func() bool {
		return d.count(t, `SELECT count(*) FROM messages WHERE work = 'step' AND lease = '' AND due_at > now() + interval '1 minute'`) == 1
	})
	if n := d.countEvents(t, id, "step_started x"); n != 1 {
		t.Errorf("got %d attempts, want 1", n)
	}
}

// TestQueuedWorkIsExplained on a server without workers.
func TestQueuedWorkIsExplained(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	d.register(t, deployment, "http://127.0.0.1:1")
	id := d.startRun(t, `null`)
	r := d.reason(t, id, why.Queued)
	if r.Backlog != 1 || r.Since == nil || r.DeploymentID != deployment {
		t.Errorf("got %+v", r)
	}
	work := d.claim(t, message.WorkRun, "")
	run, _, err := d.runs.recordStart(t.Context(), work)
	if err == nil {
		err = d.runs.answer(t.Context(), work, run, []byte(`{"commands":[{"type":"runStep","id":"x"}]}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := d.reason(t, id, why.StepQueued); r.StepID != "x" || r.Attempt != 1 || r.MaxAttempts != 5 {
		t.Errorf("got %+v", r)
	}
	if e := d.explain(t, id); e.Verdict != why.VerdictWorking || len(e.Reasons) != 1 {
		t.Errorf("got %+v", e)
	}
}

// TestExplanationsStayInTheirProject, and know only runs that exist.
func TestExplanationsStayInTheirProject(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	id := d.startRun(t, `null`)
	for _, of := range []struct {
		project entities.Project
		id      entities.RunID
	}{{"other", id}, {project, "wrun_none"}} {
		_, err := why.Of(t.Context(), d.pool, of.project, of.id)
		wantError(t, "explain", err, entities.ErrRunNotFound)
	}
}

// TestStrandedIsWhatTheSweeperFinds lets random things happen to runs, some of whose messages get lost, and asks why just
// before the sweeper comes.
func TestStrandedIsWhatTheSweeperFinds(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	var stranded, others atomic.Int32
	rapid.Check(t, func(rt *rapid.T) {
		d.exec(t, `DELETE FROM messages`)
		d.exec(t, `DELETE FROM runs`)
		id := d.startRun(t, `null`, func(r *eventlog.Request) {
			if rapid.Bool().Draw(rt, "deadline") {
				at := time.Now().Add(time.Hour)
				r.Data.Deadline = &at
			}
		})
		for i := range rapid.IntRange(0, 3).Draw(rt, "answers") {
			d.answerRandomly(t, rt, id, i)
		}
		d.loseRandomly(t, rt, id)
		d.exec(t, `UPDATE runs SET updated_at = now() - interval '1 minute' WHERE completed_at IS NULL`)
		d.exec(t, `UPDATE steps SET updated_at = now() - interval '1 minute', retry_after = retry_after - interval '1 minute'`)
		e := d.explain(t, id)
		found := d.sweep(t)
		isFound := slices.ContainsFunc(found, func(s cluster.Stranded) bool { return s.ID == id })
		if (e.Verdict == why.VerdictStranded) != isFound {
			rt.Fatalf("the sweeper found %+v, but the verdict is %s for %+v", found, e.Verdict, e.Reasons)
		}
		if isFound {
			stranded.Add(1)
			if now := d.explain(t, id); now.Verdict == why.VerdictStranded {
				rt.Fatalf("the sweeper woke the run, but it is still stranded: %+v", now.Reasons)
			}
		} else {
			others.Add(1)
		}
	})
	if stranded.Load() < 10 || others.Load() < 10 {
		t.Errorf("%d runs were stranded, %d others were not", stranded.Load(), others.Load())
	}
}

// answerRandomly answers the next invocation of a run, if there is one.
func (d *server) answerRandomly(t *testing.T, rt *rapid.T, id entities.RunID, n int) {
	t.Helper()
	if d.count(t, `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'run'`, id) == 0 {
		return
	}
	work := d.claim(t, message.WorkRun, "")
	run, _, err := d.runs.recordStart(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	list := rapid.SliceOfN(rapid.SampledFrom([]string{
		`{"type":"runStep","id":"s%d"}`, `{"type":"wait","id":"w%d","for":"1h"}`, `{"type":"openHook","id":"h%d"}`,
		`{"type":"startChild","id":"c%d","workflow":"kid"}`, `{"type":"recordStep","id":"r%d"}`,
		`{"type":"recordStep","id":"f%d","error":{"message":"m"},"retryAfter":"1h"}`,
	}), 1, 3).Draw(rt, "commands")
	slices.Sort(list)
	list = slices.Compact(list)
	for i := range list {
		list[i] = fmt.Sprintf(list[i], n)
	}
	err = d.runs.answer(t.Context(), work, run, []byte(`{"commands":[`+strings.Join(list, ",")+`]}`))
	if err != nil && !strings.Contains(err.Error(), "wait for nothing") && !strings.Contains(err.Error(), "deployment not found") {
		t.Fatal(err)
	}
}

// loseRandomly loses messages, or changes their state.
func (d *server) loseRandomly(t *testing.T, rt *rapid.T, id entities.RunID) {
	t.Helper()
	rows, err := d.pool.Query(t.Context(), `SELECT id FROM messages WHERE run_id = $1 ORDER BY id`, id)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if change := rapid.SampledFrom([]string{
			``, ``, `DELETE FROM messages WHERE id = $1`, `UPDATE messages SET lease = '', due_at = now() + interval '1 h' WHERE id = $1`,
			`UPDATE messages SET lease = '', parked_at = now() WHERE id = $1`, `UPDATE messages SET lease = '', last_error = 'x' WHERE id = $1`,
		}).Draw(rt, "change"); change != "" {
			d.exec(t, change, id)
		}
	}
}

// TestExplanationsOfLargeRunsReadIndexes: a run with 100,000 events and 10,000 open steps is explained from indexes, of
// which that of events is hardly read, also by plans that were made before there were many.
func TestExplanationsOfLargeRunsReadIndexes(t *testing.T) {
	t.Parallel()
	dsn := testdb.Indexed(t)
	t.Run("explain", func(t *testing.T) { // a subtest, so that its sessions end before the indexes are looked at
		d := serverOn(t, idleReplica(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 }).pool)
		id := d.startRun(t, `null`)
		if e := d.explain(t, id); e.Reasons[0].Kind != why.DeploymentMissing {
			t.Errorf("got %+v", e.Reasons)
		}
		fillLarge(t, d, id)
		d.register(t, deployment, "http://127.0.0.1:1")
		e := d.explain(t, id)
		if e.Open.Steps != largeOpen || len(e.Reasons) != why.MaxParts+1 || e.Reasons[0].Kind != why.StepQueued {
			t.Errorf("got %d open steps and %d reasons, the first is %+v", e.Open.Steps, len(e.Reasons), e.Reasons[0])
		}
		if e := d.explain(t, "wrun_1"); e.Verdict != why.VerdictStranded {
			t.Errorf("got %+v", e)
		}
	})
	if n := testdb.Read(t, dsn)["events_pkey"]; n > 1000 {
		t.Errorf("read %d entries of the index of events", n)
	}
}

// largeOpen is the number of open steps of a large run.
const largeOpen = 10_000

// fillLarge gives a run a log of 100,000 events and 10,000 open steps, besides 2,000 other runs.
func fillLarge(t *testing.T, d *server, id entities.RunID) {
	t.Helper()
	const events, others = 100_000, 2_000
	for _, sql := range []string{
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, driver, created_at, updated_at)
			SELECT 'wrun_' || n, 'default', 'dpl_test', 'order', 'running', 4, 1, 0, CASE n % 2 WHEN 0 THEN 'server' ELSE '' END, now(), now() - interval '1 minute'
			FROM generate_series(1, $2::integer) n WHERE $1::text <> '' AND $3::integer > 0`,
		`INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data)
			SELECT 'default', $1, seq, CASE WHEN seq % 2 = 0 THEN 'step_created' ELSE 'step_completed' END, 'step_' || seq / 2, 3, now(),
				'{"step": {"deploymentId": "dpl_test", "maxAttempts": 5}}'
			FROM generate_series(2, $3::integer) seq WHERE $2::integer > 0`,
		`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at, completed_at)
			SELECT $1, 'step_' || n, 's', CASE WHEN n <= 10000 THEN 'running' ELSE 'completed' END, 1, 3, 2 * n, now(), now(),
				CASE WHEN n <= 10000 THEN NULL ELSE now() END
			FROM generate_series(1, $3::integer / 2) n WHERE $2::integer > 0`,
		`INSERT INTO messages (id, project, topic, deployment_id, run_id, work, subject, content_type, body, expires_at, due_at)
			SELECT 'msg_' || n, 'default', 's', 'dpl_test', $1, 'step', 'step_' || n, '', '', now(), now() + interval '1 d'
			FROM generate_series(1, 10000) n WHERE $2::integer > 0 AND $3::integer > 0`,
		`INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, due_at)
			SELECT 'msg_of_' || n, 'default', 's', 'dpl_test', 'wrun_' || n, '', '', now(), now() + interval '1 d'
			FROM generate_series(1, $2::integer) n WHERE $1::text <> '' AND $3::integer > 0`,
	} {
		d.exec(t, sql, id, others, events)
	}
	d.exec(t, `UPDATE runs SET last_seq = $2, updated_at = now() - interval '1 minute' WHERE id = $1`, id, events)
}
