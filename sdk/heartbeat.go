package stepwell

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// HeartbeatTimeout lets an attempt of a step fail when its function has not called [Heartbeat] for that long: from two
// seconds to 12 hours. A process that hangs or has lost its network is then noticed before the time of the attempt is
// over, which [AttemptTimeout] limits as always. All attempts are calls of their own, as with [Remote].
func HeartbeatTimeout(d time.Duration) StepOption {
	return stepOption(func(o *stepOptions) {
		o.remote, o.heartbeatTimeout = true, d
		o.check(2*time.Second <= d && d <= 12*time.Hour, "HeartbeatTimeout(%s): it is from two seconds to 12 hours", d)
	})
}

// Heartbeat says that a step is worked on, and how far it is: the next attempt gets the progress from [LastProgress].
// It is JSON of up to 4 KiB; nil says nothing new. The error is why nobody waits for the step any more, and then the
// step should end: the step or its run was cancelled or has ended, or the server makes the call again.
//
// It may be called as often as is convenient: at most one heartbeat in a second is sent, with the newest progress. If
// the attempt fails, its last progress is sent before. While no server can be reached, Heartbeat goes on trying.
//
// Steps that are executed where their workflow runs have no heartbeats: they end with the call of their workflow, and
// nothing is kept of their progress. Declare a step that has some with [HeartbeatTimeout] or [Remote].
func Heartbeat(ctx context.Context, progress any) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s, ok := stepOf(ctx)
	if !ok || s.heartbeats == nil {
		return nil
	}
	data, err := encode(progress)
	switch {
	case err != nil:
		return fmt.Errorf("encode the progress: %w", err)
	case grown(s.app.codec, len(data)) > mostProgress:
		return fmt.Errorf("the progress has %d bytes; the limit is %d", grown(s.app.codec, len(data)), mostProgress)
	case progress == nil:
		data = nil
	}
	s.heartbeats.beat(data)
	return context.Cause(ctx)
}

// LastProgress returns what an earlier attempt of the step last said with [Heartbeat] about how far it was; false if
// none did, or if it does not decode as T.
func LastProgress[T any](ctx context.Context) (T, bool) {
	s, _ := stepOf(ctx)
	if len(s.progress) == 0 {
		return *new(T), false
	}
	v, err := decode[T](s.progress)
	return v, err == nil
}

const (
	// mostProgress is the size limit of what a heartbeat says, in bytes.
	mostProgress = 4 << 10
	// beatEvery is how far apart heartbeats are sent. The server refuses more than one in a second.
	beatEvery = 1100 * time.Millisecond
	// beatTime is how long it is tried to send one.
	beatTime = 3 * time.Second
)

// heartbeats sends those of a step's call.
type heartbeats struct {
	ctx  context.Context //nolint:containedctx // that of the call
	host *callHost
	// every is how far apart they are at least.
	every time.Duration

	mu     sync.Mutex
	unsent bool
	latest json.RawMessage // nil if the last one that was sent had it
	pause  *time.Timer     // until the next one may be sent; nil if that is now
}

// newHeartbeats returns what sends the heartbeats of a step's call; nil without a server that takes heartbeats.
func (a *App) newHeartbeats(ctx context.Context, c call, host *callHost) *heartbeats {
	if host == nil || !slices.Contains(c.Server.Features, "heartbeat") {
		return nil
	}
	return &heartbeats{ctx: ctx, host: host, every: a.serving.beatEvery}
}

// beat sends a heartbeat, now or as soon as one may be sent.
func (h *heartbeats) beat(progress json.RawMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsent = true
	if progress != nil {
		h.latest = progress
	}
	if h.pause == nil {
		h.send()
	}
}

// send sends the heartbeat if it was not sent, and begins the pause. What no server has taken is sent again after it.
func (h *heartbeats) send() {
	if !h.unsent || h.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(h.ctx, beatTime)
	defer cancel()
	err := h.host.beat(ctx, h.latest)
	if h.unsent = err != nil && !isRefused(err); !h.unsent {
		h.latest = nil
	}
	if h.every == 0 && !h.unsent {
		return
	}
	h.pause = time.AfterFunc(h.every, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.pause = nil
		h.send()
	})
}

// end sends what the next attempt has to know, if there is one.
func (h *heartbeats) end(again bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unsent = h.unsent && again && h.latest != nil; h.unsent {
		h.send()
		h.unsent = false
	}
	if h.pause != nil {
		h.pause.Stop()
	}
}

// beat says that the step of the call is worked on, and how far it is.
func (h *callHost) beat(ctx context.Context, progress json.RawMessage) error {
	return h.do(ctx, apiRequest{method: http.MethodPost, path: h.run + "/call/heartbeat", body: struct {
		Progress json.RawMessage `json:"progress,omitempty"`
	}{progress}}, nil)
}
