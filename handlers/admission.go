package handlers

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

const (
	// The defaults of the limits on concurrent requests and on the bytes of their bodies.
	defaultRequests      = 1000
	defaultRequestMemory = 512 << 20
)

// overloaded returns the error for a request for which there is no capacity. The client should retry.
func overloaded(status int) error {
	const retryAfter = time.Second
	return &problem{
		status: status, code: "overloaded", retryAfter: retryAfter,
		message: fmt.Sprintf("the server is overloaded: try again in %s", retryAfter),
	}
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
	// A rejected chunk of a stream is lost if it came from the official client, which does not send it again. Clients time
	// out after 30 s.
	chunkPolicy = overloadPolicy{25 * time.Second, http.StatusServiceUnavailable}
	// Clients retry all other requests and respect Retry-After.
	defaultPolicy = overloadPolicy{5 * time.Second, http.StatusServiceUnavailable}
)

// policyOf returns the overload policy of a route.
func policyOf(method, route string) overloadPolicy {
	switch {
	case method == http.MethodPost && (strings.HasPrefix(route, sdkPath+"/v4/runs/:runId/events/") ||
		strings.HasPrefix(route, sdkPath+"/v5/runs/:runId/events/") || strings.HasPrefix(route, sdkPath+"/world/")):
		return eventPolicy
	case method == http.MethodPost && strings.HasPrefix(route, sdkPath+"/queues-proxy/"):
		return messagePolicy
	case method == http.MethodPut && strings.HasPrefix(route, sdkPath+"/v2/runs/:runId/stream/"):
		return chunkPolicy
	default:
		return defaultPolicy
	}
}

// waitsForRun reports whether a request that starts a run prefers to wait for its end, or one that sends it a message
// for the answer.
func waitsForRun(c echo.Context) bool {
	waits := c.Path() == nativePath+"/runs" || c.Path() == nativePath+"/runs/:id/inbox/:name"
	return waits && c.Request().Method == http.MethodPost && incoming.PreferredWait(c.Request()) > 0
}

// isLongPoll reports whether requests of the route are long, but need few resources once they have been received: they
// follow a stream, or wait for the end of a run, for deliveries or for calls.
func isLongPoll(route string) bool {
	return slices.Contains([]string{
		sdkPath + "/v2/stream/:name", sdkPath + "/v3/runs/:runId/stream/:name", sdkPath + "/v2/runs/:runId/status",
		sdkPath + "/world/v1/pull",
		nativePath + "/runs/:id/wait", nativePath + "/runs/:id/streams/:name/tail", nativePath + "/runs/:id/events/stream",
		nativePath + "/events/stream", nativePath + "/live", nativePath + "/work",
	}, route)
}

// The factors of [share.Pool] by which projects share the capacity for requests. A project that is alone gets three
// quarters of the requests. Bodies take memory as they arrive as long as their project has less than half of it.
//
// Bodies that hold memory must not wait for one another's. So a body takes memory for all of its announced length
// before it holds much; and of the bodies of unknown length, only one of each project grows large.
const (
	requestFactor = 3
	bodyFactor    = 1
	growingFactor = 7

	// startShare is the part of the memory up to which a body of known length takes memory as it arrives: one of 32.
	startShare = 32
	// freeShare is the part of the memory up to which a body of unknown length grows beside others: one of 8.
	freeShare = 8
	// bodyWeight is how many bytes of memory a byte of a body counts for: handling a body makes copies of it.
	bodyWeight = 3
)

const (
	// enteringPerProcessor is how many requests of all projects begin at once. Goroutines have no priorities, so whatever
	// gets ready for another project waits behind all of them each time: while others are active, a project begins one
	// of eight.
	enteringPerProcessor = 64
	contendedEntering    = 8
	// longestEntering is when a request that goes on lets the next one of its project begin: it waits for the database.
	longestEntering = 20 * time.Millisecond
)

// admission limits the number of concurrent requests and the memory of their bodies, and divides both between projects.
//
// A request is received before it runs. A client that sends a body slowly holds a slot among the requests that arrive,
// and memory for the bytes that have arrived, but no slot among those that run.
type admission struct {
	arriving, running *share.Pool
	entering          *share.Pool
	longestEntering   time.Duration
	memory            *share.Pool
	limit             int64 // of the memory
	// growing has one unit for each project: the right to go on growing.
	growing *share.Pool
	pace    share.Pace
	now     func() time.Time
	// starts holds back starts of runs while the server is busy; nil if there are none.
	starts *starts
	// project returns the project of a request.
	project func(echo.Context) string
}

func newAdmission(
	requests, memory int64, now func() time.Time, project func(echo.Context) string,
) *admission {
	requests, memory = cmp.Or(requests, defaultRequests), cmp.Or(memory, defaultRequestMemory)
	entering := share.NewPool(enteringPerProcessor * int64(runtime.GOMAXPROCS(0)))
	entering.Contended = enteringPerProcessor / contendedEntering * int64(runtime.GOMAXPROCS(0))
	return &admission{
		arriving: share.NewPool(requests), running: share.NewPool(requests),
		entering: entering, longestEntering: longestEntering,
		memory: share.NewPool(memory), limit: memory,
		growing: share.NewPool(math.MaxInt64), pace: bodyPace, now: now, project: project,
	}
}

// middleware admits requests or fails with [overloaded]. What is done for a request counts for its project.
func (a *admission) middleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		v := &visit{admission: a, project: a.project(c), overloadPolicy: policyOf(c.Request().Method, c.Path())}
		defer v.release()
		c.SetRequest(c.Request().WithContext(share.For(c.Request().Context(), v.project)))
		if isLongPoll(c.Path()) {
			return v.longPoll(next, c)
		}
		if err := v.receiveStart(c); err != nil {
			return err
		}
		if err := v.take(c.Request().Context(), a.running, 1, requestFactor); err != nil {
			return err
		}
		v.arrived()
		done := sync.OnceFunc(func() { a.running.Release(v.project, 1) })
		defer done()
		incoming.OnWait(c, func() {
			done()
			if v.begins || waitsForRun(c) { // what was sent is in the log, and the body is not needed any more
				v.release()
			}
		})
		entered, err := v.enter(c.Request().Context())
		if err != nil {
			return err
		}
		defer entered()
		return next(c)
	}
}

// visit is a request on its way to its handler.
type visit struct {
	*admission
	overloadPolicy

	project  string
	waited   time.Duration // for capacity
	arrives  bool          // holds a unit of arriving
	grows    bool          // holds a unit of growing
	begins   bool          // starts a run, and has been admitted to do so
	reserved int64         // bytes of memory
	// beginning is the first piece of the body.
	beginning []byte
}

// startWait is the key under which a request has how long it waited until a run might start.
const startWait = "startWait"

// start waits until a run may start.
func (v *visit) start(c echo.Context, run string) error {
	if v.starts == nil {
		return nil
	}
	came := v.now()
	err := v.starts.admit(c.Request().Context(), v.project, run)
	c.Set(startWait, v.now().Sub(came))
	v.begins = err == nil
	return err
}

// longPoll lets a request pass that holds no slot. Only a POST has a body that counts: others are answered without.
func (v *visit) longPoll(next echo.HandlerFunc, c echo.Context) error {
	if c.Request().Method == http.MethodPost {
		if err := v.receive(c); err != nil {
			return err
		}
	}
	v.arrived()
	return next(c)
}

// receiveStart receives a request, and waits until its run may start if it starts one. The body comes first: a sender
// that is slow must not hold one of the slots for starts, and a request that is refused after its body leaves its
// connection open.
func (v *visit) receiveStart(c echo.Context) error {
	if err := v.receive(c); err != nil {
		return err
	}
	run, starts := startedRun(c)
	if !starts {
		run, starts = messagedRun(c, v.beginning)
	}
	if !starts {
		return nil
	}
	v.arrived()
	return v.start(c, run)
}

// take waits for units of the pool until the policy's deadline, which is one for all that the request waits for.
func (v *visit) take(ctx context.Context, p *share.Pool, units, factor int64) error {
	if p.Try(v.project, units, factor) {
		return nil
	}
	start := v.now()
	defer func() { v.waited += v.now().Sub(start) }()
	waiting, cancel := context.WithTimeout(ctx, v.deadline-v.waited)
	defer cancel()
	err := p.Take(waiting, v.project, units, factor)
	if err != nil && ctx.Err() == nil {
		return overloaded(v.status)
	}
	return err
}

// enter waits until the project may begin another request. It has begun when it ends, or takes long.
func (v *visit) enter(ctx context.Context) (end func(), err error) {
	if err := v.take(ctx, v.entering, 1, requestFactor); err != nil {
		return nil, err
	}
	once := sync.OnceFunc(func() { v.entering.Release(v.project, 1) })
	longest := time.AfterFunc(v.longestEntering, once)
	return func() {
		longest.Stop()
		once()
	}, nil
}

// reserve reserves memory for a body that has grown to the given size. The length is the announced one, or -1. A sender
// that has sent much of a long body gets the memory for the rest at once.
func (v *visit) reserve(ctx context.Context, size, length int64) error {
	n := v.missing(size)
	if n <= 0 {
		return nil
	}
	factor := int64(growingFactor)
	switch {
	case length > 0 && v.reserved+n > v.limit/startShare:
		n = v.missing(length)
	case v.grows:
	case (length > 0 || v.reserved+n <= v.limit/freeShare) && v.memory.Try(v.project, n, bodyFactor):
		v.reserved += n
		return nil
	case length > 0:
		factor = bodyFactor
	default:
		if err := v.take(ctx, v.growing, 1, 0); err != nil {
			return err
		}
		v.grows = true
	}
	if err := v.take(ctx, v.memory, n, factor); err != nil {
		return err
	}
	v.reserved += n
	return nil
}

// missing returns the memory that a body of the given size needs in addition; its first bytes need none. A body needs
// at most what one project can have, so that a body above the limit is admitted when it is alone.
func (v *visit) missing(size int64) int64 {
	return min((size-smallBody)*bodyWeight, v.memory.Most(growingFactor)) - v.reserved
}

// release releases what the request holds.
func (v *visit) release() {
	if v.reserved > 0 {
		v.memory.Release(v.project, v.reserved)
	}
	if v.grows {
		v.growing.Release(v.project, 1)
	}
	if v.begins {
		v.starts.served(v.project)
	}
	v.reserved, v.grows, v.begins = 0, false, false
	v.arrived()
}

// arrived releases the request's slot among those that arrive.
func (v *visit) arrived() {
	if v.arrives {
		v.arriving.Release(v.project, 1)
	}
	v.arrives = false
}
