package engine

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestFailuresOfStepsAreRecorded even if the function's error has invalid parts: if the log refused the failure, the
// step would be executed forever.
func TestFailuresOfStepsAreRecorded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ answer, end string }{
		"a long code":          {`{"error":{"message":"m","code":"` + strings.Repeat("c", 2000) + `"}}`, strings.Repeat("c", 2000)},
		"a code of two lines":  {`{"error":{"message":"m","code":"a\nb"}}`, `a\nb`},
		"details not in UTF-8": {`{"error":{"message":"m","details":"` + "\xff" + `"}}`, `"m"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			workflow := completeWith("step_failed", "pay", object{
				"type": "runStep", "id": "pay", "retry": object{"backoff": "1ms", "maxAttempts": 2},
			})
			d := startServer(t, serve(t, withStep(workflow, func(c *functionCall) {
				c.w.WriteHeader(500)
				_, _ = fmt.Fprint(c.w, tt.answer)
			})))
			id := d.startRun(t, `null`)
			if status, payload := d.waitForEnd(t, id); status != entities.RunCompleted || !strings.Contains(payload, tt.end) {
				t.Errorf("got %s %s, want the function's error", status, payload)
			}
			if retries, fails := d.countEvents(t, id, "step_retrying pay"), d.countEvents(t, id, "step_failed pay"); retries != 1 || fails != 1 {
				t.Errorf("%d retries and %d failures, want one each", retries, fails)
			}
		})
	}
}

// TestARefusedCallIsNoAttempt: a process that shuts down, or lacks the step, refuses calls. That neither uses up the only
// attempt of a step nor holds a run.
func TestARefusedCallIsNoAttempt(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"shutdown", "unknown_step", "codec_failed"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			testRefusedCall(t, code)
		})
	}
}

func testRefusedCall(t *testing.T, code string) {
	t.Helper()
	workflow := completeWith("step_completed", "pay", object{
		"type": "runStep", "id": "pay", "retry": object{"maxAttempts": 1},
	})
	var refused sync.Map
	d := startServer(t, serve(t, func(c *functionCall) {
		_, again := refused.LoadOrStore(fmt.Sprint(c.Type, len(c.Events)), true)
		switch {
		case c.Attempt != 1:
			t.Errorf("the call of a %s has attempt %d", c.Type, c.Attempt)
		case !again:
			c.w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintf(c.w, `{"error":{"message":"not now","code":%q}}`, code)
			return
		}
		if c.Type == contract.TypeWorkflow {
			workflow(c)
			return
		}
		_, _ = fmt.Fprint(c.w, `"paid"`)
	}))
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, `"paid"`)
	if n := d.countEvents(t, id, "step_started pay") + d.countEvents(t, id, "step_retrying pay"); n != 1 {
		t.Errorf("the log has %d events about attempts, want one", n)
	}
}

// TestAnswerWithUnknownDeploymentIsRefusedAtOnce: applying the answer again would fail again and hold up the delivery.
func TestAnswerWithUnknownDeploymentIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) {
		c.reply(object{"type": "startChild", "id": "kid", "workflow": "stranger", "deployment": "latest"})
	}))
	if _, err := d.pool.Exec(t.Context(), `UPDATE deployments SET workflows = '{order}'`); err != nil {
		t.Fatal(err)
	}
	d.startRun(t, `null`)
	start := time.Now()
	testdb.Eventually(t, "the message has the failure", func() bool {
		list, _, err := d.Messages(t.Context(), project, queue.Filter{State: queue.StateWaiting}, pg.Page{Limit: 10})
		return err == nil && len(list) == 1 && strings.Contains(list[0].LastError, "deployment not found")
	})
	if took := time.Since(start); took > recordTime/2 {
		t.Errorf("the refusal took %s", took)
	}
}
