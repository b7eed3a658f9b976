package stepwelltest

import (
	"encoding/json"
	"net/http"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/internal/memserver"
)

// Send sends a message to the inbox of the run with the ID. A message whose ID the inbox has received is ignored,
// unless it is empty.
func Send[T any](e *Env, inbox *stepwell.InboxKind[T], runID string, message T, id string) {
	e.tb.Helper()
	if err := e.server.Send(e.run(runID), inbox.Name(), id, e.encode(message)); err != nil {
		e.tb.Fatal(err)
	}
}

// Signal sends a signal to all runs that wait for it, or begin to in the next minute. It is kept for runs that look
// back, for that time. Conditions may have fields of data, literals, comparisons, &&, || and !; the test fails if one
// has more.
func Signal[T any](e *Env, kind *stepwell.SignalKind[T], data T, keepFor time.Duration) {
	e.tb.Helper()
	if err := e.server.Signal(kind.Name(), e.encode(data), keepFor); err != nil {
		e.tb.Fatal(err)
	}
}

// WebhookRequest is a request that was sent to a webhook.
type WebhookRequest struct {
	run *memserver.Run
	id  string
}

// Request sends a request with a JSON body to the webhook with the token.
func (e *Env) Request(token string, header http.Header, body any) *WebhookRequest {
	e.tb.Helper()
	run, id, err := e.server.Request(token, http.MethodPost, header, e.encode(body))
	if err != nil {
		e.tb.Fatal(err)
	}
	return &WebhookRequest{run, id}
}

// Response returns the workflow's response; status 0 if there is none.
func (r *WebhookRequest) Response() (status int, body json.RawMessage) {
	response, _ := r.run.Response(r.id)
	return response.Status, response.Body
}

// Stored returns a value in the store of the run with the ID.
func Stored[T any](e *Env, key *stepwell.StoreKey[T], runID string) (value T, ok bool) {
	e.tb.Helper()
	data, ok := e.run(runID).Stored()[key.Name()]
	if ok {
		if err := json.Unmarshal(data, &value); err != nil {
			e.tb.Fatal(err)
		}
	}
	return value, ok
}

// Written returns what the run with the ID has written to a stream, and whether the stream is closed: by the run, or
// because that has ended.
func Written[T any](e *Env, stream *stepwell.StreamKind[T], runID string) (chunks []T, closed bool) {
	e.tb.Helper()
	run := e.run(runID)
	s := run.Stream(stream.Name())
	for _, data := range s.Chunks {
		var chunk T
		if err := json.Unmarshal(data, &chunk); err != nil {
			e.tb.Fatal(err)
		}
		chunks = append(chunks, chunk)
	}
	return chunks, s.Closed || run.Status != "running"
}

func (e *Env) run(id string) *memserver.Run {
	e.tb.Helper()
	r := e.server.Run(id)
	if r == nil {
		e.tb.Fatalf("there is no run %q", id)
	}
	return r
}

// Cancel asks to cancel a run. It is forced after the grace; 0 cancels at once.
func (e *Env) Cancel(runID, reason string, grace time.Duration) {
	e.tb.Helper()
	e.server.Cancel(e.run(runID), reason, grace)
}

// Timeout limits the time of a run from now on. When it is over, the run is asked to cancel, and fails after the grace.
func (e *Env) Timeout(runID string, timeout, grace time.Duration) {
	e.tb.Helper()
	e.server.Limit(e.run(runID), timeout, grace)
}

// Attributes returns the attributes of the run with the ID.
func (e *Env) Attributes(runID string) map[string]string {
	e.tb.Helper()
	return e.run(runID).Attributes()
}

// Children returns the IDs of all runs that workflows have started, in their order.
func (e *Env) Children() (ids []string) {
	for _, r := range e.server.Runs() {
		if r.IsChild() {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// Status returns the status of the run with the ID: running, completed, failed or cancelled.
func (e *Env) Status(runID string) string {
	e.tb.Helper()
	return e.run(runID).Status
}

// Tokens returns the tokens of the open hooks of the run with the ID, in the order in which they were opened.
func (e *Env) Tokens(runID string) []string {
	e.tb.Helper()
	return e.run(runID).Tokens()
}
