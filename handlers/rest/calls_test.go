package rest_test

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue"
)

// sendCall sends a request about a call, and returns the status.
func (a api) sendCall(t *testing.T, id entities.RunID, what, invocation, body string) int {
	t.Helper()
	w := a.serve(http.MethodPost, path.Join("/v1/runs", string(id), "call", what), body, "Stepwell-Invocation", invocation)
	return w.Code
}

// calling makes the work of a run of the kind one that a server which has died was calling.
func (a api) calling(t *testing.T, id entities.RunID, kind, lease string) {
	t.Helper()
	tag, err := a.pool.Exec(t.Context(), `
		UPDATE messages SET lease = $3, holder = '', due_at = now() + '1 minute', delivery_count = 1
		WHERE run_id = $1 AND work = $2 AND work <> ''`, id, kind, lease)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("made %d calls, error %v", tag.RowsAffected(), err)
	}
}

// TestAnswersByRequest sends what a function would have answered: the commands of an invocation, and outputs and errors
// of steps. Of several answers to one call the first counts, also if they come at once.
func TestAnswersByRequest(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	a.calling(t, id, "run", "rh_run")
	steps := `{"status":200,"body":{"seen":%d,"commands":[
		{"type":"runStep","id":"good","name":"s"},{"type":"runStep","id":"bad","name":"s"},
		{"type":"runStep","id":"again","name":"s"}]}}`
	for _, tt := range []struct {
		what, invocation, body string
		want                   int
	}{
		{"keep", "rh_run", "", 204},
		{"keep", "rh_other", "", 409},
		{"answer", "rh_other", fmt.Sprintf(steps, 1), 409},
		{"answer", "rh_run", `{"status":200,"body":{"commands":[]}}`, 400}, // it does not say what it has seen
		{"answer", "rh_run", `{"status":100}`, 400},
		{"answer", "rh_run", fmt.Sprintf(steps, 1), 204},
		{"answer", "rh_run", fmt.Sprintf(steps, 1), 409},
		{"keep", "rh_run", "", 409},
	} {
		check.Equal(t, fmt.Sprintf("%s of %s with %s", tt.what, tt.invocation, tt.body), a.sendCall(t, id, tt.what, tt.invocation, tt.body), tt.want)
	}
	a.exec(t, `
		UPDATE messages SET lease = 'rh_' || subject, holder = '', due_at = now() + '1 minute', delivery_count = 1
		WHERE run_id = $1 AND work = 'step'`, id)
	a.exec(t, `UPDATE steps SET status = 'running', attempt = 1 WHERE run_id = $1`, id)
	var accepted atomic.Int64
	var racing sync.WaitGroup
	for i := range 8 {
		racing.Go(func() {
			switch got := a.sendCall(t, id, "answer", "rh_good", fmt.Sprintf(`{"status":200,"body":%d}`, i)); got {
			case http.StatusNoContent:
				accepted.Add(1)
			case http.StatusConflict:
			default:
				t.Errorf("one of several answers: got %d", got)
			}
		})
	}
	racing.Wait()
	check.Equal(t, "accepted answers of 8", accepted.Load(), 1)
	a.sendCall(t, id, "answer", "rh_bad", `{"status":422,"body":{"error":{"message":"no","code":"declined"}}}`)
	a.sendCall(t, id, "answer", "rh_again", `{"status":500,"retryAfter":"7","body":{"error":{"message":"later"}}}`)
	for step, want := range map[string]string{"good": "completed", "bad": "failed", "again": "pending"} {
		var got string
		err := a.pool.QueryRow(t.Context(), `SELECT status FROM steps WHERE run_id = $1 AND id = $2`, id, step).Scan(&got)
		if err != nil || got != want {
			t.Errorf("step %s is %s, want %s (%v)", step, got, want, err)
		}
	}
}

// TestAnswersThatFailByRequest: a function that holds its run does so by request as well, and a refused answer is
// shown.
func TestAnswersThatFailByRequest(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for body, want := range map[string]struct {
		status     int
		code, text string
	}{
		`{"status":500,"body":{"error":{"message":"other code","code":"diverged"}}}`: {204, "diverged", "500"},
		`{"status":200,"body":{"seen":1,"commands":[{"type":"dance"}]}}`:             {400, "", "dance"},
		`{"status":503,"body":{"error":{"message":"going away","code":"shutdown"}}}`: {204, "", "going away"},
	} {
		id := a.driven(t, "order")
		a.calling(t, id, "run", "rh_run")
		check.Equal(t, body, a.sendCall(t, id, "answer", "rh_run", body), want.status)
		var lease, text, code string
		err := a.pool.QueryRow(t.Context(), `SELECT lease, last_error, coalesce(blocked->>'code', '') FROM messages
			WHERE run_id = $1 AND work = 'run'`, id).Scan(&lease, &text, &code)
		if err != nil || lease != "" || code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%s: the work has lease %q, error %q, code %q (%v)", body, lease, text, code, err)
		}
	}
}

// TestHeartbeats of a step, and what is refused before anything is noted.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	a.calling(t, id, "run", "rh_run")
	a.sendCall(t, id, "answer", "rh_run", `{"status":200,"body":{"seen":1,"commands":[{"type":"runStep","id":"s"}]}}`)
	a.calling(t, id, "step", "rh_step")
	for _, tt := range []struct {
		invocation, body string
		want             int
	}{
		{"rh_other", `{}`, 409},
		{"rh_step", `{"progress":"` + strings.Repeat("x", queue.MaxProgress) + `"}`, 400},
		{"rh_step", `{"rows":7}`, 400},
		{"rh_step", `{"progress":{"rows":7}}`, 204},
		{"rh_step", `{"progress":{"rows":8}}`, 429},
		{"rh_step", ``, 429},
	} {
		check.Equal(t, fmt.Sprintf("%.40s with %s", tt.body, tt.invocation), a.sendCall(t, id, "heartbeat", tt.invocation, tt.body), tt.want)
	}
	var progress string
	err := a.pool.QueryRow(t.Context(), `SELECT convert_from(progress, 'UTF8') FROM messages WHERE lease = 'rh_step'`).
		Scan(&progress)
	if err != nil || progress != `{"rows":7}` {
		t.Errorf("got progress %s, %v", progress, err)
	}
	// The call of a step that is cancelled goes on for a while, and none of its heartbeats counts.
	_, err = a.pool.Exec(t.Context(), `
		WITH later AS (UPDATE messages SET beat_at = NULL WHERE lease = 'rh_step')
		UPDATE steps SET status = 'failed', completed_at = now() WHERE run_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	check.Equal(t, "a heartbeat of a step that has ended", a.sendCall(t, id, "heartbeat", "rh_step", ``), 409)
}
