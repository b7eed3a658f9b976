package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// The codes of failures of HTTP steps, and of answers of functions, beside contract.CodeNoAnswer and that of a
// status, such as http_404.
const (
	// CodeForbiddenAddress means that the server may not connect to the address.
	CodeForbiddenAddress = "forbidden_address"
	// CodeUnreachable means that no connection was made, so that the service did nothing.
	CodeUnreachable = "unreachable"
	// CodeSecret means that a secret of the request does not exist, or is not for the address.
	CodeSecret = "secret_unusable"
	// CodeAnswerTooLarge means that the answer exceeds [maxHTTPAnswer], or that of a function [contract.MaxAnswer].
	CodeAnswerTooLarge = "answer_too_large"
	httpCodePrefix     = "http_"
)

const (
	// maxHTTPAnswer limits the body of an answer to an HTTP step, in bytes.
	maxHTTPAnswer = 4 << 20
	// maxHTTPError limits the body that is kept of an answer with which the step fails.
	maxHTTPError = 16 << 10
	// maxKeptHeader limits the value of a header that is kept of an answer; longer ones are dropped.
	maxKeptHeader = 8 << 10
)

// executeHTTP makes the request that a step is, and records the result.
func (e *Engine) executeHTTP(ctx context.Context, d queue.Delivery, s stepWork) error {
	timeout := s.spec.AttemptTimeout(e.log.Now())
	timed, cancel := context.WithTimeoutCause(ctx, timeout, noAnswer(timeout))
	defer cancel()
	req, err := e.httpRequest(timed, d, s)
	if err != nil {
		return e.unsent(ctx, d, s, err)
	}
	a, err := e.whileWanted(timed, d, func(ctx context.Context) (answer, error) {
		return e.fetch(d, req.WithContext(ctx))
	})
	if errors.Is(err, errStepOver) {
		return d.End(ctx)
	}
	if err != nil && (queue.IsOver(err) || queue.Interrupted(ctx, err)) {
		return err
	}
	v := s.decideHTTP(a, err, d.DeliveryCount, e.log.Now())
	v.answered = err == nil
	return e.record(ctx, d, s, v)
}

// unsent handles the error of a request that cannot be made. The step fails with the errors of the request itself. Any
// other one is the server's, such as a database that is away: the delivery is repeated, and counts as no attempt.
func (e *Engine) unsent(ctx context.Context, d queue.Delivery, s stepWork, err error) error {
	now := e.log.Now()
	if f, retryable := requestFailure(err); !retryable {
		return e.record(ctx, d, s, s.failure(f, retryable, 0, d.DeliveryCount, now))
	}
	if queue.IsOver(err) || queue.Interrupted(ctx, err) {
		return err
	}
	f := d.Failure(err)
	f.Reached, f.After = false, s.spec.Within(f.After, now)
	return &f
}

// httpRequest builds the request of a step.
func (e *Engine) httpRequest(ctx context.Context, d queue.Delivery, s stepWork) (*http.Request, error) {
	var r contract.HTTPRequest
	if err := json.Unmarshal(s.input, &r); err != nil {
		return nil, entities.Invalid("decode request: %v", err)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, entities.Invalid("%v", err)
	}
	req.Header.Set("User-Agent", "stepwell")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if err := e.setHeaders(ctx, d, r, req.Header); err != nil {
		return nil, err
	}
	req.Header.Set(contract.HeaderIdempotencyKey, string(d.RunID)+"/"+d.Subject)
	return req, nil
}

// fetch makes the request of a step.
func (e *Engine) fetch(d queue.Delivery, req *http.Request) (answer, error) {
	resp, err := d.Fetch(sentOnce(req))
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{
		status: resp.StatusCode, header: resp.Header, retryAfter: retryAfter(resp.Header.Get("Retry-After"), e.log.Now()),
	}
	a.body, err = readAnswer(resp, maxHTTPAnswer)
	return a, err
}

func (e *Engine) setHeaders(
	ctx context.Context, d queue.Delivery, r contract.HTTPRequest, header http.Header,
) error {
	origin, err := r.Origin()
	if err != nil {
		return err
	}
	for name, h := range r.Headers {
		value := h.Text
		if h.Secret != "" {
			secret, err := e.secrets.ValueFor(ctx, d.Project, h.Secret, origin)
			if errors.Is(err, admin.ErrSecretNotFound) || errors.Is(err, admin.ErrSecretNotFor) {
				return &secretError{h.Secret, origin, err}
			}
			if err != nil {
				return err
			}
			value = h.Prefix + string(secret)
		}
		header.Set(name, value)
	}
	return nil
}

// secretError reports a secret that a request cannot have.
type secretError struct {
	name, origin string
	err          error
}

func (e *secretError) Error() string {
	what := fmt.Sprintf("is not for %s", e.origin)
	if errors.Is(e.err, admin.ErrSecretNotFound) {
		what = "does not exist"
	}
	return fmt.Sprintf("secret %s %s: stepwell secrets set %[1]s --origin %[3]s", e.name, what, e.origin)
}

func (e *secretError) Unwrap() error { return e.err }

// decideHTTP decides what the answer to a request, or its error, means for the step.
func (s stepWork) decideHTTP(a answer, err error, attempts int, now time.Time) decision {
	if err != nil {
		f, retryable := requestFailure(err)
		return s.failure(f, retryable, 0, attempts, now)
	}
	success, retryable := s.spec.HTTP.Outcome(a.status)
	if success {
		return decision{event: entities.EventStepCompleted, payload: a.result()}
	}
	if len(a.body) > maxHTTPError {
		a.body = nil
	}
	return s.failure(contract.Failure{
		Message: strings.TrimSpace(fmt.Sprintf("the service answered %d %s", a.status, http.StatusText(a.status))),
		Code:    fmt.Sprintf("%s%d", httpCodePrefix, a.status), Details: a.result(),
	}, retryable, a.retryAfter, attempts, now)
}

// requestFailure returns the failure of a request without an answer, and whether to repeat the request.
func requestFailure(err error) (f contract.Failure, retryable bool) {
	f = contract.Failure{Message: queue.Storable(egress.Redact(err.Error())), Code: contract.CodeNoAnswer}
	forbidden, dial, secret := (*egress.ForbiddenError)(nil), (*net.OpError)(nil), (*secretError)(nil)
	switch {
	case errors.As(err, &forbidden), errors.Is(err, entities.ErrInvalid):
		f.Code = CodeForbiddenAddress
		return f, false
	case errors.As(err, &secret): // its address is that of the request, which is in the log
		return contract.Failure{Message: queue.Storable(secret.Error()), Code: CodeSecret}, false
	case isTooLarge(err):
		f.Code = CodeAnswerTooLarge
		return f, false
	case errors.As(err, &dial) && dial.Op == "dial":
		f.Code = CodeUnreachable
	}
	return f, true
}

// keptHeaders are the headers of answers that steps see.
var keptHeaders = []string{"Content-Type", "ETag", "Last-Modified", "Link", "Location", "Retry-After"}

// result returns the answer as the output of an HTTP step: its status, some headers, and the body in one of three
// forms.
func (a answer) result() json.RawMessage {
	v := struct {
		Status     int               `json:"status"`
		Headers    map[string]string `json:"headers,omitempty"`
		Body       json.RawMessage   `json:"body,omitempty"`
		Text       string            `json:"text,omitempty"`
		BodyBase64 []byte            `json:"bodyBase64,omitempty"`
	}{Status: a.status, Headers: map[string]string{}}
	for _, name := range keptHeaders {
		if value := a.header.Get(name); value != "" && len(value) <= maxKeptHeader {
			v.Headers[strings.ToLower(name)] = strings.ToValidUTF8(value, "�")
		}
	}
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
	switch {
	case len(a.body) == 0:
	case isJSON && json.Valid(a.body) && utf8.Valid(a.body) && strictjson.Check(a.body) == nil:
		v.Body = a.body
	case utf8.Valid(a.body):
		v.Text = string(a.body)
	default:
		v.BodyBase64 = a.body
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // all of it has a JSON form
	}
	return text
}
