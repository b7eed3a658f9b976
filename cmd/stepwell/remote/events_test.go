package remote

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// TestEventLine: the steps of the Workflow SDK are shown as their authors named them, and other fields as they are.
func TestEventLine(t *testing.T) {
	t.Parallel()
	e := api.Event{
		Seq: 3, Type: "step_created", CorrelationID: "step_01JD5A8R8D0000000000000000",
		CreatedAt: api.Time{Time: time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)},
		Data: map[string]json.RawMessage{
			"stepName": json.RawMessage(`"step//./workflows/order//chargeCard"`), "via": json.RawMessage(`"step//x//y"`),
			"step": json.RawMessage(`{"a":1}`),
		},
	}
	const want = "     3  2026-11-21T03:00:00.000Z  step_created    step_01JD5A8R8D0000000000000000  stepName=chargeCard via=step//x//y\n"
	if got := eventLine(e); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestVotesInTheLog: the log says who has voted how, with and without payloads, and other payloads are not read for it.
func TestVotesInTheLog(t *testing.T) {
	t.Parallel()
	const vote = `{"decision":"reject","by":"zoe"}`
	event := func(fields string) string {
		return `{"runId":"r","seq":7,"id":"e","type":"hook_received","correlationId":"agree","createdAt":"2026-11-21T03:00:00Z",` + fields + `}`
	}
	s, out, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/runs/r/events":
			_, _ = w.Write([]byte(`{"data":[` + event(`"data":{"verified":"vote"}`) + `,` + event(`"data":{"verified":"vote"},"payload":`+vote) + `,` + event(`"data":{"via":"api"}`) + `]}`))
		case "/v1/runs/r/events/7/payload":
			_, _ = w.Write([]byte(vote))
		default:
			t.Errorf("request for %s", r.URL)
		}
	})
	if err := s.execute(t.Context(), []string{"runs", "events", "r"}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	const voted = "agree  by=zoe decision=reject verified=vote"
	if len(lines) != 5 || !strings.HasSuffix(lines[0], voted) || !strings.HasSuffix(lines[1], voted) || lines[2] != "        "+vote ||
		!strings.HasSuffix(lines[3], "agree  via=api") {
		t.Errorf("got %q", lines)
	}
}
