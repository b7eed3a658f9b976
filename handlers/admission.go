package handlers

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/semaphore"

	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

const (
	// The defaults of the limits on concurrent requests and on the bytes of their bodies.
	defaultRequests      = 1000
	defaultRequestMemory = 512 << 20

	// smallRequest is the size up to which bodies are not counted.
	smallRequest = 64 << 10
	// A body of unknown length first reserves firstReservation, and then nextReservation at a time.
	firstReservation = 16 << 20
	nextReservation  = 1 << 20
	// stallTimeout limits how long one read of a body may take.
	stallTimeout = 30 * time.Second
)

// overloadedError is returned when there is no capacity for a request. The client should retry.
type overloadedError struct {
	status     int
	retryAfter time.Duration
}

func (e *overloadedError) Error() string {
	return fmt.Sprintf("the server is overloaded: try again in %s", e.retryAfter)
}

// overloadPolicy is how a kind of requests is treated when there is no capacity: how long they wait for it, and the
// status of their rejection. The policies follow from how clients react (protocol §1.5, §1.6).
type overloadPolicy struct {
	deadline time.Duration
	status   int
}

var (
	// Clients handle a rejected event well: they defer their message, or retry after a second.
	eventPolicy = overloadPolicy{time.Second, http.StatusTooManyRequests}
	// A rejected message fails a delivery or the start of a run, so it waits longer.
	messagePolicy = overloadPolicy{10 * time.Second, http.StatusTooManyRequests}
	// A rejected chunk of a stream is lost, because the client does not send it again. Clients time out after 30 s.
	chunkPolicy = overloadPolicy{25 * time.Second, http.StatusServiceUnavailable}
	// Clients retry all other requests and respect Retry-After.
	defaultPolicy = overloadPolicy{5 * time.Second, http.StatusServiceUnavailable}
)

// policyOf returns the overload policy of a route.
func policyOf(method, route string) overloadPolicy {
	switch {
	case method == http.MethodPost && strings.HasPrefix(route, sdkPath+"/v4/runs/:runId/events/"):
		return eventPolicy
	case method == http.MethodPost && strings.HasPrefix(route, sdkPath+"/queues-proxy/"):
		return messagePolicy
	case method == http.MethodPut && strings.HasPrefix(route, sdkPath+"/v2/runs/:runId/stream/"):
		return chunkPolicy
	default:
		return defaultPolicy
	}
}

// isLongPoll reports whether requests of the route are long, but need few resources: they follow a stream or wait for
// the end of a run.
func isLongPoll(route string) bool {
	switch route {
	case sdkPath + "/v2/stream/:name", sdkPath + "/v3/runs/:runId/stream/:name", sdkPath + "/v2/runs/:runId/status",
		nativePath + "/runs/:id/wait", nativePath + "/runs/:id/streams/:name/tail",
		nativePath + "/runs/:id/events/stream", nativePath + "/events/stream":
		return true
	default:
		return false
	}
}

// admission limits the number of concurrent requests and the memory of their bodies.
type admission struct {
	slots  *semaphore.Weighted
	memory *semaphore.Weighted
	limit  int64 // of memory
	// growing is held by the one body that may reserve more memory while it holds some: two could deadlock.
	growing      *semaphore.Weighted
	stallTimeout time.Duration
}

func newAdmission(requests, memory int64) *admission {
	requests, memory = cmp.Or(requests, defaultRequests), cmp.Or(memory, defaultRequestMemory)
	return &admission{
		slots: semaphore.NewWeighted(requests), memory: semaphore.NewWeighted(memory), limit: memory,
		growing: semaphore.NewWeighted(1), stallTimeout: stallTimeout,
	}
}

// middleware admits requests or fails with an [overloadedError].
func (a *admission) middleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if isLongPoll(c.Path()) {
			return next(c)
		}
		r := c.Request()
		policy := policyOf(r.Method, c.Path())
		if err := policy.acquire(r.Context(), a.slots, 1); err != nil {
			return err
		}
		defer a.slots.Release(1)
		b := &metered{ReadCloser: r.Body, ctx: r.Context(), admission: a, policy: policy}
		defer b.release()
		b.stallTimer = time.AfterFunc(a.stallTimeout, incoming.AbortRead(c))
		b.stallTimer.Stop()
		if r.ContentLength > smallRequest {
			if err := b.reserve(r.ContentLength); err != nil {
				return err
			}
		}
		r.Body = b
		return next(c)
	}
}

// acquire waits for n units of the semaphore until the policy's deadline.
func (p overloadPolicy) acquire(ctx context.Context, s *semaphore.Weighted, n int64) error {
	if s.TryAcquire(n) {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, p.deadline)
	defer cancel()
	err := s.Acquire(waiting, n)
	if err != nil && ctx.Err() == nil {
		return &overloadedError{p.status, time.Second}
	}
	return err
}

// metered is a body that reserves memory: in advance if its length is known, otherwise as it is read.
type metered struct {
	io.ReadCloser

	ctx        context.Context // of the request
	admission  *admission
	policy     overloadPolicy
	stallTimer *time.Timer
	read       int64
	reserved   int64
	growing    bool // holds admission.growing
}

// release releases what the body holds.
func (b *metered) release() {
	b.stallTimer.Stop()
	b.admission.memory.Release(b.reserved)
	if b.growing {
		b.admission.growing.Release(1)
	}
}

// reserve reserves memory for n more bytes. One body reserves at most the whole limit, so that a body above the limit
// is admitted when it is alone.
func (b *metered) reserve(n int64) error {
	n = min(n, b.admission.limit-b.reserved)
	if err := b.policy.acquire(b.ctx, b.admission.memory, n); err != nil {
		return err
	}
	b.reserved += n
	return nil
}

// grow reserves more memory for a body of unknown length.
func (b *metered) grow() error {
	if b.reserved == 0 {
		return b.reserve(firstReservation)
	}
	if !b.growing {
		if err := b.policy.acquire(b.ctx, b.admission.growing, 1); err != nil {
			return err
		}
		b.growing = true
	}
	return b.reserve(nextReservation)
}

// Read implements [io.Reader].
func (b *metered) Read(p []byte) (int, error) {
	b.stallTimer.Reset(b.admission.stallTimeout)
	n, err := b.ReadCloser.Read(p)
	b.stallTimer.Stop()
	b.read += int64(n)
	if err == nil && b.read > smallRequest && b.read > b.reserved && b.reserved < b.admission.limit {
		err = b.grow()
	}
	return n, err
}
