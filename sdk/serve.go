package stepwell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
	"github.com/stepwell-dev/stepwell/sdk/signature"
)

const (
	// longestCall is the size limit of a call in bytes: a log of 1,000 events and an input of 16 MiB fit into it.
	longestCall = 64 << 20
	// mostEvents is how many events a call has at most.
	mostEvents = 1000
	// invocationTime is how long an invocation may take. The server waits for an answer for four and a half minutes.
	invocationTime = 4 * time.Minute
)

// call is a call of the server; see docs/function-contract.md.
type call struct {
	Type       string `json:"type"`
	Invocation string `json:"invocation"`
	Attempt    int    `json:"attempt"`
	Run        struct {
		ID         string          `json:"id"`
		Workflow   string          `json:"workflow"`
		Deployment string          `json:"deployment"`
		Key        string          `json:"key"`
		ParentID   string          `json:"parentId"`
		Input      json.RawMessage `json:"input"`
		// Store has the values of the run's store.
		Store map[string]json.RawMessage `json:"store"`
	} `json:"run"`
	Server struct {
		Features []string `json:"features"`
	} `json:"server"`
	// Token is the credential of the call.
	Token    string         `json:"token"`
	HooksURL string         `json:"hooksUrl"`
	Events   []engine.Event `json:"events"`
	After    int64          `json:"after"`
	// Known is the length of the log at the last call that was answered, and Since is set if Events has only what follows
	// that position, because the process Keep has kept the run.
	Known int64  `json:"known"`
	Since int64  `json:"since"`
	Keep  string `json:"keep"`
	// trace is the trace context of the call, which its header has.
	trace TraceContext
	// unreadable is why its payloads cannot be decoded.
	unreadable error
	Step       struct {
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
		Deadline time.Time       `json:"deadline"`
		// Progress is what an earlier attempt has last said with a heartbeat.
		Progress json.RawMessage `json:"progress"`
	} `json:"step"`
}

// answer is the answer to an invocation.
type answer struct {
	Commands []any    `json:"commands"`
	Open     []string `json:"open,omitempty"`

	// Seen is the position of the last event that the function knows.
	Seen  int64         `json:"seen,omitempty"`
	Await *engine.Await `json:"await,omitempty"`
	Keep  *keepHint     `json:"keep,omitempty"`
}

// Handler returns the HTTP handler that the server calls. It fails if definitions cannot work, and if the app has
// neither signing keys nor a reason to do without.
func (a *App) Handler() (http.Handler, error) { return a.handler(a.signingKeys, a.unsigned) }

func (a *App) handler(signingKeys, unsigned string) (http.Handler, error) {
	if err := errors.Join(a.check(), a.checkServer()); err != nil {
		return nil, err
	}
	switch {
	case signingKeys == "" && unsigned == "":
		return nil, errors.New("the app has no signing keys: create one with stepwell signing-keys create, and set " +
			"STEPWELL_SIGNING_KEYS or SigningKeys of AppConfig; or say there why calls are Unsigned")
	case signingKeys != "" && unsigned != "":
		return nil, errors.New("AppConfig has both SigningKeys and Unsigned: leave one of them out")
	}
	a.serving.signed = signingKeys != ""
	if signingKeys == "" {
		return a.guard(http.HandlerFunc(a.serve)), nil
	}
	keys, err := signature.ParseKeys(signingKeys)
	if err != nil {
		return nil, fmt.Errorf("parse the signing keys: %w", err)
	}
	return signature.Handler{Next: a.guard(http.HandlerFunc(a.serve)), Keys: keys, Now: a.now}, nil
}

// checkServer returns why the server's address cannot be one.
func (a *App) checkServer() error {
	if a.serving.server == "" {
		return nil
	}
	if _, err := NewClient(ClientConfig{URL: a.serving.server}); err != nil {
		return fmt.Errorf("the server of AppConfig or STEPWELL_URL: %w", err)
	}
	return nil
}

func (a *App) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions { // the server asks what it may call the app with
		w.Header().Set(featuresHeader, typeCheck)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var c call
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestCall))
	if err == nil {
		c, err = a.decodeCall(body)
		c.trace = TraceContext{r.Header.Get("Traceparent"), r.Header.Get("Tracestate")}
	}
	if err != nil {
		errorReply(http.StatusBadRequest, failure{Message: "read the call: " + err.Error()}).write(w)
		return
	}
	a.serveKept(w, r, c)
}

// decodeCall decodes the body of a call.
func (a *App) decodeCall(body []byte) (c call, err error) {
	plain, unreadable := opened(a.codec, body)
	if unreadable == nil {
		body = plain
	}
	c.unreadable = unreadable
	c.Events = make([]engine.Event, 0, min(bytes.Count(body, []byte(`"seq":`)), mostEvents))
	err = json.Unmarshal(body, &c)
	return c, err
}

// reply answers a call. The context ends when the answer is not wanted any more.
func (a *App) reply(ctx context.Context, c call) reply { return a.sealed(ctx, c, a.plainReply(ctx, c)) }

func (a *App) plainReply(ctx context.Context, c call) reply {
	switch {
	case c.unreadable == nil:
	case c.Type == "step": // no attempt is counted
		return errorReply(http.StatusServiceUnavailable, encodeError(c.unreadable))
	default: // the run is blocked
		return errorReply(http.StatusInternalServerError, encodeError(c.unreadable))
	}
	switch c.Type {
	case "workflow":
		return a.serveWorkflow(ctx, c)
	case "step":
		return a.serveStep(ctx, c)
	case typeCheck:
		return a.serveCheck(ctx, c)
	default:
		return errorReply(http.StatusBadRequest, failure{Message: fmt.Sprintf("unknown type of call %q", c.Type)})
	}
}

// untilClosed returns the context of a request, which ends with the given cause when the server closes the connection.
func untilClosed(request context.Context, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(request))
	detach := context.AfterFunc(request, func() {
		if why := context.Cause(request); why != context.Canceled { //nolint:errorlint // the bare one says nothing
			cause = why
		}
		cancel(cause)
	})
	return ctx, func() {
		detach()
		cancel(nil)
	}
}

func (a *App) serveWorkflow(request context.Context, c call) reply {
	ctx, closed := untilClosed(request, ErrRunEnded)
	defer closed()
	ctx, cancel := context.WithTimeout(ctx, invocationTime)
	defer cancel()
	got, err := a.serving.underWay.share(ctx, callID{c.Invocation, c.Attempt}, func() (answer, error) {
		return a.invoke(ctx, c)
	})
	switch {
	case err == nil:
		return jsonReply(http.StatusOK, got)
	case errors.Is(err, errNotKept):
		return reply{Status: http.StatusPreconditionFailed}
	case errors.Is(err, ErrShutdown):
		return shutdownReply()
	case errors.Is(err, errStale), errors.Is(err, ErrRunEnded): // the server calls again
		return errorReply(http.StatusConflict, failure{Message: err.Error(), Code: "stale_invocation"})
	default:
		a.logger.ErrorContext(ctx, "the workflow is blocked", "run", c.Run.ID, "workflow", c.Run.Workflow, "error", err)
		return errorReply(http.StatusInternalServerError, encodeError(err))
	}
}

func (a *App) serveStep(request context.Context, c call) reply {
	d, ok := a.steps[c.Step.Name]
	if !ok {
		f := failure{Code: "unknown_step", Message: fmt.Sprintf(
			"app %s has no step %q: register it with Bind, or declare it with Deployment", a.name, c.Step.Name)}
		a.logger.ErrorContext(request, f.Message, "run", c.Run.ID)
		return errorReply(http.StatusServiceUnavailable, f) // no attempt is counted
	}
	ctx, closed := untilClosed(request, ErrStepCancelled)
	defer closed()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// When a server says that nobody waits any more, the call is cancelled.
	host := a.newHost(c, func(error) { cancel(ErrStepCancelled) })
	heartbeats := a.newHeartbeats(ctx, c, host)
	ctx, store := withStore(ctx, c.Run.Store)
	if !c.Step.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, c.Step.Deadline, ErrAttemptTimeout)
		defer cancel()
	}
	ctx, streams := a.withStreams(ctx, host, c.Server.Features)
	info := StepInfo{Run: infoOf(c), ID: c.Step.ID, Name: c.Step.Name, Attempt: max(c.Attempt, 1), Trace: c.trace}
	s := stepContext{info, a, heartbeats, c.Step.Progress}
	output, err := attempt(ctx, s, 0, func(ctx context.Context) (json.RawMessage, error) {
		return d.step(ctx, c.Step.Input)
	})
	if sent := streams.end(); sent != nil {
		err = errors.Join(sent, err)
	}
	heartbeats.end(err != nil && !isPermanent(err))
	if err == nil {
		return outputReply(output, store.writes())
	}
	status := http.StatusInternalServerError
	if isPermanent(err) {
		status = http.StatusUnprocessableEntity
	}
	answer := errorReply(status, encodeStepError(err))
	if again, ok := errors.AsType[*retryError](err); ok {
		answer.RetryAfter = strconv.Itoa(max(1, int((again.after+time.Second-1)/time.Second)))
	}
	return answer
}

// reply is the answer to a call, as it is also sent by a request of its own.
type reply struct {
	Status      int             `json:"status"`
	ContentType string          `json:"contentType,omitempty"`
	RetryAfter  string          `json:"retryAfter,omitempty"`
	Body        json.RawMessage `json:"body"`
}

func (r reply) write(w http.ResponseWriter) {
	for name, value := range map[string]string{"Content-Type": r.ContentType, "Retry-After": r.RetryAfter} {
		if value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body) // the server calls again if the answer is lost
}

// outputReply answers the call of a step that has completed.
func outputReply(output json.RawMessage, writes map[string]json.RawMessage) reply {
	if len(writes) == 0 {
		return jsonReply(http.StatusOK, output)
	}
	answer := jsonReply(http.StatusOK, map[string]any{"output": output, "store": writes})
	answer.ContentType = stepOutput
	return answer
}

// stepOutput is the content type of a step's answer that has writes to the store beside the output.
const stepOutput = "application/vnd.stepwell.step+json"

func errorReply(status int, f failure) reply {
	return jsonReply(status, map[string]failure{"error": f})
}

func jsonReply(status int, v any) reply {
	data, err := json.Marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer cannot be encoded"}}`)
	}
	return reply{status, "application/json", "", data}
}

// callsUnderWay lets copies of one call, which proxies may send, share one execution and its answer. So inline steps do
// not happen twice, and have one result.
type callsUnderWay struct {
	mu sync.Mutex
	by map[callID]*sharedCall
}

type callID struct {
	invocation string
	attempt    int
}

type sharedCall struct {
	done chan struct{}
	more int // copies that wait
	got  answer
	err  error
}

// share executes fn, or waits for the execution of another copy of the call.
func (u *callsUnderWay) share(ctx context.Context, id callID, fn func() (answer, error)) (answer, error) {
	u.mu.Lock()
	if s, ok := u.by[id]; ok && id.invocation != "" {
		s.more++
		u.mu.Unlock()
		select {
		case <-s.done:
			return s.got, s.err
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
	}
	s := &sharedCall{done: make(chan struct{}), err: errStale}
	u.by[id] = s
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		delete(u.by, id)
		u.mu.Unlock()
		close(s.done)
	}()
	s.got, s.err = fn()
	return s.got, s.err
}
