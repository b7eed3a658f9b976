package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/queue"
)

// answer is the answer of a function.
type answer struct {
	status     int
	retryAfter time.Duration // from the Retry-After header; 0 without one
	asksLater  bool          // whether there is a Retry-After header
	body       []byte
	// header is that of the answer to an HTTP step; nil for a function.
	header http.Header
	// isStepAnswer says that the body is a [contract.StepAnswer].
	isStepAnswer bool
}

func (a answer) ok() bool { return a.status/100 == 2 }

// tooLargeError refuses an answer that has more bytes than its limit.
type tooLargeError struct{ limit int64 }

// Error implements error.
func (e *tooLargeError) Error() string { return e.Redacted() }

// Redacted returns the whole text.
func (e *tooLargeError) Redacted() string {
	return fmt.Sprintf("the answer is larger than %d MiB: answer with less, such as where the rest is", e.limit>>20)
}

// isTooLarge reports whether an answer was refused for its size.
func isTooLarge(err error) bool {
	_, ok := errors.AsType[*tooLargeError](err)
	return ok
}

// noAnswer is the error of a function that took longer than it may.
func noAnswer(timeout time.Duration) error {
	return queue.PublicError(fmt.Sprintf("no answer within %s", timeout))
}

// askInTime is [Engine.ask] with a time limit, and one for the silence between heartbeats; 0 for none.
func (e *Engine) askInTime(
	ctx context.Context, d queue.Delivery, c contract.Call, timeout, silence time.Duration,
) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, noAnswer(timeout))
	defer cancel()
	if silence <= 0 {
		return e.ask(ctx, d, c)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go d.WatchBeats(ctx, silence, func() { stop(noHeartbeat(silence)) })
	return e.ask(ctx, d, c)
}

// noHeartbeat is the error of a function that was silent for longer than it may.
func noHeartbeat(silence time.Duration) error {
	return queue.PublicError(fmt.Sprintf("no heartbeat within %s", silence))
}

// askOnLease is [Engine.ask] until only a tenth of the lease is left, for applying the answer. Commands that the
// function sends meanwhile extend the lease.
func (e *Engine) askOnLease(ctx context.Context, d queue.Delivery, c contract.Call) (answer, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	reserve := d.LeaseTime() / 10
	go d.WatchLease(ctx, reserve, func() { stop(noAnswer(d.LeaseTime() - reserve)) })
	return e.ask(ctx, d, c)
}

// ask calls a function and returns its answer. It fails when the context or the run ends, for a step [lateAnswers]
// later, and then closes the connection, which tells the function to stop.
func (e *Engine) ask(ctx context.Context, d queue.Delivery, c contract.Call) (answer, error) {
	if !d.Callable() {
		return answer{}, d.Unregistered()
	}
	if d.IsFlow() {
		return e.askFlow(ctx, d, c)
	}
	if f := d.Unhealthy(ctx); f != nil {
		return answer{}, f
	}
	return e.whileWanted(ctx, d, func(ctx context.Context) (answer, error) { return e.postCall(ctx, d, c) })
}

// whileWanted sends a request. It fails as [Engine.ask] does, or when the step is cancelled while its run goes on.
func (e *Engine) whileWanted(
	ctx context.Context, d queue.Delivery, send func(context.Context) (answer, error),
) (answer, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(rescue.Do(ctx, "watch", func() error { return e.watch(ctx, d) })) }()
	a, err := send(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return answer{}, cause
	}
	return a, err
}

// errStepOver ends the call of a step that was cancelled, or whose run has ended.
var errStepOver = errors.New("nobody needs the step any more")

// watch waits until the answer to a call does not matter any more, and returns the reason.
func (e *Engine) watch(ctx context.Context, d queue.Delivery) error {
	if d.Work != message.WorkStep {
		return cmp.Or(e.log.WatchEnd(ctx, d.Project, d.RunID), entities.ErrRunEnded)
	}
	if err := e.log.WatchStep(ctx, d.Project, d.RunID, entities.StepID(d.Subject)); err != nil {
		return err
	}
	return e.awaitLateAnswer(ctx, d)
}

// encode encodes a call.
func (e *Engine) encode(ctx context.Context, c contract.Call) (body []byte, err error) {
	size := len(c.Run.Input)
	if c.Step != nil {
		size += len(c.Step.Input)
	}
	for _, event := range c.Events {
		size += len(event)
	}
	err = e.queue.Processors().Use(ctx, int64(size), func() (err error) {
		body, err = json.Marshal(c)
		return err
	})
	return body, err
}

// postCall sends the call. The idempotency key names the run, or the step, so that a function can recognize repeated
// calls.
func (e *Engine) postCall(ctx context.Context, d queue.Delivery, c contract.Call) (answer, error) {
	body, err := e.encode(ctx, c)
	if err != nil {
		return answer{}, fmt.Errorf("encode call: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "stepwell")
	req.Header.Set(contract.HeaderInvocation, d.Lease)
	req.Header.Set(contract.HeaderRun, string(d.RunID))
	key := string(d.RunID)
	if d.Work == message.WorkStep {
		key += "/" + d.Subject
	}
	req.Header.Set(contract.HeaderIdempotencyKey, key)
	if d.Work == message.WorkStep {
		req = sentOnce(req)
	}
	resp, err := d.Call(req, body)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{
		status: resp.StatusCode, retryAfter: retryAfter(resp.Header.Get("Retry-After"), e.log.Now()),
		asksLater:    len(resp.Header.Values("Retry-After")) > 0,
		isStepAnswer: contract.IsStepAnswer(resp.Header.Get("Content-Type")),
	}
	if a.body, err = readAnswer(resp, contract.MaxAnswer); err != nil {
		return answer{}, err
	}
	if reason, ok := a.isRefusal(); ok {
		return answer{}, d.NotServed(reason)
	}
	return a, nil
}

// sentOnce returns the request of a step's attempt, which is not repeated once it was sent. The transport would do so
// if a connection that it has reused ends without an answer, because of the Idempotency-Key. The answer to the
// repetition would then hide that there was an attempt whose outcome nobody knows. It counts as sent when it is in the
// transport's buffer: one of which the connection has taken nothing is an attempt without an answer, too. HTTP/2 only
// repeats what the service has not looked at, so it may. Requests without a body are repeated all the same.
func sentOnce(req *http.Request) *http.Request {
	body := req.GetBody
	if body == nil {
		return req
	}
	var sent, mayRepeat atomic.Bool
	req.GetBody = func() (io.ReadCloser, error) {
		if sent.Load() && !mayRepeat.Load() {
			return nil, io.EOF // as on a new connection
		}
		return body()
	}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			secure, ok := c.Conn.(*tls.Conn)
			mayRepeat.Store(ok && secure.ConnectionState().NegotiatedProtocol == "h2")
		},
		WroteRequest: func(w httptrace.WroteRequestInfo) { sent.Store(w.Err == nil) },
	}))
}

func readAnswer(resp *http.Response, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if int64(len(body)) > limit {
		return nil, &tooLargeError{limit}
	}
	return body, nil
}

// The codes with which a process refuses a call that it has not carried out, together with the status 503.
const (
	// codeShutdown means that the process shuts down.
	codeShutdown = "shutdown"
	// codeUnknownStep means that the program lacks the step: it is an older one than the workflow, perhaps.
	codeUnknownStep = "unknown_step"
	// codeCodec means that the program cannot decode the payloads, since it lacks a key, perhaps.
	codeCodec = "codec_failed"
)

// isRefusal reports whether the process has refused the call. Another one is called later, as if this one had not been
// reached.
func (a answer) isRefusal() (reason string, ok bool) {
	if a.status != http.StatusServiceUnavailable {
		return "", false
	}
	switch f, _ := parseFailure(a, nil); f.Code {
	case codeShutdown, codeUnknownStep, codeCodec:
		return f.Message, true
	default:
		return "", false
	}
}

// retryAfter parses the Retry-After header, which has seconds or a date. It returns 0 for anything else.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(min(max(0, seconds), int(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter)
	}
	return 0
}

// maxRetryAfter is the longest pause that a function can request.
const maxRetryAfter = 24 * time.Hour
