package engine

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestResultsAfterTheEndAreRecorded: of the results of an async step that come after its run has failed, or was
// cancelled, one is recorded. It changes no status and starts nothing, and the run does not wait for it.
func TestResultsAfterTheEndAreRecorded(t *testing.T) {
	t.Parallel()
	accepted := make(chan struct{}, 10)
	d := startServer(t, serve(t, func(c *functionCall) {
		switch c.Step.Name {
		case "accept":
			c.w.WriteHeader(http.StatusAccepted)
			accepted <- struct{}{}
		case "wait":
			c.w.WriteHeader(http.StatusAccepted)
		default:
			c.w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = c.w.Write([]byte(`{"error":{"message":"no","code":"bad"}}`))
		}
	}))
	put := func(document string) string {
		v, err := registry.New(d.pool, time.Now).Put(t.Context(), project, []byte(document))
		if err != nil {
			t.Fatal(err)
		}
		return v.DeploymentID
	}
	const fails = `
  b: {call: accept, async: true, timeout: 1m}
  m: {map: "[1]", do: {call: wait, async: true, timeout: 1m}}
  h: {hook: {}}
  c: {needs: h, call: fail}
  d: {needs: [b], call: never}
`
	head := "\ndeployment: dpl_test\ndefaults: {retry: {maxAttempts: 1}}\nsteps:"
	failing, open := put("flow: failing"+head+fails), put("flow: open"+head+"\n  b: {call: accept, async: true, timeout: 1m}\n")
	for _, deployment := range []string{failing, open} {
		id := d.startOrder(t, deployment, `{}`, "")
		testdb.Receive(t, "the call", accepted)
		d.waitForEvent(t, id, "step_retrying b")
		steps := []entities.StepID{"b"}
		if deployment == failing {
			d.waitForEvent(t, id, "step_retrying m[0]")
			steps = append(steps, "m[0]")
			d.receive(t, id, "h", `1`)
			d.waitForEnd(t, id)
		} else {
			cancelRun(t, d, id)
		}
		ended := d.logOf(t, id)
		for _, step := range steps {
			d.sendLateResults(t, id, step)
		}
		if n := len(d.logOf(t, id)) - len(ended); n != len(steps) {
			t.Errorf("%s: %d events were added to the log", deployment, n)
		}
		if n := d.Count(t, `SELECT count(*) FROM messages WHERE run_id = $1 AND work IN ('run', 'step')`, id); n != 0 {
			t.Errorf("%s: %d pieces of work were made", deployment, n)
		}
		d.wantFold(t, id)
	}
}

// sendLateResults sends outputs and errors of a step at once, after the end of its run: one is recorded, and the step
// stays as it is if it had ended.
func (d *server) sendLateResults(t *testing.T, id entities.RunID, step entities.StepID) {
	t.Helper()
	before, err := d.log.Step(t.Context(), project, id, step)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 8)
	for n := range cap(errs) {
		go func() {
			result := StepResult{Output: fmt.Append(nil, n)}
			if n%2 == 0 {
				result = StepResult{Error: &contract.Failure{Message: "late", Code: "late"}}
			}
			errs <- d.runs.EndStep(t.Context(), project, id, step, result)
		}()
	}
	recorded := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			recorded++
		} else if !isAny(err, entities.ErrConflict, entities.ErrRunEnded) {
			t.Errorf("a late result: %v", err)
		}
	}
	if recorded != 1 {
		t.Errorf("%s of %s: %d late results were recorded", step, id, recorded)
	}
	after, err := d.log.Step(t.Context(), project, id, step)
	if err != nil || before.CompletedAt != nil && (after.Status != before.Status || after.ResultSeq != before.ResultSeq) {
		t.Errorf("the step was %+v and is %+v: %v", before.Step, after.Step, err)
	}
}

// TestAnswersAfterTheEndAreRecorded: the end of a run does not wait for calls of its steps, and what they answer after
// it is recorded and starts nothing. So is a failure after which there would have been another attempt.
func TestAnswersAfterTheEndAreRecorded(t *testing.T) {
	t.Parallel()
	called, release := make(chan struct{}, 10), make(chan struct{})
	answer := func(name string, w http.ResponseWriter) {
		called <- struct{}{}
		<-release
		switch name {
		case "fails":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(`{"error":{"message":"late","code":"late"}}`))
		case "works":
			w.Header().Set("Content-Type", contract.StepAnswerType)
			_, _ = w.Write([]byte(`{"output":"late","store":{"key":1}}`))
		default:
			_, _ = w.Write([]byte(`"late"`))
		}
	}
	f := serve(t, func(c *functionCall) {
		if c.Step.Name == "fail" {
			c.w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = c.w.Write([]byte(`{"error":{"message":"no","code":"bad"}}`))
			return
		}
		answer(c.Step.Name, c.w)
	})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer("", w) }))
	t.Cleanup(service.Close)
	d := newServer(t, testdb.New(t))
	d.runs.lateAnswers = time.Hour
	d.serveWith(t, f)
	const steps = `
  works: {call: works}
  fails: {call: fails, retry: {maxAttempts: 9}}
  asks: {http: "%s"}
  next: {needs: [works], call: never}
`
	document := fmt.Sprintf("\ndeployment: dpl_test\ndefaults: {retry: {maxAttempts: 1}}\nsteps:"+steps, service.URL)
	for name, more := range map[string]string{"failing": "  h: {hook: {}}\n  c: {needs: h, call: fail}\n", "open": ""} {
		v, err := registry.New(d.pool, time.Now).Put(t.Context(), project, []byte("flow: "+name+document+more))
		if err != nil {
			t.Fatal(err)
		}
		id := d.startOrder(t, v.DeploymentID, `{}`, "")
		for range 3 {
			testdb.Receive(t, "the calls", called)
		}
		if more != "" {
			d.receive(t, id, "h", `1`)
			d.waitForEnd(t, id)
		} else {
			cancelRun(t, d, id)
		}
		ended := d.logOf(t, id)
		for range 3 {
			release <- struct{}{}
		}
		var late []entities.Event
		testdb.Eventually(t, "the late answers are in the log", func() bool {
			late = d.logOf(t, id)[len(ended):]
			return len(late) == 3
		})
		got := map[string]entities.EventType{}
		for _, e := range late {
			if got[e.CorrelationID] = e.Type; !e.Data.Late {
				t.Errorf("%s: %s of %s is not late", name, e.Type, e.CorrelationID)
			}
		}
		want := map[string]entities.EventType{
			"works": entities.EventStepCompleted, "fails": entities.EventStepFailed, "asks": entities.EventStepCompleted,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: events after the end (-want +got):\n%s", name, diff)
		}
		d.waitForEmptyQueue(t)
		d.wantFold(t, id)
		if values, err := store.Values(t.Context(), pg.NewPool(d.pool), id, kv.MaxInCall); err != nil || len(values) > 0 {
			t.Errorf("%s: the store has %v, %v after a late answer", name, values, err)
		}
	}
}

// wantFold checks that the rows of a run are the fold of its log.
func (d *server) wantFold(t *testing.T, id entities.RunID) {
	t.Helper()
	err := upkeep.NewMaintainer(d.pool, time.Now).Verify(t.Context(), id, func(found upkeep.Difference) {
		t.Errorf("run %s: %s", id, found)
	})
	if err != nil {
		t.Error(err)
	}
}
