package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/queue"
)

// replyAs answers the call of a step with a status, and with writes to the store.
func (c *functionCall) replyAs(status int, body string) {
	c.w.Header().Set("Content-Type", contract.StepAnswerType+"; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = c.w.Write([]byte(body))
}

// wantStore fails the test unless the run's store has the values.
func (d *server) wantStore(t *testing.T, id entities.RunID, want map[string]string) {
	t.Helper()
	values, err := store.Values(t.Context(), d.pool, id, kv.MaxStore)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range values {
		got[v.Key] = v.Value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("store (-want +got):\n%s\nthe log is\n%s", diff, d.describe(t, id))
	}
}

// text returns the store of a call as JSON.
func text(t *testing.T, store map[string]json.RawMessage) string {
	t.Helper()
	data, err := json.Marshal(store)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

// TestStoreIsWrittenByWorkflowsAndSteps, and calls have it. The workflow answers with all its commands each time; those
// with an ID that was used write nothing, even if their values are others.
func TestStoreIsWrittenByWorkflowsAndSteps(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	seen := make(chan string, 10)
	d := startServer(t, serve(t, func(c *functionCall) {
		seen <- c.Type + " " + text(t, c.Run.Store)
		if c.Type == contract.TypeStep {
			c.replyAs(http.StatusOK, `{"output":"paid","store":{"hold":null,"balance":[ 75 ]}}`)
			return
		}
		set := object{"type": "setStore", "id": "pay", "values": object{"hold": true, "call": calls.Add(1)}}
		if !c.has("step_completed", "pay") {
			c.reply(set, object{"type": "runStep", "id": "pay"})
			return
		}
		last := object{"type": "setStore", "id": "last", "values": object{"done": true}}
		c.reply(set, last, object{"type": "complete", "output": c.log["store_set pay"]})
	}))
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, `{"balance":[75],"hold":null}`)
	d.wantStore(t, id, map[string]string{"balance": `[ 75 ]`, "call": `1`, "done": `true`})
	for _, want := range []string{
		`workflow null`, `step {"call":1,"hold":true}`, `workflow {"balance":[75],"call":1}`,
	} {
		if got := <-seen; got != want {
			t.Errorf("got the call %s, want %s", got, want)
		}
	}
	want := []string{
		"run_created", "run_started", "store_set pay", "step_created pay", "step_started pay", "store_set pay",
		"step_completed pay", "store_set last", "run_completed",
	}
	if diff := cmp.Diff(want, d.events(t, id)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// TestFailedAttemptsWriteNothingToTheStore: neither an attempt with an error nor one whose answer cannot be parsed. A
// step that exceeds a limit fails at once and writes nothing.
func TestFailedAttemptsWriteNothingToTheStore(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", kv.MaxValue-2)
	many := object{}
	for i := range kv.MaxKeys + 1 {
		many[fmt.Sprint(i)] = i
	}
	tooMany, err := json.Marshal(object{"store": many})
	if err != nil {
		t.Fatal(err)
	}
	fine := `{"output":1,"store":{"k":"second"}}`
	for name, tt := range map[string]struct {
		status int
		first  string
		output string
		store  map[string]string
	}{
		"an error":          {http.StatusInternalServerError, `{"output":1,"store":{"k":"first"}}`, `1`, map[string]string{"k": `"second"`}},
		"an unknown field":  {http.StatusOK, `{"output":1,"stores":{"k":"first"}}`, `1`, map[string]string{"k": `"second"`}},
		"not an object":     {http.StatusOK, `7`, `1`, map[string]string{"k": `"second"`}},
		"no writes":         {http.StatusOK, `{"output":7}`, `7`, map[string]string{}},
		"too long a key":    {http.StatusOK, `{"store":{"` + large[:kv.MaxKey+1] + `":1}}`, "", map[string]string{}},
		"too large a value": {http.StatusOK, `{"store":{"fine":1,"k":"` + large + `x"}}`, "", map[string]string{}},
		"too many keys":     {http.StatusOK, string(tooMany), "", map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var attempts atomic.Int32
			d := startServer(t, serve(t, func(c *functionCall) {
				switch {
				case c.Type == contract.TypeStep && attempts.Add(1) == 1:
					c.replyAs(tt.status, tt.first)
				case c.Type == contract.TypeStep:
					c.replyAs(http.StatusOK, fine)
				case c.has("step_failed", "pay"):
					c.reply(object{"type": "fail", "error": c.log["step_failed pay"]})
				default:
					completeWith("step_completed", "pay", object{
						"type": "runStep", "id": "pay", "retry": object{"backoff": "1ms"},
					})(c)
				}
			}))
			id := d.startRun(t, `null`)
			status, payload := d.waitForEnd(t, id)
			if failed := tt.output == ""; failed && !strings.Contains(payload, `"code":"store_limit"`) || !failed && payload != tt.output {
				t.Errorf("run ended %s with %s", status, payload)
			}
			d.wantStore(t, id, tt.store)
		})
	}
}

// writeOfStep starts a run with a step under way, and returns its work and the requests that complete it with a write.
func (d *server) writeOfStep(t *testing.T) (queue.Delivery, []eventlog.Request) {
	t.Helper()
	id := d.startRun(t, `null`)
	if _, err := d.log.AppendAll(t.Context(), project, id, []eventlog.Request{{
		Type: entities.EventStepCreated, CorrelationID: "x", SpecVersion: entities.SpecDriven,
		Data: entities.EventData{StepName: "x", Step: &entities.StepSpec{
			DeploymentID: deployment, AttemptTimeoutMS: 1000, MaxAttempts: 5, Factor: 1,
		}},
	}}, eventlog.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	work := d.claim(t, message.WorkStep, "x")
	s, err := d.runs.loadStep(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	return work, s.results(decision{event: entities.EventStepCompleted, payload: []byte(`1`), store: []byte(`{"k":1}`)}, time.Now())
}

// TestAStoreWriteIsThereWithItsStepOrNot interrupts the transaction of a step's result at each statement. Afterwards the
// write, the result and the end of the work are there, or none of them. The same result can then be recorded unless it
// was.
func TestAStoreWriteIsThereWithItsStepOrNot(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := idleServer(t, dsn)
	session := gate.Open(t, dsn, home.pool, nil)
	broken := serverOn(t, session.Pool)
	attempt := func(n int, crash gate.Crash) (work queue.Delivery, requests []eventlog.Request, statements []string, err error) {
		home.Exec(t, `DELETE FROM messages`)
		home.Exec(t, `DELETE FROM runs`)
		work, requests = home.writeOfStep(t)
		statements = session.Run(t, n, crash, func() {
			_, err = broken.log.AppendAll(t.Context(), project, work.RunID, requests, broken.runs.endWith(work))
		})
		return work, requests, statements, err
	}
	// parts counts the store's values, the step's results, and the work that has ended.
	parts := func(id entities.RunID) [3]int {
		return [3]int{
			home.Count(t, `SELECT count(*) FROM run_store WHERE run_id = $1 AND value = '1' AND seq = 3`, id),
			home.Count(t, `SELECT count(*) FROM steps WHERE run_id = $1 AND status = 'completed'`, id),
			1 - home.Count(t, `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'step'`, id),
		}
	}
	_, _, statements, err := attempt(-1, gate.None)
	if err != nil || len(statements) < 3 {
		t.Fatalf("got the statements %q and error %v", statements, err)
	}
	for n, sql := range statements {
		for _, how := range gate.Crashes(sql) {
			what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
			work, requests, _, err := attempt(n, how)
			if err == nil {
				t.Errorf("%s: got no error", what)
			}
			want := [3]int{}
			if n == len(statements)-1 && how == gate.AnswerLost {
				want = [3]int{1, 1, 1}
			}
			if got := parts(work.RunID); got != want {
				t.Errorf("%s: got %v, want %v", what, got, want)
			}
			_, err = home.log.AppendAll(t.Context(), project, work.RunID, requests, home.runs.endWith(work))
			if got := parts(work.RunID); got != [3]int{1, 1, 1} || (err != nil) != (want[0] == 1) {
				t.Errorf("%s: after the repetition got %v and error %v", what, got, err)
			}
		}
	}
}

// TestALateResultWritesNothingToTheStore: the lease was lost, or the run has ended.
func TestALateResultWritesNothingToTheStore(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*server, queue.Delivery){
		"lease lost": func(d *server, _ queue.Delivery) { d.claim(t, message.WorkStep, "x") },
		"run ended": func(d *server, work queue.Delivery) {
			if _, err := d.log.Append(t.Context(), project, eventlog.Request{
				RunID: work.RunID, Type: entities.EventRunCompleted, SpecVersion: entities.SpecDriven,
			}); err != nil {
				t.Error(err)
			}
		},
	} {
		d := idleServer(t, testdb.New(t))
		work, requests := d.writeOfStep(t)
		before(d, work)
		_, err := d.log.AppendAll(t.Context(), project, work.RunID, requests, d.runs.endWith(work))
		if !queue.IsOver(err) {
			t.Errorf("%s: got error %v", name, err)
		}
		d.wantStore(t, work.RunID, map[string]string{})
		if n := d.countEvents(t, work.RunID, "step_completed x"); n != 0 {
			t.Errorf("%s: the result was recorded", name)
		}
	}
}

// TestAnAnswerThatExceedsTheStoreIsRejected as a whole, with a sentence.
func TestAnAnswerThatExceedsTheStoreIsRejected(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	work, run := d.startInvocation(t)
	values := object{}
	for i := range kv.MaxKeys {
		values[fmt.Sprint(i)] = i
	}
	full, err := json.Marshal(object{"commands": []object{{"type": "setStore", "id": "full", "values": values}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.runs.Command(t.Context(), callOf(work.RunID, work.Lease), full); err != nil {
		t.Fatal(err)
	}
	answer := func(values string) error {
		return d.runs.answer(t.Context(), work, run, []byte(`{"commands":[{"type":"setAttributes","attributes":{"a":"b"}},`+
			`{"type":"setStore","id":"more","values":`+values+`}]}`))
	}
	err = answer(`{"one more":1}`)
	if !errors.Is(err, kv.ErrLimit) || !strings.Contains(err.Error(), "command 1: ") ||
		!strings.Contains(err.Error(), "the store would have 257 keys; the limit is 256") {
		t.Errorf("got error %v", err)
	}
	if n := d.countEvents(t, work.RunID, "attr_set"); n != 0 {
		t.Error("a command of the rejected answer was applied")
	}
	if err := answer(`{"one more":1,"0":null}`); err != nil {
		t.Errorf("a write that makes room: %v", err)
	}
}

// TestAnInlineStepWritesToTheStoreWithItsResultOrNot: of two results of a step, the first one counts, with what
// it has written.
func TestAnInlineStepWritesToTheStoreWithItsResultOrNot(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	work, run := d.startInvocation(t)
	record := func(step string) error {
		body := []byte(`{"commands":[{"type":"recordStep",` + step + `}]}`)
		_, err := d.runs.Exchange(t.Context(), callOf(run.ID, work.Lease), int64(len(d.events(t, run.ID))), body)
		return err
	}
	for _, step := range []string{
		`"id":"a","output":1,"store":{"k":[1]}`, `"id":"a","output":2,"store":{"k":2,"other":2}`,
		`"id":"b","output":1`, `"id":"b","output":2,"store":{"b":2}`,
		`"id":"c","error":{"message":"no"}`, `"id":"c","output":1,"store":{"c":1}`,
		`"id":"d","error":{"message":"again"},"retryAfter":"1h"`, `"id":"d","output":1,"store":{"d":1}`,
	} {
		if err := record(step); err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}
	d.wantStore(t, run.ID, map[string]string{"k": `[1]`, "d": `1`})
	want := []string{
		"step_created a", "store_set a", "step_completed a", "step_created b", "step_completed b", "step_created c",
		"step_failed c", "step_created d", "step_started d", "step_retrying d", "store_set d", "step_started d",
		"step_completed d",
	}
	if got := d.events(t, run.ID); !slices.Equal(got[len(got)-len(want):], want) {
		t.Errorf("the log is %q, want %q at its end", got, want)
	}
	for step, want := range map[string]error{
		`"id":"e","error":{"message":"no"},"store":{"e":1}`:                          entities.ErrInvalid,
		`"id":"e","output":1,"store":{"` + strings.Repeat("x", kv.MaxKey+1) + `":1}`: kv.ErrLimit,
	} {
		if err := record(step); !errors.Is(err, want) {
			t.Errorf("%.60s: got error %v, want %v", step, err, want)
		}
	}
	if n := d.countEvents(t, run.ID, "step_created e"); n != 0 {
		t.Error("a command that was refused has created its step")
	}
}
