package handlers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inproc"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest"
	"github.com/stepwell-dev/stepwell/queue"
)

// sqlRequest is a request of the API that an app has left in SQL, as the function leave_request writes it.
type sqlRequest struct {
	// Path has the names of the path below /v1.
	Path []string `json:"path"`
	// RunID is that of the run which the request starts; empty if it starts none.
	RunID entities.RunID  `json:"runId"`
	Body  json.RawMessage `json:"body"`
}

// Requests returns the handler of work that SQL has left. It makes the request through the API of this process, so that
// what becomes of it is the same. A request that is made again because its server died counts once: each has an
// idempotency key. What is refused for good is parked, with the refusal as its reason.
func Requests(o Options) queue.Handler {
	o.UI, o.Function = nil, nil
	api := inproc.Transport{Handler: New(o)}
	return func(ctx context.Context, d queue.Delivery) error {
		var r sqlRequest
		if err := json.Unmarshal(d.Body, &r); err != nil {
			return fmt.Errorf("decode request: %w", err)
		}
		req, err := r.request(ctx, d.Project)
		if err != nil {
			return err
		}
		answer, err := api.RoundTrip(req)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode >= http.StatusMultipleChoices {
			return failureOf(answer)
		}
		return d.End(ctx)
	}
}

// request returns the request to the API.
func (r sqlRequest) request(ctx context.Context, p entities.Project) (*http.Request, error) {
	ctx = auth.WithServer(ctx, p)
	if r.RunID != "" {
		ctx = rest.WithRunID(ctx, r.RunID)
	}
	names := make([]string, len(r.Path))
	for i, name := range r.Path {
		names[i] = url.PathEscape(name)
	}
	path := nativePath + "/" + strings.Join(names, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// refusedRetry is the pause before a request is made again that the API could not serve now.
const refusedRetry = time.Second

// codeConflict is the code of [entities.ErrConflict].
const codeConflict = "conflict"

// failureOf returns why a request with this answer has failed. What the API could not serve now does not count, and is
// tried again. As work that fails is, so is what does not exist, since a workflow may be about to be deployed, and what
// lost against another delivery of the same request: it finds that one's outcome then.
func failureOf(answer *http.Response) error {
	var refusal struct {
		Error struct{ Code, Message string }
	}
	_ = json.NewDecoder(answer.Body).Decode(&refusal) // without a reason, the status says what there is to say
	code := cmp.Or(refusal.Error.Code, http.StatusText(answer.StatusCode))
	reason := strings.TrimSuffix(code+": "+refusal.Error.Message, ": ")
	switch {
	case answer.StatusCode == http.StatusNotFound, code == codeConflict:
		return errors.New(reason)
	case answer.StatusCode >= http.StatusInternalServerError, answer.StatusCode == http.StatusTooManyRequests,
		answer.StatusCode == http.StatusTooEarly:
		return &queue.Failure{Reason: reason, Public: code, After: refusedRetry}
	default:
		return &queue.Failure{Reason: reason, Public: code, Reached: true, Parked: true}
	}
}
