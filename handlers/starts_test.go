package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
)

// line is a line of starts in a bubble of package synctest, with the order in which they are admitted.
type line struct {
	*starts

	room int
	stop context.CancelFunc
	asks sync.WaitGroup

	mu       sync.Mutex
	admitted []string
	refused  map[string]*tooManyStartsError
}

func newLine() *line {
	l := &line{refused: map[string]*tooManyStartsError{}}
	stopping, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.starts = newStarts(stopping, l.fits, time.Now, nil)
	return l
}

// fits is the room for all projects together.
func (l *line) fits(_ string, _, all, _ int) int { return l.room - all }

// never leaves no room for starts.
func never(string, int, int, int) int { return -1_000_000 }

// ask lets a request ask to start a run, and waits until that is decided or it waits. The name is recorded with
// the decision.
func (l *line) ask(ctx context.Context, project, run, name string) {
	l.asks.Go(func() {
		err := l.admit(ctx, project, run)
		l.mu.Lock()
		defer l.mu.Unlock()
		if tooMany, ok := errors.AsType[*tooManyStartsError](err); ok {
			l.refused[name] = tooMany
		} else if err == nil {
			l.admitted = append(l.admitted, name)
		}
	})
	synctest.Wait()
}

// makeRoom sets how many may be served, and waits for the next tick.
func (l *line) makeRoom(n int) {
	l.starts.mu.Lock()
	l.room = n
	l.starts.mu.Unlock()
	time.Sleep(startTick)
	synctest.Wait()
}

// look calls f, which may read everything.
func (l *line) look(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts.mu.Lock()
	defer l.starts.mu.Unlock()
	f()
}

func (l *line) want(t *testing.T, when string, admitted ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Sort(l.admitted); !slices.Equal(l.admitted, admitted) {
		t.Errorf("%s: admitted %v, want %v", when, l.admitted, admitted)
	}
}

func TestStartsWaitInOrderAndProjectsInTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		l.room = 1
		l.ask(t.Context(), "a", "", "a0")
		l.want(t, "there is room for one", "a0")
		for _, name := range []string{"a1", "a2", "a3", "a4", "b1", "b2"} {
			l.ask(t.Context(), name[:1], "", name)
		}
		time.Sleep(time.Second)
		l.want(t, "no room is left", "a0")
		l.makeRoom(2)
		l.want(t, "room for one more", "a0", "a1")
		l.makeRoom(4)
		l.want(t, "room for two more", "a0", "a1", "a2", "b1")
		l.served("a")
		l.makeRoom(4)
		l.want(t, "one was served", "a0", "a1", "a2", "b1", "b2")
		l.makeRoom(100)
		l.want(t, "room for all", "a0", "a1", "a2", "a3", "a4", "b1", "b2")
		l.look(func() {
			if l.waiting != 0 || len(l.line) != 0 || len(l.order) != 0 {
				t.Errorf("%d wait, in %v with order %v; want none", l.waiting, l.line, l.order)
			}
		})
	})
}

// TestOneProjectLeavesSlotsInTheLine: when one project fills the line, others may still wait, up to their share.
func TestOneProjectLeavesSlotsInTheLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		for i := range mostStarts {
			l.ask(t.Context(), "a", "", fmt.Sprint(i))
		}
		for i := range mostStarts/2 + 1 {
			l.ask(t.Context(), "b", "", fmt.Sprint("b", i))
		}
		l.look(func() {
			if last := fmt.Sprint("b", mostStarts/2); len(l.line["b"]) != mostStarts/2 || l.refused[last] == nil {
				t.Errorf("%d of the second project wait, want %d", len(l.line["b"]), mostStarts/2)
			}
		})
		l.stop()
	})
}

// TestTooManyStartsAreRefused: at first as many may wait as there may ever; then as many as start in the longest line.
func TestTooManyStartsAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		for i := range mostStarts {
			l.ask(t.Context(), "a", "", fmt.Sprint(i))
		}
		l.ask(t.Context(), "a", "", "more")
		l.look(func() {
			if got := l.refused["more"]; got == nil || got.Waiting != mostStarts || got.RetryAfter != longestStart {
				t.Errorf("got %+v, want a refusal; nothing is known of when there is room", got)
			}
		})
		for i := range longestBurst / time.Second { // of 100 starts per second
			l.makeRoom(100 * int(i+1))
			l.ask(t.Context(), "a", "", fmt.Sprint("more", i))
			time.Sleep(time.Second - startTick)
		}
		l.look(func() {
			if len(l.refused) != 1 {
				t.Errorf("%d were refused, want 1: there was room in the line", len(l.refused))
			}
			if got := l.perSecond(time.Now()); got < 90 || got > 110 {
				t.Errorf("%g starts per second, want about 100", got)
			}
			if got := l.limit(time.Now()); got < 180 || got > 220 {
				t.Errorf("%d may wait, want about 200, as many as start in %s", got, longestLine)
			}
		})
		l.ask(t.Context(), "a", "", "late")
		l.look(func() {
			if got := l.refused["late"]; got == nil || got.RetryAfter > longestStart/2 {
				t.Errorf("got %+v, want a refusal with the time in which those that wait have started", got)
			}
		})
		l.stop()
	})
}

// TestLineIsBoundedByTime: while four times as many starts come as fit, those that are admitted have waited for little
// more than the longest line; each is either admitted or refused.
func TestLineIsBoundedByTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		const every = 10 * time.Millisecond
		asked := 0
		for n := range int(30 * time.Second / every) {
			for range 4 { // 400 a second, of which 100 fit
				l.ask(t.Context(), "a", "", fmt.Sprint(asked))
				asked++
			}
			l.starts.mu.Lock()
			l.room = n + 1
			l.starts.mu.Unlock()
			time.Sleep(every)
			if time.Duration(n)*every < 20*time.Second { // the burst has not been worked off
				continue
			}
			l.look(func() {
				if oldest := time.Since(l.line["a"][0].came); oldest > longestLine+longestLine/4 {
					t.Fatalf("a start has waited for %s", oldest)
				}
			})
		}
		l.stop()
		l.asks.Wait()
		l.look(func() {
			check.Equal(t, "admitted or refused", len(l.admitted)+len(l.refused), asked)
			if got := len(l.admitted); got < 2_900 {
				t.Errorf("%d were admitted, want about 3,000, as many as fit", got)
			}
		})
	})
}

// TestProjectMayWaitInAShortLine: however few starts may wait, each project may have one that does.
func TestProjectMayWaitInAShortLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		l.ask(t.Context(), "a", "", "a1")
		time.Sleep(longestBurst)
		for i := range leastStarts - 1 {
			l.ask(t.Context(), "a", "", fmt.Sprint(i))
		}
		l.ask(t.Context(), "a", "", "a2")
		for i := range leastStarts {
			l.ask(t.Context(), fmt.Sprint("c", i), "", "c")
		}
		l.ask(t.Context(), "b", "", "b1")
		l.look(func() {
			if l.refused["a2"] == nil || len(l.refused) != 1 {
				t.Errorf("refused %v, want a2", l.refused)
			}
		})
		l.stop()
	})
}

// TestLongestWait: starts that have waited for long are admitted, but not if that slows down many runs that have begun.
func TestLongestWait(t *testing.T) {
	t.Parallel()
	for room, admitted := range map[int]bool{0: true, -lateStarts + 1: true, -lateStarts: false} {
		synctest.Test(t, func(t *testing.T) {
			l := newLine()
			l.room = room
			l.ask(t.Context(), "a", "", "early")
			time.Sleep(longestStart - 2*startTick)
			l.ask(t.Context(), "a", "", "late")
			l.look(func() {
				if len(l.admitted)+len(l.refused) != 0 {
					t.Error("the wait was shorter than the longest")
				}
			})
			time.Sleep(3 * startTick)
			synctest.Wait()
			l.look(func() {
				if got := slices.Equal(l.admitted, []string{"early"}); got != admitted || (l.refused["early"] != nil) == admitted || l.waiting != 1 {
					t.Errorf("room %d: admitted %v, refused %v; admission of the early one: want %v", room, l.admitted, l.refused, admitted)
				}
			})
			l.stop()
			l.asks.Wait()
			l.look(func() {
				if !slices.Contains(l.admitted, "late") {
					t.Error("a server that stops lets starts wait")
				}
			})
		})
	}
}

// TestBothRequestsOfARunAreDecidedAlike: a client of the Workflow SDK takes the run for failed if its message is
// refused, so its event must not create it.
func TestBothRequestsOfARunAreDecidedAlike(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		l.room = 1
		l.ask(t.Context(), "a", "first", "event of first")
		l.ask(t.Context(), "a", "first", "message of first")
		l.want(t, "the run was admitted", "event of first", "message of first")
		for i := range mostStarts - 1 {
			l.ask(t.Context(), "a", "", fmt.Sprint(i))
		}
		l.ask(t.Context(), "a", "second", "event of second")
		l.ask(t.Context(), "a", "second", "message of second")
		l.ask(t.Context(), "a", "third", "event of third")
		l.ask(t.Context(), "b", "second", "another second")
		l.look(func() {
			if l.waiting != mostStarts+1 || l.refused["event of third"] == nil || l.refused["another second"] != nil {
				t.Errorf("%d wait, %d were refused, want %d and 1", l.waiting, len(l.refused), mostStarts+1)
			}
		})
		l.makeRoom(1_000_000)
		l.look(func() {
			if !slices.Contains(l.admitted, "event of second") || !slices.Contains(l.admitted, "message of second") {
				t.Error("one of the requests still waits")
			}
		})
		l.ask(t.Context(), "a", "third", "message of third")
		l.look(func() {
			if l.refused["message of third"] == nil {
				t.Error("the message of a refused run was accepted")
			}
		})
		for _, name := range l.admitted {
			l.served(map[bool]string{true: "b", false: "a"}[name == "another second"])
		}
		l.look(func() {
			if l.serving != 0 || len(l.servingOf) != 0 {
				t.Errorf("%d are being served, by project: %v; want none", l.serving, l.servingOf)
			}
		})
	})
}

// TestClientsThatGoLeaveTheLine also checks that a run waits as long as one of its requests does.
func TestClientsThatGoLeaveTheLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		gone, leave := context.WithCancel(t.Context())
		l.ask(gone, "a", "", "gone")
		l.ask(gone, "b", "run", "event")
		l.ask(t.Context(), "b", "run", "message")
		leave()
		synctest.Wait()
		l.look(func() {
			if l.waiting != 1 || len(l.order) != 1 {
				t.Errorf("%d wait, with order %v; want the run", l.waiting, l.order)
			}
		})
		l.makeRoom(1)
		l.want(t, "the message is left", "message")
		l.look(func() {
			check.Equal(t, "starts under way", l.serving, 1)
		})
	})
}

// nothing is a statement that does nothing.
type nothing struct{}

func (nothing) Order() pg.LockOrder                          { return pg.LockOrder{} }
func (nothing) Size() int                                    { return 0 }
func (nothing) Execute(context.Context, *pgxpool.Pool) error { return nil }
func (nothing) Queue(b *pgx.Batch)                           { b.Queue(`SELECT 1`) }
func post(e http.Handler, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

// TestBusyServerFinishesWhatHasBegun: while the database is busy, a burst of starts waits, and more are refused before
// anything is written; a run that has begun can end. Then all that wait start, and the server is as it was.
func TestBusyServerFinishesWhatHasBegun(t *testing.T) {
	t.Parallel()
	e, q, _ := newEchoOf(t, "")
	check.Value(q.Pool().Exec(t.Context(),
		`INSERT INTO deployments (project, id, url, updated_at) VALUES ('default', 'dpl_1', 'http://app.test', now())`))(t)
	const request = `{"workflow":"order","deployment":"dpl_1"}`
	begun := post(e, "/v1/runs", request)
	if begun.Code != http.StatusCreated {
		t.Fatalf("got %d: %s", begun.Code, begun.Body)
	}
	count := func() (n int) {
		check.NoError(t, q.Pool().QueryRow(t.Context(), `SELECT count(*) FROM runs`).Scan(&n))
		return n
	}
	shows := func(metric string) bool {
		return strings.Contains(serve(e, http.MethodGet, "/metrics").Body.String(), "\n"+metric+"\n")
	}

	resume := q.Group().Pause()
	var busy, asking sync.WaitGroup
	for range startsPerProcessor * runtime.GOMAXPROCS(0) {
		busy.Go(func() { _ = q.Group().Do(share.For(context.Background(), "default"), nothing{}) })
	}
	await(t, "the database is busy", func() bool {
		return q.Group().UnderWay() == startsPerProcessor*runtime.GOMAXPROCS(0)
	})
	codes := make(chan int, mostStarts)
	for range mostStarts {
		asking.Go(func() { codes <- post(e, "/v1/runs", request).Code })
	}
	await(t, "the starts wait", func() bool { return shows(fmt.Sprintf("stepwell_starts_waiting %d", mostStarts)) })

	refused := post(e, "/v1/runs", request)
	if refused.Code != http.StatusTooManyRequests || refused.Header().Get("Retry-After") == "" ||
		!strings.Contains(refused.Body.String(), `"too_many_starts"`) {
		t.Errorf("got %d, Retry-After %q: %s", refused.Code, refused.Header().Get("Retry-After"), refused.Body)
	}
	refused = post(e, "/sdk/v4/runs/wrun_01J0000000000000000000000A/events/run_created", "x")
	if refused.Code != http.StatusTooManyRequests || refused.Header().Get("Retry-After") == "" {
		t.Errorf("got %d, Retry-After %q: %s", refused.Code, refused.Header().Get("Retry-After"), refused.Body)
	}
	check.Equal(t, "runs", count(), 1)
	if ended := post(e, begun.Header().Get("Location")+"/cancel", ""); ended.Code/100 != 2 {
		t.Errorf("the run that had begun cannot end: %d: %s", ended.Code, ended.Body)
	}

	resume()
	busy.Wait()
	asking.Wait()
	close(codes)
	for code := range codes {
		check.Equal(t, "a start that waited", code, http.StatusCreated)
	}
	check.Equal(t, "runs", count(), 1+mostStarts)
	if !shows("stepwell_starts_waiting 0") || !shows("stepwell_starts_refused_total 2") {
		t.Errorf("the metrics do not show that none wait and two were refused")
	}
	if after := post(e, "/v1/runs", request); after.Code != http.StatusCreated {
		t.Errorf("the next start got %d", after.Code)
	}
}

// TestFirstMessagesAreRecognized: all others continue runs that have begun, and never wait.
func TestFirstMessagesAreRecognized(t *testing.T) {
	t.Parallel()
	s := newLimitedServer(t, 10, 1<<20)
	s.admission.starts = newStarts(t.Context(), never, time.Now, nil)
	send := func(topic, run, body string) <-chan int {
		code := make(chan int, 1)
		req := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost,
			s.URL+sdkPath+"/queues-proxy/api/v3/topic/"+topic, strings.NewReader(body)))(t)
		req.Header.Set("X-Vercel-Workflow-Run-Id", run)
		go func() {
			resp, err := s.Client().Do(req)
			if err == nil {
				code <- resp.StatusCode
				_ = resp.Body.Close()
			}
		}()
		return code
	}
	for _, m := range [][3]string{
		{"__wkf_workflow_order", "wrun_1", "a message that continues a run"},
		{"__wkf_step_pay", "wrun_1", "runInput"},
		{"__wkf_workflow_order", "", "runInput"},
	} {
		if code := <-send(m[0], m[1], m[2]); code != http.StatusOK {
			t.Errorf("%v: got %d, want it to pass", m, code)
		}
	}
	for commit, want := range map[string]bool{"\xa1ieventType\x6brun_created": true, "\xa1ieventType\x6crun_completed": false} {
		c := echo.New().NewContext(httptest.NewRequest(http.MethodPost, "/", nil), nil)
		c.SetPath(sdkPath + "/world/v1/commit")
		if _, got := messagedRun(c, []byte(commit)); got != want {
			t.Errorf("the commit %q starts a run: %v", commit, got)
		}
	}
	_ = send("__acme_wkf_workflow_order", "wrun_1", "\xa1hrunInput")
	await(t, "the first message waits", func() bool {
		s.admission.starts.mu.Lock()
		defer s.admission.starts.mu.Unlock()
		return s.admission.starts.waiting == 1
	})
	if s.admission.arriving.Free() != 10 {
		t.Error("a start that waits takes a slot from other requests")
	}
}

// TestRefusedStartKeepsItsConnection: a client that tries again needs no new connection.
func TestRefusedStartKeepsItsConnection(t *testing.T) {
	t.Parallel()
	a := newAdmission(10, 1<<20, time.Now, projectOf)
	a.starts = newStarts(t.Context(), never, time.Now, nil)
	a.starts.waiting = 1 // and none has started lately
	e := echo.New()
	e.HTTPErrorHandler = errorHandler(slog.New(slog.DiscardHandler))
	e.Use(limitBody, a.middleware)
	e.POST(sdkPath+"/v4/runs/:runId/events/:eventType", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	const chunked = -(smallBody + 1) // without its length in the head
	for _, size := range []int{0, 1000, smallBody, smallBody + 1, chunked} {
		req := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+sdkPath+"/v4/runs/wrun_1/events/run_created",
			strings.NewReader(strings.Repeat("x", max(size, -size)))))(t)
		if size == chunked {
			req.ContentLength = -1
		}
		resp := check.Value(s.Client().Do(req))(t)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests || resp.Close {
			t.Errorf("%d bytes: got %d, connection closed: %v; want 429, open", size, resp.StatusCode, resp.Close)
		}
	}
}
