package stepwelltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
	"github.com/stepwell-dev/stepwell/sdk/internal/memserver"
)

// invocation is a call of a workflow: the first one, or a repeated one.
type invocation interface {
	engine.Inline
	// commit answers commands during the call.
	commit(commands []byte, after int64) (status int, body []byte)
	// write answers what is written to a stream during the call.
	write(w memserver.StreamWrite) (status int, answer []byte)
}

type invocationKey struct{}

// with returns a context whose invocation executes its inline steps and its commands by i.
func with(ctx context.Context, i invocation) context.Context {
	return context.WithValue(engine.WithInline(ctx, i), invocationKey{}, i)
}

// requests is the transport of requests that an app sends to the server during calls: commands, heartbeats and chunks
// of streams.
type requests struct{}

// RoundTrip implements http.RoundTripper.
func (requests) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	status, answer := http.StatusNotFound, []byte(nil)
	step, isStep := r.Context().Value(calledKey{}).(*calledStep)
	i, isInvocation := r.Context().Value(invocationKey{}).(invocation)
	switch {
	case isStep && strings.HasSuffix(r.URL.Path, "/call/heartbeat"):
		status = step.beat(body)
	case strings.HasSuffix(r.URL.Path, "/call/stream"):
		var w memserver.StreamWrite
		if err := json.Unmarshal(body, &w); err != nil {
			return nil, err
		}
		if isStep {
			status, answer = step.write(w)
		} else if isInvocation {
			status, answer = i.write(w)
		}
	case isInvocation:
		after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
		if err != nil {
			return nil, err
		}
		status, answer = i.commit(body, after)
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(answer)), Request: r}, nil
}

// calledStep is a call of a step.
type calledStep struct {
	c    *caller
	run  *memserver.Run
	id   string
	died bool
}

type calledKey struct{}

// beat answers a heartbeat.
func (s *calledStep) beat(body []byte) (status int) {
	var got struct{ Progress json.RawMessage }
	if err := json.Unmarshal(body, &got); err != nil {
		return http.StatusBadRequest
	}
	if s.died || s.c.server.Beat(s.run, s.id, got.Progress) != nil {
		return http.StatusGone
	}
	s.died = s.c.faults.crash("the process died after a heartbeat of step %s of run %s", s.id, s.run.ID)
	if s.died {
		return http.StatusGone
	}
	return http.StatusNoContent
}

// write answers what the step writes to a stream.
func (s *calledStep) write(w memserver.StreamWrite) (status int, answer []byte) {
	w.Step = s.id
	return writeStream(s.c, s.run, w, s, &s.died)
}

// writeStream answers what an attempt of a step, or the code of a workflow, writes to a stream. A process that died
// writes nothing.
func writeStream(
	c *caller, run *memserver.Run, w memserver.StreamWrite, attempt any, died *bool,
) (status int, answer []byte) {
	if *died {
		return http.StatusGone, nil
	}
	switch err := c.server.WriteStream(run, w, attempt); {
	case errors.Is(err, memserver.ErrStreamClosed):
		return http.StatusConflict, encode(errorBody("stream_closed", err.Error()))
	case err != nil:
		return http.StatusGone, nil
	}
	*died = c.faults.crash("the process died after it had written to stream %s of run %s", w.Stream, run.ID)
	if *died {
		return http.StatusGone, nil
	}
	return http.StatusNoContent, nil
}

// inline is the first call: it executes inline steps one at a time.
type inline struct {
	c       *caller
	run     *memserver.Run
	results []executed
	commits []committed
	writes  [][]byte // to streams, by the code of the workflow
	died    bool
}

// executed is an inline step that has been executed.
type executed struct {
	id      string
	result  engine.Result
	durable bool
}

// committed are commands during a call, and what the server has answered.
type committed struct {
	commands []byte
	status   int
	answer   []byte
}

// errDied ends an invocation whose process died.
var errDied = errors.New("the process died")

// Next implements engine.Inline.
func (i *inline) Next(running []*engine.Operation) int {
	if i.c.chooseInline == nil {
		return 0
	}
	return i.c.chooseInline(len(running))
}

// Execute implements engine.Inline.
func (i *inline) Execute(ctx context.Context, op *engine.Operation) (engine.Result, error) {
	if i.died {
		return engine.Result{}, errDied
	}
	r := op.Execute(ctx)
	i.c.happened(i.run.ID, op.ID, op.Name, op.Input)
	i.results = append(i.results, executed{op.ID, r, op.Durable})
	const died = "the process died after inline step %s of run %s, before its result was recorded"
	if i.c.faults.crash(died, op.ID, i.run.ID) {
		i.died = true
		i.checkLost()
		return engine.Result{}, errDied
	}
	return r, nil
}

// checkLost fails the test if the crash has lost more than the result of the step that has ended last, though the
// others are on disk as soon as they have ended.
func (i *inline) checkLost() {
	for _, x := range i.results[:len(i.results)-1] {
		if x.durable && (x.result.Output != nil || x.result.Error != nil) && !i.run.HasResult(x.id) {
			i.c.tb.Errorf("inline step %s of run %s had ended before, and its result is not on disk", x.id, i.run.ID)
		}
	}
}

// commit implements invocation.
func (i *inline) commit(commands []byte, after int64) (int, []byte) {
	if i.died {
		return http.StatusGone, nil
	}
	done := committed{commands, http.StatusOK, nil}
	events, err := i.c.server.Command(i.run, commands, after)
	switch {
	case errors.Is(err, memserver.ErrCallOver):
		done.status = http.StatusGone
	case err != nil:
		done.status, done.answer = http.StatusBadRequest, encode(errorBody("", err.Error()))
	default:
		done.answer = encode(map[string]any{"seq": after + int64(len(events)), "events": events})
	}
	i.commits = append(i.commits, done)
	if i.c.faults.crash("the process died after commit %d of an invocation of run %s", len(i.commits), i.run.ID) {
		i.died = true
		return http.StatusGone, nil
	}
	return done.status, done.answer
}

// write implements invocation. All calls of a workflow write as one, and so do those of one attempt of a step.
func (i *inline) write(w memserver.StreamWrite) (status int, answer []byte) {
	if w.Step != "" {
		return writeStream(i.c, i.run, w, [2]any{i, w.Attempt}, &i.died)
	}
	i.writes = append(i.writes, encode(w))
	return writeStream(i.c, i.run, w, nil, &i.died)
}

// canResume reports whether another process can go on with the log as the call has left it, and must then give the same
// answer. It need not if a step waits for another attempt.
func (i *inline) canResume() bool {
	return len(i.commits) > 0 && i.run.Status == "running" && !slices.ContainsFunc(i.results, func(x executed) bool {
		return x.result.Output == nil && x.result.Error == nil
	})
}

// afterwards is the call with the log as this one has left it.
func (i *inline) afterwards() *repeated {
	unrecorded := slices.DeleteFunc(slices.Clone(i.results), func(x executed) bool { return i.run.HasResult(x.id) })
	return &repeated{body: encode(i.c.server.CallOf(i.run)), results: unrecorded, writes: i.writes}
}

// repeated is a call that is made again. It gets the results of inline steps, and the answers to commands, that the
// first one has had.
type repeated struct {
	body    []byte
	results []executed
	commits []committed
	writes  [][]byte
	differs string
}

// Next implements engine.Inline.
func (r *repeated) Next(running []*engine.Operation) int {
	return max(0, slices.IndexFunc(running, func(op *engine.Operation) bool {
		return len(r.results) > 0 && op.ID == r.results[0].id
	}))
}

// Execute implements engine.Inline.
func (r *repeated) Execute(_ context.Context, op *engine.Operation) (engine.Result, error) {
	if len(r.results) == 0 || r.results[0].id != op.ID {
		return engine.Result{}, r.differ("the second of two calls with the same log asks for inline step %s at %s,"+
			" which the first did not", op.ID, op.Place)
	}
	next := r.results[0]
	r.results = r.results[1:]
	return next.result, nil
}

// commit implements invocation.
func (r *repeated) commit(commands []byte, _ int64) (int, []byte) {
	if len(r.commits) == 0 || !bytes.Equal(r.commits[0].commands, commands) {
		first := "nothing"
		if len(r.commits) > 0 {
			first = string(r.commits[0].commands)
		}
		_ = r.differ("two calls with the same log write different commands:\n%s\n%s", first, commands)
		return http.StatusGone, nil
	}
	next := r.commits[0]
	r.commits = r.commits[1:]
	return next.status, next.answer
}

// write implements invocation. What the first call has written is there already.
func (r *repeated) write(w memserver.StreamWrite) (status int, answer []byte) {
	if len(r.writes) == 0 || !bytes.Equal(r.writes[0], encode(w)) {
		_ = r.differ("two calls with the same log write differently to stream %s: %s", w.Stream, encode(w.Chunks))
		return http.StatusGone, nil
	}
	r.writes = r.writes[1:]
	return http.StatusNoContent, nil
}

// differ keeps the first difference, and returns an error that ends the call.
func (r *repeated) differ(format string, args ...any) error {
	if r.differs == "" {
		r.differs = fmt.Sprintf(format, args...)
	}
	return errors.New(r.differs)
}
