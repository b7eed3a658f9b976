package handlers

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
)

// crowded is a server that lets few in, with one endpoint of each kind. Each answers with how many bytes came.
type crowded struct {
	*httptest.Server

	admission *admission
	reading   chan string // has the path of each request that was let in
}

func newCrowded(t *testing.T, requests, memory int64) *crowded {
	t.Helper()
	s := &crowded{admission: newAdmission(requests, memory), reading: make(chan string, 10)}
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
		sdkPath + "/v4/runs/:runId/events/:eventType", sdkPath + "/queues-proxy/api/v3/topic/:topic",
	} {
		e.POST(path, count)
	}
	e.PUT(sdkPath+"/v2/runs/:runId/stream/:name", count)
	e.GET(sdkPath+"/v2/runs/:runId/status", count)
	s.Server = httptest.NewServer(e)
	t.Cleanup(s.Close)
	return s
}

// begin sends a request whose body stays open until it is closed.
func (s *crowded) begin(t *testing.T, method, path string, length int64) (body io.WriteCloser, answer <-chan *http.Response) {
	t.Helper()
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+sdkPath+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = length
	c := make(chan *http.Response, 1)
	go func() {
		defer close(c)
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		c <- resp
	}()
	return w, c
}

func (s *crowded) do(t *testing.T, method, path string, size int) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+sdkPath+path, bytes.NewReader(make([]byte, size)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// wantCount fails the test unless the request was answered with the size of its body.
func wantCount(t *testing.T, resp *http.Response, want int) {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	var got int
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK || got != want {
		t.Errorf("got %d, %d bytes read, error %v; want 200 and %d", resp.StatusCode, got, err, want)
	}
}

// wantRefused fails the test unless the request was told to come back.
func wantRefused(t *testing.T, resp *http.Response) {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), `"code":"overloaded"`) {
		t.Errorf("got %d, Retry-After %q, %s; want 429 in a second", resp.StatusCode, resp.Header.Get("Retry-After"), body)
	}
}

// wantAllFree fails the test unless everything that was taken has been given back.
func (s *crowded) wantAllFree(t *testing.T, requests, memory int64) {
	t.Helper()
	s.Close() // and with it the last handlers end
	if !s.admission.slots.TryAcquire(requests) {
		t.Error("a slot was not given back")
	}
	if !s.admission.memory.TryAcquire(memory) {
		t.Error("memory was not given back")
	}
}

const event, chunk, status = "/v4/runs/r/events/run_started", "/v2/runs/r/stream/s", "/v2/runs/r/status"

func TestRequestsBeyondTheLimit(t *testing.T) {
	t.Parallel()
	s := newCrowded(t, 1, 1<<20)
	first, answer := s.begin(t, http.MethodPost, event, -1)
	<-s.reading
	wantRefused(t, s.do(t, http.MethodPost, event, 10))
	wantCount(t, s.do(t, http.MethodGet, status, 0), 0) // only waits, and takes nothing
	<-s.reading
	// A chunk is waited for longer than an event, and let in when there is room.
	second, after := s.begin(t, http.MethodPut, chunk, 3)
	wantRefused(t, s.do(t, http.MethodPost, event, 10))
	select {
	case path := <-s.reading:
		t.Fatalf("%s was let in beside the first", path)
	default:
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	wantCount(t, <-answer, 0)
	write(t, second, "abc")
	wantCount(t, <-after, 3)
	s.wantAllFree(t, 1, 1<<20)
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

func TestBodiesBeyondTheMemory(t *testing.T) {
	t.Parallel()
	const memory = 3 << 20
	s := newCrowded(t, 10, memory)
	large, answer := s.begin(t, http.MethodPost, event, 2<<20+1)
	<-s.reading
	wantRefused(t, s.do(t, http.MethodPost, event, 1<<20))
	wantCount(t, s.do(t, http.MethodPost, event, smallRequest), smallRequest) // takes too little to be counted
	<-s.reading

	// One of unknown length is let in, and refused when it turns out to be too large for what is left.
	growing, refused := s.begin(t, http.MethodPost, event, -1)
	<-s.reading
	go func() { _, _ = growing.Write(make([]byte, 4<<20)) }() // it is broken off
	wantRefused(t, <-refused)

	write(t, large, strings.Repeat("x", 2<<20+1))
	wantCount(t, <-answer, 2<<20+1)

	// Alone, a body may be larger than all the memory: that is bounded elsewhere.
	alone, done := s.begin(t, http.MethodPost, event, -1)
	write(t, alone, strings.Repeat("x", 5<<20))
	wantCount(t, <-done, 5<<20)
	wantCount(t, s.do(t, http.MethodPost, event, 5<<20), 5<<20)
	s.wantAllFree(t, 10, memory)
}

// TestBodiesThatStall lose their place.
func TestBodiesThatStall(t *testing.T) {
	t.Parallel()
	s := newCrowded(t, 1, 1<<20)
	s.admission.stallTimeout = 50 * time.Millisecond
	body, answer := s.begin(t, http.MethodPut, chunk, 10)
	<-s.reading
	if _, err := io.WriteString(body, "half"); err != nil {
		t.Fatal(err)
	}
	if resp := <-answer; resp == nil || resp.StatusCode == http.StatusOK {
		t.Errorf("got %v, want it broken off", resp)
	}
	s.admission.stallTimeout = time.Hour
	wantCount(t, s.do(t, http.MethodPut, chunk, 3), 3)
	s.wantAllFree(t, 1, 1<<20)
}

// TestGrowingBodiesDoNotWaitForEachOther: half of them fit, and those are let in.
func TestGrowingBodiesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	const memory = 40 << 20
	s := newCrowded(t, 10, memory)
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

// TestMannersOfEveryRoute: what clients of protocol §1.5 and §1.6 can stand.
func TestMannersOfEveryRoute(t *testing.T) {
	t.Parallel()
	e, _, _ := newEcho(t, "")
	kinds := map[overloadPolicy]int{}
	waiting := 0
	for _, route := range e.Routes() {
		if isLongPoll(route.Path) {
			waiting++
			continue
		}
		m := policyOf(route.Method, route.Path)
		kinds[m]++
		streamed := strings.Contains(route.Path, "/stream/")
		switch {
		case m.deadline >= 30*time.Second:
			t.Errorf("%s %s waits %s, longer than its client", route.Method, route.Path, m.deadline)
		case streamed && m.status == http.StatusTooManyRequests:
			t.Errorf("%s %s is thrown back with a status that loses the chunk", route.Method, route.Path)
		case strings.Contains(route.Path, "/events/") && route.Method == http.MethodPost &&
			strings.Contains(route.Path, "/v4/") && m.status != http.StatusTooManyRequests:
			t.Errorf("%s %s is not thrown back with 429", route.Method, route.Path)
		}
	}
	if len(kinds) != 4 || waiting != 7 {
		t.Errorf("got %d kinds of manners and %d routes that wait, want 4 and 7", len(kinds), waiting)
	}
}
