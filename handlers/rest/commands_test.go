package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

// command sends commands of an invocation, and returns the status and the error code.
func (a api) command(t *testing.T, id entities.RunID, invocation, body string) (status int, code string) {
	t.Helper()
	w := a.serve(http.MethodPost, "/v1/runs/"+string(id)+"/commands", body, "Stepwell-Invocation", invocation)
	var answer struct{ Error struct{ Code string } }
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
	}
	return w.Code, answer.Error.Code
}

// TestCommandsDuringAnInvocation checks that they are atomic, and that the invocation must be active.
func TestCommandsDuringAnInvocation(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	const invoked = "UPDATE messages SET lease = 'rh_1', due_at = now() + '1 minute' WHERE run_id = $1 AND work = 'run'"
	if tag, err := a.pool.Exec(t.Context(), invoked, id); err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("invoked %d runs, error %v", tag.RowsAffected(), err)
	}
	commands := func(list string) string { return `{"commands":[` + list + `]}` }
	const fine = `{"type":"setAttributes","attributes":{"stage":"paid"}}`
	for _, tt := range []struct {
		id               entities.RunID
		invocation, body string
		status           int
		code             string
		events           int
	}{
		{id, "rh_1", commands(`{"type":"recordStep","id":"a","output":1}`), 204, "", 3},
		{id, "rh_1", commands(`{"type":"recordStep","id":"a","output":2}`), 204, "", 3},
		{id, "rh_1", "", 204, "", 3},
		{id, "rh_1", commands(fine + `,{"type":"dance"}`), 400, "invalid_request", 3},
		{id, "rh_1", commands(fine + `,{"type":"recordStep","id":"a","name":"b"}`), 409, "conflict", 3},
		{id, "rh_1", commands(fine + `,{"type":"closeHook","id":"h"}`), 404, "hook_not_found", 3},
		{id, "rh_2", commands(fine), 409, "stale_invocation", 3},
		{"wrun_x", "rh_1", commands(fine), 404, "run_not_found", 3},
		{id, "rh_1", commands(fine + `,{"type":"complete"}`), 204, "", 5},
		{id, "rh_1", commands(`{"type":"runStep","id":"late"}`), 410, "run_ended", 5},
	} {
		status, code := a.command(t, tt.id, tt.invocation, tt.body)
		if status != tt.status || code != tt.code {
			t.Errorf("%s by %s on %s: got %d %s, want %d %s", tt.body, tt.invocation, tt.id, status, code, tt.status, tt.code)
		}
		_, log := a.do(t, http.MethodGet, "/v1/runs/"+string(id)+"/events", "")
		if events, _ := log["data"].([]any); len(events) != tt.events {
			t.Errorf("after %s by %s the log has %d events, want %d", tt.body, tt.invocation, len(events), tt.events)
		}
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs/"+string(id)+"/commands", commands(fine), 400, "invalid_request")
}

// TestCommandsAnswerWithEvents checks the events after a position, and that the invocation gets more time.
func TestCommandsAnswerWithEvents(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	a.exec(t, `
		UPDATE messages SET lease = 'rh_1', due_at = now() + '1 minute' WHERE run_id = $1 AND work = 'run'`, id)
	record := func(step string) string {
		return `{"commands":[{"type":"recordStep","id":"` + step + `","output":1,"seen":1,"at":"order.go:41",
			"startedAt":"2026-11-21T01:00:00.0004Z","endedAt":"2026-11-21T01:00:01Z"}],"open":["b","c"]}`
	}
	for _, tt := range []struct {
		after, body string
		events      string
	}{
		{"1", record("a"), "2 step_created a, 3 step_completed a"},
		{"1", record("a"), "2 step_created a, 3 step_completed a"}, // the answer was lost
		{"2", "", "3 step_completed a"},
		{"3", "", ""},
		{"3", record("b"), "4 step_created b, 5 step_completed b"},
		{"0", "", "1 run_created , 2 step_created a, 3 step_completed a, 4 step_created b, 5 step_completed b"},
		{"9", "", ""},
	} {
		w := a.serve(http.MethodPost, "/v1/runs/"+string(id)+"/commands?after="+tt.after, tt.body, "Stepwell-Invocation", "rh_1")
		var got struct {
			Seq    int64
			Events []struct {
				Seq           int64
				Type          string
				CorrelationID string
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			t.Fatalf("after %s: got %d %s", tt.after, w.Code, w.Body)
		}
		var list []string
		last := tt.after
		for _, e := range got.Events {
			list = append(list, fmt.Sprintf("%d %s %s", e.Seq, e.Type, e.CorrelationID))
			last = strconv.FormatInt(e.Seq, 10)
		}
		if events := strings.Join(list, ", "); events != tt.events || strconv.FormatInt(got.Seq, 10) != last {
			t.Errorf("after %s: got %q up to %d, want %q up to %s", tt.after, events, got.Seq, tt.events, last)
		}
	}
	// Another copy of the call wrote what this one does not know.
	if w := a.serve(http.MethodPost, "/v1/runs/"+string(id)+"/commands?after=4", record("c"), "Stepwell-Invocation", "rh_1"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), `"code":"stale_invocation"`) {
		t.Errorf("another copy: got %d %s", w.Code, w.Body)
	}
	var extended, again bool
	if err := a.pool.QueryRow(t.Context(), `
		SELECT due_at > now() + interval '4 minutes', redeliver FROM messages WHERE lease = 'rh_1'`,
	).Scan(&extended, &again); err != nil || !extended || again {
		t.Errorf("the lease is extended: %v; the run is invoked again: %v; error %v", extended, again, err)
	}
	_, created := a.do(t, http.MethodGet, "/v1/runs/"+string(id)+"/events/2", "")
	_, completed := a.do(t, http.MethodGet, "/v1/runs/"+string(id)+"/events/3", "")
	if diff := cmp.Diff([]any{
		object{"stepName": "a", "at": "order.go:41", "open": []any{"b", "c"}},
		object{
			"stepName": "a", "seen": 1.0, "startedAt": "2026-11-21T01:00:00Z", "endedAt": "2026-11-21T01:00:01Z",
		},
	}, []any{created["data"], completed["data"]}); diff != "" {
		t.Errorf("data of the step's events (-want +got):\n%s", diff)
	}
}
