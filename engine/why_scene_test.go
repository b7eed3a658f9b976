package engine

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/hold"
	"github.com/stepwell-dev/stepwell/why"
)

// whyScene brings about a reason.
type whyScene struct {
	// answer serves the function, until remedy has ended.
	answer func(*functionCall)
	start  func(*eventlog.Request)
	// limit is the limit that the run needs; another run has begun with it before, and holds a slot.
	limit *limit.Spec
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
	d.retry(t, r)
}

// retry has the message of a reason delivered at once, unless that is happening by itself.
func (d *server) retry(t *testing.T, r why.Reason) {
	t.Helper()
	_, err := d.Retry(t.Context(), project, r.MessageID)
	if err != nil && !isAny(err, entities.ErrConflict, message.ErrMessageNotFound) {
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

// votes approves, as the API does for somebody.
func votes(t *testing.T, d *server, id entities.RunID, hook entities.HookID, by string) {
	t.Helper()
	d.happens(t, id, eventlog.Request{
		Type: entities.EventHookReceived, CorrelationID: string(hook), Payload: []byte(`{"decision":"approve","by":"` + by + `"}`),
		Data: entities.EventData{Verified: webhook.Vote},
	})
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
		d.Exec(t, `UPDATE messages SET parked_at = now() WHERE run_id = $1 AND lease = ''`, id)
	}
	return map[string]whyScene{
		"fails": {
			answer: answersStatus(500, "oops"), kind: why.FunctionFails, verdict: why.VerdictRetrying, remedy: retries,
			check: func(r why.Reason) bool {
				return strings.Contains(r.Error.Message, "oops") && r.At != nil && r.Since != nil
			},
		},
		"closes the connection": {
			answer: func(*functionCall) { panic(http.ErrAbortHandler) }, kind: why.ConnectionClosed,
			verdict: why.VerdictRetrying, remedy: retries,
			check: func(r why.Reason) bool {
				return strings.Contains(r.Error.Message, "the connection was closed before an answer") && r.Failures > 0
			},
		},
		"answers too much": {
			answer: func(c *functionCall) { c.replyAs(http.StatusOK, strings.Repeat(" ", contract.MaxAnswer+1)) }, kind: why.FunctionRefuses,
			verdict: why.VerdictBlocked, remedy: registers,
			check: func(r why.Reason) bool { return r.Error.Code == CodeAnswerTooLarge },
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
			answer: answersStatus(500, `{"error":{"code":"panic","message":"nil map"}}`), kind: why.FunctionRefuses,
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
		"project paused": {
			answer: answersStatus(500, "oops"), kind: why.ProjectPaused, verdict: why.VerdictBlocked,
			arrange: func(t *testing.T, d *server, id entities.RunID) {
				d.Exec(t, `INSERT INTO projects (name, paused_at) VALUES ($1, now())
					ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at`, project)
				testdb.Eventually(t, "the next call is put off", func() bool {
					return len(d.explain(t, id).Reasons) == 1 && d.Count(t,
						`SELECT count(*) FROM messages WHERE run_id = $1 AND last_error = $2`, id, message.ProjectPaused) == 1
				})
			},
			check: func(r why.Reason) bool { return r.Name == string(project) && r.Since != nil },
			remedy: func(t *testing.T, d *server, _ entities.RunID, r why.Reason, _ string) {
				remedied(t, r, why.PutProject)
				d.Exec(t, `UPDATE projects SET paused_at = NULL WHERE name = $1`, r.Name)
				if err := d.Resume(t.Context(), project); err != nil {
					t.Fatal(err)
				}
			},
		},
		"run paused": {
			answer: answersStatus(500, "oops"), kind: why.Paused, verdict: why.VerdictBlocked,
			arrange: func(t *testing.T, d *server, id entities.RunID) {
				if _, err := d.Pause(t.Context(), project, hold.Subject{Kind: hold.Run, Name: string(id)}, "oops"); err != nil {
					t.Fatal(err)
				}
			},
			check: func(r why.Reason) bool { return r.Pause != nil && r.Pause.Note == "oops" && r.Since != nil },
			remedy: func(t *testing.T, d *server, _ entities.RunID, r why.Reason, _ string) {
				remedied(t, r, why.RemovePause)
				if err := d.EndPause(t.Context(), project, r.Pause.Subject); err != nil {
					t.Fatal(err)
				}
			},
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
		"approval": {
			answer:  commands(object{"type": "openHook", "id": "refund", "approval": object{"title": "Refund?", "quorum": 2}}),
			kind:    why.Approval,
			verdict: why.VerdictWaiting,
			arrange: func(t *testing.T, d *server, id entities.RunID) {
				d.explainAs(t, id, why.Approval)
				votes(t, d, id, "refund", "ann")
				testdb.Eventually(t, "it waits again", func() bool { return d.explain(t, id).Verdict == why.VerdictWaiting })
			},
			check: func(r why.Reason) bool { return r.HookID == "refund" && r.Votes == 1 },
			remedy: func(t *testing.T, d *server, id entities.RunID, r why.Reason, _ string) {
				votes(t, d, id, r.HookID, "bob")
			},
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
				d.Exec(t, `DELETE FROM messages WHERE work = 'run'`)
			},
			kind: why.Cancelling, verdict: why.VerdictWorking,
			check: func(r why.Reason) bool { return r.Until != nil && r.Since != nil },
			remedy: func(t *testing.T, d *server, id entities.RunID, r why.Reason, _ string) {
				remedied(t, r, why.CancelRun)
				cancelRun(t, d, id)
			},
		},
		"limit is full": {
			answer: commands(object{"type": "openHook", "id": "h"}), limit: &limit.Spec{PerKey: 1},
			kind: why.LimitFull, verdict: why.VerdictWaiting, remedy: raises,
			check: func(r why.Reason) bool {
				return r.Limit == "stripe" && r.Key == "c7" && r.Held == 1 && r.Slots == 1 && r.Ahead == 0 && len(r.Holders) == 1
			},
		},
		"limit is paused": {
			answer: commands(object{"type": "openHook", "id": "h"}), limit: &limit.Spec{PerKey: 2, Paused: true},
			kind: why.LimitPaused, verdict: why.VerdictBlocked, remedy: raises,
			check: func(r why.Reason) bool { return r.Limit == "stripe" && r.Since != nil },
		},
		"rate": {
			answer: commands(object{"type": "openHook", "id": "h"}), limit: &limit.Spec{Rate: 1, Per: 5 * time.Second, Burst: 1},
			kind: why.Rate, verdict: why.VerdictWaiting, remedy: waits,
			check: func(r why.Reason) bool { return r.At != nil && r.Limit == "stripe" },
		},
		"stranded": {
			answer: commands(runStep),
			start: func(r *eventlog.Request) {
				r.Data.StartAt = new(time.Time)
				*r.Data.StartAt = time.Now().Add(time.Hour)
			},
			arrange: func(t *testing.T, d *server, id entities.RunID) {
				d.reason(t, id, why.StartDelay)
				d.Exec(t, `DELETE FROM messages`)
				if got := d.reason(t, id, why.Unscheduled); got.Until == nil {
					t.Errorf("got %+v", got)
				}
				d.Exec(t, `UPDATE runs SET updated_at = now() - interval '1 minute'`)
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

// holdLimit puts a limit, starts a run that begins with it and holds a slot, and returns what makes a run need it.
func (d *server) holdLimit(t *testing.T, spec limit.Spec) func(*eventlog.Request) {
	t.Helper()
	limits := func(r *eventlog.Request) { r.Data.Limits = []entities.LimitUse{{Name: "stripe", Key: "c7"}} }
	open := spec
	open.Paused = false
	d.putLimit(t, "stripe", open)
	d.reason(t, d.startRun(t, `null`, limits), why.Hook)
	d.putLimit(t, "stripe", spec)
	return limits
}

// raises gives the limit of the reason more slots, and resumes it.
func raises(t *testing.T, d *server, _ entities.RunID, r why.Reason, _ string) {
	t.Helper()
	remedied(t, r, why.PutLimit)
	d.putLimit(t, "stripe", limit.Spec{PerKey: 2})
}

// TestRemediesEndReasons brings about each reason, asks why, does what the remedy names, and watches the reason go.
func TestRemediesEndReasons(t *testing.T) {
	t.Parallel()
	seen := map[why.Kind]bool{
		// Those that last as long as a server has no slot, those of the Workflow SDK, those of two runs, and that of probes
		// are scenes of their own.
		why.Queued: true, why.StepQueued: true, why.Client: true, why.TaskFails: true, why.Unscheduled: true,
		why.LimitDeadlock: true, why.DeploymentFull: true, why.Unhealthy: true,
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
	if tt.limit != nil {
		change = append(change, d.holdLimit(t, *tt.limit))
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
	testdb.Eventually(t, "the run has ended", func() bool { return d.explain(t, id).Verdict == why.VerdictEnded })
}
