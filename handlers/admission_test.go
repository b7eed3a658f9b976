package handlers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// limitedServer is a server with low limits and one endpoint of each kind. Endpoints answer with the size of the body.
type limitedServer struct {
	*httptest.Server

	admission *admission
	reading   chan string // receives the path of each admitted request
}

func newLimitedServer(t *testing.T, requests, memory int64) *limitedServer {
	t.Helper()
	s := &limitedServer{admission: newAdmission(requests, memory, time.Now, projectOf), reading: make(chan string, 10)}
	e := echo.New()
	e.HTTPErrorHandler = errorHandler(slog.New(slog.DiscardHandler))
	e.Use(s.admission.middleware)
	count := func(c echo.Context) error {
		s.reading <- c.Path()
		n, err := io.Copy(io.Discard, c.Request().Body)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, n)
	}
	for _, path := range []string{
		sdkPath + "/v4/runs/:runId/events/:eventType", sdkPath + "/queues-proxy/api/v3/topic/:topic", sdkPath + deliveries,
	} {
		e.POST(path, count)
	}
	e.PUT(sdkPath+"/v2/runs/:runId/stream/:name", count)
	e.GET(sdkPath+"/v2/runs/:runId/status", count)
	e.GET(sdkPath+"/v3/runs", count)
	s.Server = httptest.NewServer(e)
	t.Cleanup(s.Close)
	return s
}

// projectOf returns the project of a request to a limited server.
func projectOf(c echo.Context) string { return c.Request().Header.Get("Project") }

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// begin sends a request whose body ends when it is closed. It reads the response while it sends: the server may answer
// and close the connection before the body ends, and an http.Client would then report the failed write.
func (s *limitedServer) begin(t *testing.T, method, path string, length int64) (body io.WriteCloser, answer <-chan *http.Response) {
	t.Helper()
	r, w := io.Pipe()
	req := check.Value(http.NewRequestWithContext(t.Context(), method, s.URL+sdkPath+path, r))(t)
	req.ContentLength = length
	conn := check.Value(new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String()))(t)
	t.Cleanup(func() { _ = conn.Close() })
	go func() { _ = r.CloseWithError(req.Write(conn)) }()
	c := make(chan *http.Response, 1)
	go func() {
		defer close(c)
		resp, err := http.ReadResponse(bufio.NewReader(conn), req)
		if err != nil {
			t.Error(err)
			return
		}
		c <- resp
	}()
	return w, c
}

func (s *limitedServer) do(t *testing.T, method, path string, size int) *http.Response {
	t.Helper()
	req := check.Value(http.NewRequestWithContext(t.Context(), method, s.URL+sdkPath+path, bytes.NewReader(make([]byte, size))))(t)
	resp := check.Value(s.Client().Do(req))(t)
	return resp
}

// wantCount checks that the response has the size of the body.
func wantCount(t *testing.T, resp *http.Response, want int) {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	var got int
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK || got != want {
		t.Errorf("got %d, %d bytes read, error %v; want 200 and %d", resp.StatusCode, got, err, want)
	}
}

// wantRejected checks that the request was rejected with 429 and Retry-After.
func wantRejected(t *testing.T, resp *http.Response) {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	body := check.Value(io.ReadAll(resp.Body))(t)
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), `"code":"overloaded"`) {
		t.Errorf("got %d, Retry-After %q, %s; want 429 in a second", resp.StatusCode, resp.Header.Get("Retry-After"), body)
	}
}

// wantAllFree checks that all slots and memory have been released.
func (s *limitedServer) wantAllFree(t *testing.T, requests, memory int64) {
	t.Helper()
	s.Close() // waits for the last handlers
	a := s.admission
	if a.arriving.Free() != requests || a.running.Free() != requests {
		t.Error("a slot was not released")
	}
	if a.memory.Free() != memory || a.growing.Free() != math.MaxInt64 || a.entering.Held() != 0 {
		t.Error("memory or a beginning request was not released")
	}
}

const (
	event, chunk = "/v4/runs/r/events/run_started", "/v2/runs/r/stream/s"
	status, list = "/v2/runs/r/status", "/v3/runs"
	deliveries   = "/world/v1/pull"
)

func TestExcessRequestsAreRejected(t *testing.T) {
	t.Parallel()
	s := newLimitedServer(t, 1, 1<<20)
	first, answer := s.begin(t, http.MethodPost, event, -1)
	await(t, "the first body arrives", func() bool { return s.admission.arriving.Free() == 0 })
	wantRejected(t, s.do(t, http.MethodPost, event, 10))
	for _, path := range []string{status, list} { // a long poll needs no slot, and other requests do not wait for bodies
		wantCount(t, s.do(t, http.MethodGet, path, 0), 0)
		<-s.reading
	}
	// A chunk waits longer than an event, and is admitted when a slot is free.
	second, after := s.begin(t, http.MethodPut, chunk, 3)
	wantRejected(t, s.do(t, http.MethodPost, event, 10))
	select {
	case path := <-s.reading:
		t.Fatalf("%s was admitted in addition to the first", path)
	default:
	}
	check.NoError(t, first.Close())
	wantCount(t, <-answer, 0)
	write(t, second, "abc")
	wantCount(t, <-after, 3)
	s.wantAllFree(t, 1, 1<<20)
}

// TestRunningRequestsAreLimited checks the limit on requests without bodies, which only run.
func TestRunningRequestsAreLimited(t *testing.T) {
	t.Parallel()
	s := newLimitedServer(t, 1, 1<<20)
	s.reading = make(chan string)
	first := make(chan *http.Response)
	go func() { first <- s.do(t, http.MethodPost, event, 10) }()
	await(t, "the first request runs", func() bool { return s.admission.running.Free() == 0 })
	wantRejected(t, s.do(t, http.MethodPost, event, 10))
	<-s.reading
	wantCount(t, <-first, 10)
	s.wantAllFree(t, 1, 1<<20)
}

// TestSlowBodiesOfOneProjectLeaveRoomForOthers checks that a project that holds all the memory and slots that it can
// get takes none from another one.
func TestSlowBodiesOfOneProjectLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	const requests, memory = 16, 8 << 20 * bodyWeight
	s := newLimitedServer(t, requests, memory)
	for range requests {
		body, sent := io.Pipe()
		go func() { _, _ = sent.Write(make([]byte, 1<<20)) }() // and then nothing
		req := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+sdkPath+chunk, body))(t)
		go func() {
			if resp, err := s.Client().Do(req); err == nil {
				_ = resp.Body.Close() // it was rejected, or the test has ended
			}
		}()
	}
	await(t, "memory is in use", func() bool { return s.admission.memory.Free() <= memory*3/4 })
	await(t, "the slots are in use", func() bool { return s.admission.arriving.Free() <= requests/4 })
	req := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+sdkPath+event,
		bytes.NewReader(make([]byte, 100_000))))(t)
	req.Header.Set("Project", "other")
	resp := check.Value(s.Client().Do(req))(t)
	wantCount(t, resp, 100_000)
	s.CloseClientConnections()
}

func write(t *testing.T, w io.WriteCloser, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestBodiesBeyondMemoryLimitAreRejected(t *testing.T) {
	t.Parallel()
	const memory = 3 << 20 * bodyWeight
	s := newLimitedServer(t, 10, memory)
	large, answer := s.begin(t, http.MethodPost, event, 2<<20+1)
	check.Value(large.Write(make([]byte, 2<<20)))(t)
	await(t, "memory is reserved", func() bool { return s.admission.memory.Free() < memory/2 })
	wantRejected(t, s.do(t, http.MethodPost, event, 1<<20))
	wantCount(t, s.do(t, http.MethodPost, event, smallBody), smallBody) // too small to count
	<-s.reading

	// A body of unknown length is admitted, and rejected when it exceeds the free memory.
	growing, refused := s.begin(t, http.MethodPost, event, -1)
	go func() { _, _ = growing.Write(make([]byte, 4<<20)) }() // the server aborts it
	wantRejected(t, <-refused)

	write(t, large, "x")
	wantCount(t, <-answer, 2<<20+1)

	// A single body may exceed the memory limit; its size has a limit of its own.
	alone, done := s.begin(t, http.MethodPost, event, -1)
	write(t, alone, strings.Repeat("x", 5<<20))
	wantCount(t, <-done, 5<<20)
	wantCount(t, s.do(t, http.MethodPost, event, 5<<20), 5<<20)
	s.wantAllFree(t, 10, memory)
}

// TestSlowBodyReleasesItsSlot checks that a sender that stops sending, or sends too slowly, does not hold resources.
func TestSlowBodyReleasesItsSlot(t *testing.T) {
	t.Parallel()
	s := newLimitedServer(t, 1, 1<<20)
	pace := s.admission.pace
	s.admission.pace = share.Pace{Credit: 50 * time.Millisecond, Most: 100 * time.Millisecond, Rate: 10_000}
	for _, of := range []struct {
		method, path string
		length       int64
	}{{http.MethodPut, chunk, -1}, {http.MethodPut, chunk, 10_000}, {http.MethodPost, deliveries, 10_000}} {
		body, answer := s.begin(t, of.method, of.path, of.length)
		go func() {
			for range 100 { // 5,000 bytes a second: half of the rate
				if _, err := io.WriteString(body, strings.Repeat("x", 100)); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
		resp := <-answer
		if resp == nil {
			return // begin has failed
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(text), `"code":"body_too_slow"`) {
			t.Errorf("got %d %s, error %v; want 408", resp.StatusCode, text, err)
		}
	}
	s.admission.pace = pace
	wantCount(t, s.do(t, http.MethodPut, chunk, 3), 3)
	wantCount(t, s.do(t, http.MethodPost, deliveries, 3), 3)
	s.wantAllFree(t, 1, 1<<20)
}

// TestGrowingBodiesDoNotDeadlock checks two bodies of which only one fits at a time.
func TestGrowingBodiesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	const memory = 40 << 20 * bodyWeight
	s := newLimitedServer(t, 10, memory)
	answers := make(chan *http.Response, 2)
	for range 2 {
		body, answer := s.begin(t, http.MethodPut, chunk, -1)
		go func() {
			_, _ = body.Write(make([]byte, 24<<20))
			_ = body.Close()
			answers <- <-answer
		}()
	}
	for range 2 {
		wantCount(t, <-answers, 24<<20)
	}
	s.wantAllFree(t, 10, memory)
}

// TestOverloadPolicyOfEveryRoute checks the limits of clients in protocol §1.5 and §1.6.
func TestOverloadPolicyOfEveryRoute(t *testing.T) {
	t.Parallel()
	e, _, _ := newEcho(t, "")
	policies := map[overloadPolicy]int{}
	longPolls := 0
	for _, route := range e.Routes() {
		if isLongPoll(route.Path) {
			longPolls++
			continue
		}
		policy := policyOf(route.Method, route.Path)
		policies[policy]++
		streamed := strings.Contains(route.Path, "/stream/")
		switch {
		case policy.deadline >= 30*time.Second:
			t.Errorf("%s %s waits %s, longer than its client", route.Method, route.Path, policy.deadline)
		case streamed && policy.status == http.StatusTooManyRequests:
			t.Errorf("%s %s is rejected with a status that loses the chunk", route.Method, route.Path)
		case strings.Contains(route.Path, "/events/") && route.Method == http.MethodPost &&
			strings.Contains(route.Path, "/v4/") && policy.status != http.StatusTooManyRequests:
			t.Errorf("%s %s is not rejected with 429", route.Method, route.Path)
		}
	}
	if len(policies) != 4 || longPolls != 10 {
		t.Errorf("got %d policies and %d long polls, want 4 and 10", len(policies), longPolls)
	}
}

// TestRequestsOfOneProjectLetOthersBegin: while another project is active, a project begins few requests at once,
// and the next one when one of them has ended, or takes long.
func TestRequestsOfOneProjectLetOthersBegin(t *testing.T) {
	t.Parallel()
	a := newAdmission(0, 0, time.Now, projectOf)
	a.longestEntering = time.Hour
	begin := func(project string, deadline time.Duration) (end func(), err error) {
		v := &visit{admission: a, project: project, overloadPolicy: overloadPolicy{deadline, http.StatusServiceUnavailable}}
		return v.enter(t.Context())
	}
	must := func(project string, deadline time.Duration) (end func()) {
		t.Helper()
		end = check.Value(begin(project, deadline))(t)
		return end
	}
	var ends []func()
	for range enteringPerProcessor / contendedEntering * runtime.GOMAXPROCS(0) {
		ends = append(ends, must("busy", time.Minute))
	}
	refused := false
	for range 1000 { // a machine that pauses here may forget that the other project is active
		must("other", time.Minute)()
		end, err := begin("busy", 0)
		if refused = err != nil; refused {
			break
		}
		end()
	}
	if !refused {
		t.Fatal("one more request begins at once")
	}
	ends[0]()
	must("busy", time.Minute)
	a.longestEntering = 0
	ends[1]()
	for range 100 { // none of these ends
		must("busy", time.Minute)
	}
	for _, end := range ends {
		end()
	}
}

// TestRequestsWaitToBegin: a request reaches its handler only when its project may begin another one.
func TestRequestsWaitToBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(0, 0, time.Now, projectOf)
		all := enteringPerProcessor * int64(runtime.GOMAXPROCS(0))
		a.entering.Owe("busy", all, requestFactor)
		var handled atomic.Bool
		handle := a.middleware(func(echo.Context) error {
			handled.Store(true)
			return nil
		})
		c := echo.New().NewContext(httptest.NewRequest(http.MethodGet, "/v1/runs", nil), httptest.NewRecorder())
		go func() { _ = handle(c) }()
		synctest.Wait()
		if handled.Load() {
			t.Error("it is handled while as many begin as may")
		}
		a.entering.Release("busy", all)
		synctest.Wait()
		if !handled.Load() {
			t.Error("it is not handled although it may begin")
		}
	})
}
