package handlers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/semaphore"
)

const (
	// Requests are let in up to so many at once unless the options say otherwise, and their bodies up to so
	// many bytes.
	defaultRequests      = 1000
	defaultRequestMemory = 512 << 20

	// smallRequest is a body that is not accounted for.
	smallRequest = 64 << 10
	// unknownShare is how much memory a body of unknown length is given first, and meteredChunk how much at a
	// time from there on.
	unknownShare = 16 << 20
	meteredChunk = 1 << 20
	// bodyStall is how long a sender may keep silent in the middle of a body.
	bodyStall = 30 * time.Second
)

// errOverloaded: there is no room for the request now. The sender is told to come back.
type errOverloaded struct {
	status     int
	retryAfter time.Duration
}

func (e *errOverloaded) Error() string {
	return fmt.Sprintf("the server is overloaded: try again in %s", e.retryAfter)
}

// manners is how to treat the requests of one kind when there is no room: how long they may wait for it, and
// what they are then told. It follows from what clients do next (protocol §1.5, §1.6).
type manners struct {
	patience time.Duration
	status   int
}

var (
	// An event is thrown back at once: clients defer their message, or wait a second in place.
	eventManners = manners{time.Second, http.StatusTooManyRequests}
	// A message that is not taken fails a delivery, or the start of a run; that is worth some waiting.
	sendManners = manners{10 * time.Second, http.StatusTooManyRequests}
	// A chunk of a stream must not be thrown back: its sender's second attempt has lost it. Clients wait 30 s.
	chunkManners = manners{25 * time.Second, http.StatusServiceUnavailable}
	// Everything else is repeated by its sender, who minds what Retry-After says.
	otherManners = manners{5 * time.Second, http.StatusServiceUnavailable}
)

// mannersOf knows a request by its route.
func mannersOf(method, route string) manners {
	switch {
	case method == http.MethodPost && strings.HasPrefix(route, sdkPath+"/v4/runs/:runId/events/"):
		return eventManners
	case method == http.MethodPost && strings.HasPrefix(route, sdkPath+"/queues-proxy/"):
		return sendManners
	case method == http.MethodPut && strings.HasPrefix(route, sdkPath+"/v2/runs/:runId/stream/"):
		return chunkManners
	default:
		return otherManners
	}
}

// waits reports whether requests of the route take their time and next to nothing else: they follow a stream
// or wait for the end of a run.
func waits(route string) bool {
	switch route {
	case sdkPath + "/v2/stream/:name", sdkPath + "/v3/runs/:runId/stream/:name", sdkPath + "/v2/runs/:runId/status",
		nativePath + "/runs/:id/wait", nativePath + "/runs/:id/streams/:name/tail",
		nativePath + "/runs/:id/events/stream", nativePath + "/events/stream":
		return true
	default:
		return false
	}
}

// admission bounds what requests take together: how many are answered at once, and the memory of their bodies.
type admission struct {
	slots  *semaphore.Weighted
	memory *semaphore.Weighted
	limit  int64 // of memory
	// growing is held by the one body that may take more memory while it has some: two would wait for each other.
	growing *semaphore.Weighted
	stall   time.Duration
}

func newAdmission(requests, memory int64) *admission {
	if requests == 0 {
		requests = defaultRequests
	}
	if memory == 0 {
		memory = defaultRequestMemory
	}
	return &admission{
		slots: semaphore.NewWeighted(requests), memory: semaphore.NewWeighted(memory), limit: memory,
		growing: semaphore.NewWeighted(1), stall: bodyStall,
	}
}

// middleware lets requests in.
func (a *admission) middleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if waits(c.Path()) {
			return next(c)
		}
		r := c.Request()
		m := mannersOf(r.Method, c.Path())
		if err := m.acquire(r.Context(), a.slots, 1); err != nil {
			return err
		}
		defer a.slots.Release(1)
		b := &metered{ReadCloser: r.Body, ctx: r.Context(), admission: a, manners: m}
		defer b.release()
		conn := http.NewResponseController(c.Response().Writer)
		// A deadline long past breaks off the read under way.
		b.stalled = time.AfterFunc(a.stall, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
		b.stalled.Stop()
		if r.ContentLength > smallRequest {
			if err := b.grant(r.ContentLength); err != nil {
				return err
			}
		}
		r.Body = b
		return next(c)
	}
}

// acquire waits for n of what there is, as long as manners allow.
func (m manners) acquire(ctx context.Context, s *semaphore.Weighted, n int64) error {
	if s.TryAcquire(n) {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	err := s.Acquire(waiting, n)
	if err != nil && ctx.Err() == nil {
		return &errOverloaded{m.status, time.Second}
	}
	return err
}

// metered is a body that asks for memory before it is read: for all of it when its length is known, or else as
// it comes.
type metered struct {
	io.ReadCloser

	ctx       context.Context // of the request
	admission *admission
	manners   manners
	stalled   *time.Timer
	read      int64
	granted   int64
	grows     bool // that it holds growing
}

// release gives back what the body took.
func (b *metered) release() {
	b.stalled.Stop()
	b.admission.memory.Release(b.granted)
	if b.grows {
		b.admission.growing.Release(1)
	}
}

// grant asks for memory for n more bytes. What there is in all is enough for any one body.
func (b *metered) grant(n int64) error {
	n = min(n, b.admission.limit-b.granted)
	if err := b.manners.acquire(b.ctx, b.admission.memory, n); err != nil {
		return err
	}
	b.granted += n
	return nil
}

// grow asks for more memory than was granted.
func (b *metered) grow() error {
	if b.granted == 0 {
		return b.grant(unknownShare)
	}
	if !b.grows {
		if err := b.manners.acquire(b.ctx, b.admission.growing, 1); err != nil {
			return err
		}
		b.grows = true
	}
	return b.grant(meteredChunk)
}

// Read implements [io.Reader].
func (b *metered) Read(p []byte) (int, error) {
	b.stalled.Reset(b.admission.stall)
	n, err := b.ReadCloser.Read(p)
	b.stalled.Stop()
	b.read += int64(n)
	if err == nil && b.read > smallRequest && b.read > b.granted && b.granted < b.admission.limit {
		err = b.grow()
	}
	return n, err
}
