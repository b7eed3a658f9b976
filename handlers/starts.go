package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/queue"
)

const (
	// longestStart is how long a request that starts a run waits at most. Then the run starts although the server is
	// busy, unless lateStarts more than fit are under way: then it is refused.
	longestStart = 20 * time.Second
	lateStarts   = 400
	// mostStarts is how many may wait at most: each holds a connection or two, and to take them in costs the processor
	// time of others.
	mostStarts = 1000
	// longestBurst is for how long so many may wait. When some have been waiting for longer, the server has more to do
	// than it can: then no more may wait than start in longestLine, or leastStarts if it starts few.
	longestBurst = 5 * time.Second
	longestLine  = 2 * time.Second
	leastStarts  = 10
	// startsPerProcessor is how many deliveries and starts may be under way at a time, by processor, while the database is
	// busy: enough to keep it so.
	startsPerProcessor = 96
	// idleStarts is how many may start at a time while the database is not busy, however many deliveries are under way:
	// their functions are slow.
	idleStarts = 8
	// startTick is how often waiting starts are admitted.
	startTick = 5 * time.Millisecond
	// startWindow is how long starts are counted to know how many the server can do.
	startWindow = time.Second
	// keptDecisions is how many decisions about runs are remembered, up to twice as many.
	keptDecisions = 10_000
)

// errTooManyStarts matches a *[tooManyStartsError].
var errTooManyStarts = errors.New("too many starts")

// tooManyStartsError refuses to start a run because those that wait already take longer than a client would wait.
type tooManyStartsError struct {
	Waiting int
	// RetryAfter is about when those that wait now have started.
	RetryAfter time.Duration
}

func (e *tooManyStartsError) Error() string {
	return fmt.Sprintf("%d runs wait to be started, more than the server can start soon: try again in %s",
		e.Waiting, e.RetryAfter)
}

func (*tooManyStartsError) Is(target error) bool { return target == errTooManyStarts }

// starts keeps starts of runs from slowing down the runs that have begun. While the server is busy, starts wait before
// anything of them is written, and are admitted in the order in which they came, projects in turns, as there is
// room. If more wait than the server can start in [longestLine], further ones are refused.
//
// A client of the Workflow SDK starts a run with two requests at a time. Both are decided alike, since the run exists
// if either is accepted.
type starts struct {
	room      room
	now       func() time.Time
	stopping  context.Context
	telemetry *telemetry.Telemetry

	mu sync.Mutex
	// line has the starts that wait, by project, and order the projects that have some, the next one first.
	line    map[string][]*start
	order   []string
	waiting int
	// serving is how many requests of starts have been admitted and not answered, and servingOf the same by project.
	serving   int
	servingOf map[string]int
	// busySince is since when some have been waiting.
	busySince time.Time
	ticking   bool // tick will be called
	// count is how many starts were admitted since began, and counted the same of the window before, which took took.
	began          time.Time
	count, counted int
	took           time.Duration
	// recent and before have the latest decisions about runs that two requests start.
	recent, before map[string]*start
}

// start is a run to be started.
type start struct {
	project, run string
	came         time.Time
	requests     int // that wait for the decision
	admitted     bool
	err          error         // if it was refused
	refusedUntil time.Time     // when it may be tried again
	done         chan struct{} // closed when it is admitted; nil if it did not have to wait
}

// isOver reports whether a refusal does not count any more: the client was asked to try again.
func (st *start) isOver(now time.Time) bool { return st.err != nil && !now.Before(st.refusedUntil) }

func newStarts(
	stopping context.Context, room room, now func() time.Time, t *telemetry.Telemetry,
) *starts {
	return &starts{
		room: room, now: now, stopping: stopping, telemetry: t, began: now(), line: map[string][]*start{},
		servingOf: map[string]int{}, recent: map[string]*start{},
	}
}

// room returns how many starts of a project fit besides those of it, and of all projects, that are being served.
type room func(project string, own, all, projects int) int

// startRoom returns how many runs of a project may start while so many projects start some.
func startRoom(q *queue.Queue) room {
	most := startsPerProcessor * runtime.GOMAXPROCS(0)
	return func(project string, own, all, projects int) int {
		return underWay{
			all: max(q.Delivering(), q.Group().UnderWay()) + all, starts: all,
			own: max(q.DeliveringOf(project), q.Group().UnderWayOf(project)) + own, busy: q.Group().Busy(),
		}.room(most, projects)
	}
}

// underWay is what a process has to do: deliveries, or the statements of them if those are more, and starts.
type underWay struct {
	all, own int  // of all projects, and of the one that starts a run
	starts   int  // those of all that are starts
	busy     bool // the database is
}

// room returns how many runs of a project may start if so many may be under way. A start counts as long as the
// deliveries that follow from it, so that few runs are under way at a time, and those end soon. A project with less
// than its part of them has room for the rest of that part, however much others have under way.
func (u underWay) room(most, projects int) int {
	left := max(most-u.all, most/projects-u.own)
	if !u.busy {
		left = max(left, idleStarts-u.starts)
	}
	return left
}

// admit waits until the run may start, or fails with a *[tooManyStartsError] or the context's error. The run is empty
// if only this request starts it. If the run may start, the request must call served when it has been answered.
func (s *starts) admit(ctx context.Context, project, run string) error {
	st := s.enter(project, run)
	if st.done == nil {
		return st.err
	}
	select {
	case <-st.done:
		return st.err
	case <-s.stopping.Done(): // the server makes no more deliveries, so there is nothing to wait for
		return s.admitNow(st)
	case <-ctx.Done():
		s.leave(st)
		return ctx.Err()
	}
}

// served ends a request of the project that was admitted.
func (s *starts) served(project string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serves(project, -1)
}

// serves counts requests of a project that are admitted, or have been answered.
func (s *starts) serves(project string, n int) {
	s.serving += n
	if s.servingOf[project] += n; s.servingOf[project] == 0 {
		delete(s.servingOf, project)
	}
}

// roomFor returns how many starts of the project fit.
func (s *starts) roomFor(project string) int {
	return s.room(project, s.servingOf[project], s.serving, 1+max(len(s.order), len(s.servingOf)))
}

// enter returns the start of a run: a new one, or that of an earlier request.
func (s *starts) enter(project, run string) *start {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run != "" {
		run = project + "/" + run
	}
	now := s.now()
	if st := s.decided(run); st != nil && !st.isOver(now) {
		st.requests++
		if st.admitted {
			s.serves(project, 1)
		}
		return st
	}
	st := &start{project: project, run: run, came: now, requests: 1}
	s.keep(st)
	switch {
	case len(s.line[project]) == 0 && s.roomFor(project) > 0:
		s.begin(st, now)
	case s.waiting >= s.limit(now) && len(s.line[project]) >= s.shareOf(project, now):
		s.refuse(st, now)
	default:
		st.done = make(chan struct{})
		s.wait(st)
	}
	return st
}

// decided returns the start that an earlier request for the run has made; nil if there is none.
func (s *starts) decided(run string) *start {
	if st := s.recent[run]; st != nil {
		return st
	}
	return s.before[run]
}

// keep remembers the start for another request for its run.
func (s *starts) keep(st *start) {
	if st.run == "" {
		return
	}
	if len(s.recent) >= keptDecisions {
		s.recent, s.before = map[string]*start{}, s.recent
	}
	s.recent[st.run] = st
}

// wait adds a start to the line.
func (s *starts) wait(st *start) {
	if s.waiting == 0 {
		s.busySince = st.came
	}
	if !s.ticking {
		s.ticking = true
		time.AfterFunc(startTick, s.tick)
	}
	if len(s.line[st.project]) == 0 {
		s.order = append(s.order, st.project)
	}
	s.line[st.project] = append(s.line[st.project], st)
	s.waiting++
	s.telemetry.StartsWaiting(s.waiting)
}

// leave ends the wait of a request whose client has gone. Nobody knows of a run that no request waits for.
func (s *starts) leave(st *start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.requests--; st.admitted {
		s.serves(st.project, -1)
	}
	if st.admitted || st.err != nil || st.requests > 0 {
		return
	}
	delete(s.recent, st.run)
	delete(s.before, st.run)
	s.remove(st)
}

// admitNow admits a start unless it was refused, which is the error.
func (s *starts) admitNow(st *start) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.admitted && st.err == nil {
		s.remove(st)
		s.begin(st, s.now())
	}
	return st.err
}

// remove takes a start out of the line.
func (s *starts) remove(st *start) {
	s.waiting--
	s.telemetry.StartsWaiting(s.waiting)
	i := slices.Index(s.line[st.project], st)
	if s.line[st.project] = slices.Delete(s.line[st.project], i, i+1); len(s.line[st.project]) == 0 {
		delete(s.line, st.project)
		s.order = slices.DeleteFunc(s.order, func(p string) bool { return p == st.project })
	}
}

// tick admits starts as long as some wait: one of each project in turn while there is room, and those that have waited
// for too long.
func (s *starts) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for full := 0; full < len(s.order); { // projects in a row without room
		project := s.order[0]
		s.order = append(s.order[1:], project)
		if full++; s.roomFor(project) > 0 {
			full = 0
			s.admitFirst(project, now)
		}
	}
	for _, project := range slices.Clone(s.order) {
		for len(s.line[project]) > 0 && now.Sub(s.line[project][0].came) >= longestStart {
			s.endWait(s.line[project][0], now)
		}
	}
	if s.ticking = s.waiting > 0; s.ticking {
		time.AfterFunc(startTick, s.tick)
	}
}

// admitFirst admits the first start of a project.
func (s *starts) admitFirst(project string, now time.Time) {
	st := s.line[project][0]
	s.remove(st)
	s.begin(st, now)
}

// endWait admits or refuses a start that has waited for too long.
func (s *starts) endWait(st *start, now time.Time) {
	s.remove(st)
	if s.roomFor(st.project) > -lateStarts {
		s.begin(st, now)
		return
	}
	s.refuse(st, now)
	close(st.done)
}

// refuse refuses a start.
func (s *starts) refuse(st *start, now time.Time) {
	after := s.retryAfter(now)
	st.err, st.refusedUntil = &tooManyStartsError{s.waiting, after}, now.Add(after)
	s.telemetry.StartRefused()
}

// begin lets a start begin.
func (s *starts) begin(st *start, now time.Time) {
	st.admitted = true
	s.serves(st.project, st.requests)
	if st.done != nil {
		close(st.done)
	}
	s.counts(now)
}

// counts counts an admitted start.
func (s *starts) counts(now time.Time) {
	if past := now.Sub(s.began); past >= startWindow {
		s.counted, s.took, s.count, s.began = s.count, past, 0, now
	}
	s.count++
}

// perSecond returns how many starts were admitted lately. While some wait, it is as many as the server can do.
func (s *starts) perSecond(now time.Time) float64 {
	past := s.took + now.Sub(s.began)
	return float64(s.counted+s.count) / max(past, time.Second).Seconds()
}

// shareOf returns how many starts of a project may wait when no more may wait in all, so that no project keeps the
// others from the line.
func (s *starts) shareOf(project string, now time.Time) int {
	projects := len(s.order)
	if len(s.line[project]) == 0 {
		projects++
	}
	return max(s.limit(now)/max(projects, 1), 1)
}

// limit returns how many starts may wait: no more than the server can do in [longestLine], once it has been busy for
// [longestBurst].
func (s *starts) limit(now time.Time) int {
	if s.waiting == 0 || now.Sub(s.busySince) < longestBurst {
		return mostStarts
	}
	return min(max(int(s.perSecond(now)*longestLine.Seconds()), leastStarts), mostStarts)
}

// retryAfter returns about how long it takes to start the runs that wait.
func (s *starts) retryAfter(now time.Time) time.Duration {
	seconds := float64(s.waiting) / max(s.perSecond(now), 1)
	return min(max(time.Duration(seconds*float64(time.Second)).Round(time.Second), time.Second), longestStart)
}

// startedRun reports whether a request starts a run, as far as its head tells, and the run's ID if it names one.
func startedRun(c echo.Context) (run string, starts bool) {
	if c.Request().Method != http.MethodPost {
		return "", false
	}
	switch c.Path() {
	case nativePath + "/runs", nativePath + "/runs/:id/rerun":
		return "", true
	case sdkPath + "/v4/runs/:runId/events/:eventType", sdkPath + "/v5/runs/:runId/events/:eventType":
		return c.Param("runId"), c.Param("eventType") == "run_created"
	default:
		return "", false
	}
}

// createsRun is how a commit of the own client's that creates a run begins: with the event's type, a text in CBOR.
var createsRun = []byte("\x6brun_created")

// messagedRun reports whether a request sends the first message of a run, and returns the run's ID if another request
// may start the same run.
func messagedRun(c echo.Context, beginning []byte) (run string, starts bool) {
	if c.Path() == sdkPath+"/world/v1/commit" {
		return "", bytes.Contains(beginning, createsRun)
	}
	if c.Path() != sdkPath+"/queues-proxy/api/v3/topic/:topic" {
		return "", false
	}
	run = c.Request().Header.Get("X-Vercel-Workflow-Run-Id")
	return run, run != "" && message.Begins(c.Param("topic"), beginning)
}
