package eventlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
)

// pair is two clients that do something at the same time.
type clientPair struct {
	// before are the requests that set the scene, after created; nil: the run is not there yet.
	before []Request
	// other sets the scene of a second run, which the second client is about; nil: both are about the same.
	other []Request
	// holder sets the scene of a third run, about which nobody asks; nil: there is none.
	holder []Request
	// one and two are what the clients ask. More than one request is a batch.
	one, two []Request
	// late says by how much the clients' clocks are ahead.
	late [2]time.Duration
}

// contested stands for the token that runs contend for; every scene has its own.
const contestedToken = "contested"

// pairs are those that other engines stumbled over, and those that our shortcuts make possible.
func clientPairs() map[string]clientPair {
	resumed := hook("hook_received")
	resumed.Data.ResumeID, resumed.Data.ResumeDigest = "resume_1", "digest"
	otherwise := resumed
	otherwise.Data.ResumeDigest = "another digest"
	lazy := step("step_started")
	lazy.Data.StepName, lazy.Payload = "charge", []byte("step input")
	lazyAgain := lazy
	lazyAgain.Payload = []byte("other input")
	claims := hookCreated(theRun, "hook_1", contestedToken)
	retained := hookCreated(theRun, "hook_1", contestedToken)
	retained.Data.TokenRetentionUntil = ptr(day.Add(time.Hour))
	withStep := []Request{started, step("step_created")}
	running := []Request{started, step("step_created"), step("step_started")}
	withHook := []Request{started, hook("hook_created")}
	full := []Request{started, step("step_created"), hook("hook_created"), sleep("wait_created")}
	batch := []Request{
		on(theRun, "step_created", "step_2"), on(theRun, "step_started", "step_2"), step("step_completed"),
		sleep("wait_created"),
	}
	is := func(r ...Request) []Request { return r }
	return map[string]clientPair{
		"step_started × step_completed":      {before: running, one: is(step("step_started")), two: is(step("step_completed"))},
		"step_started × step_failed":         {before: withStep, one: is(step("step_started")), two: is(step("step_failed"))},
		"step_completed × step_failed":       {before: running, one: is(step("step_completed")), two: is(step("step_failed"))},
		"step_completed × step_retrying":     {before: running, one: is(step("step_completed")), two: is(step("step_retrying"))},
		"step_created × step_created":        {before: is(started), one: is(step("step_created")), two: is(step("step_created"))},
		"step_created × step_started":        {before: is(started), one: is(step("step_created")), two: is(step("step_started"))},
		"lazy start × lazy start":            {before: is(started), one: is(lazy), two: is(lazyAgain)},
		"lazy start × step_created":          {before: is(started), one: is(lazy), two: is(step("step_created"))},
		"lazy start × cancel":                {before: is(started), one: is(lazy), two: is(cancelled)},
		"hook_received × hook_disposed":      {before: withHook, one: is(hook("hook_received")), two: is(hook("hook_disposed"))},
		"hook_received × complete":           {before: withHook, one: is(hook("hook_received")), two: is(completed)},
		"hook_created × hook_received":       {before: is(started), one: is(hook("hook_created")), two: is(hook("hook_received"))},
		"hook_disposed × complete":           {before: withHook, one: is(hook("hook_disposed")), two: is(completed)},
		"resumption × the same":              {before: withHook, one: is(resumed), two: is(resumed)},
		"resumption × another of its name":   {before: withHook, one: is(resumed), two: is(otherwise)},
		"resumption × complete":              {before: withHook, one: is(resumed), two: is(completed)},
		"resumption × hook_disposed":         {before: withHook, one: is(resumed), two: is(hook("hook_disposed"))},
		"cancel × complete":                  {before: full, one: is(cancelled), two: is(completed)},
		"cancel × cancel":                    {before: full, one: is(cancelled), two: is(cancelled)},
		"complete × fail":                    {before: full, one: is(completed), two: is(failed)},
		"cancel × step_created":              {before: is(started), one: is(cancelled), two: is(step("step_created"))},
		"complete × step_completed":          {before: running, one: is(completed), two: is(step("step_completed"))},
		"complete × wait_completed":          {before: full, one: is(completed), two: is(sleep("wait_completed"))},
		"wait_completed × wait_completed":    {before: full, one: is(sleep("wait_completed")), two: is(sleep("wait_completed"))},
		"run_created × run_created":          {one: is(created), two: is(created)},
		"run_created × resilient start":      {one: is(created), two: is(runRepaired(theRun))},
		"resilient start × resilient start":  {one: is(runRepaired(theRun)), two: is(runRepaired(theRun))},
		"run_started × cancel":               {before: []Request{}, one: is(started), two: is(cancelled)},
		"batch × step_completed":             {before: running, one: batch, two: is(step("step_completed"))},
		"batch × step_started of a new step": {before: running, one: batch, two: is(on(theRun, "step_started", "step_2"))},
		"batch × the same batch":             {before: running, one: batch, two: batch},
		"batch × complete":                   {before: running, one: batch, two: is(completed)},
		"attr_set × attr_set":                {before: is(started), one: is(on(theRun, "attr_set", "")), two: is(setAttribute())},

		// Two runs and one token.
		"hook_created × hook_created, one token": {before: is(started), other: is(started), one: is(claims), two: is(claims)},
		"hook_created × complete of the holder":  {before: is(started), other: is(started, claims), one: is(claims), two: is(completed)},
		"hook_created × cancel of the holder":    {before: is(started), other: is(started, claims), one: is(claims), two: is(cancelled)},
		"hook_created × hook_disposed":           {before: is(started), other: is(started, claims), one: is(claims), two: is(hook("hook_disposed"))},
		"hook_created × end that retained":       {before: is(started), other: is(started, retained), one: is(claims), two: is(completed), late: [2]time.Duration{2 * time.Hour}},
		"claim of an expired token × hook_disposed": {
			before: is(started), other: is(started, retained, completed), late: [2]time.Duration{2 * time.Hour},
			one: is(claims), two: is(hook("hook_disposed")),
		},
		"claim of an expired token × another": {
			before: is(started), other: is(started), holder: is(started, retained, completed),
			late: [2]time.Duration{2 * time.Hour, 2 * time.Hour}, one: is(claims), two: is(claims),
		},
	}
}

// attrB sets the attribute that every attr_set sets, to another value.
func setAttribute() Request {
	r := on(theRun, entities.EventAttrSet, "")
	r.Data.Changes = []entities.AttributeChange{{Key: "k", Value: ptr("w")}}
	return r
}

// TestI4EveryInterleavingIsSerializable holds two clients on sessions of their own before each statement, and has
// them go on in every order there is. Whatever the order: what they are told, the logs and the rows are those
// of one client after the other, no deadlock happens, logs are dense (I1) and rows their fold (I2).
//
// All statements are stopped at, in batches too, and so is every commit and rollback; package gate says how.
// Not stopped at is begin, which takes no lock and no snapshot. Clients of two runs are stopped only where they
// can meet: at what is about hooks and tokens, and at the end. All else is about rows of one run.
func TestI4EveryInterleavingIsSerializable(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixtureOn(t, dsn)
	for name, p := range clientPairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p.checkSerializable(t, dsn, f, noCache)
		})
		if p.other == nil { // one or both servers decide on what they believe of the run
			for i, believers := range [][2]bool{{true, true}, {false, true}} {
				t.Run(fmt.Sprintf("%s, believing %d", name, i), func(t *testing.T) {
					t.Parallel()
					p.checkSerializable(t, dsn, f, believers)
				})
			}
		}
	}
}

// nobody believes anything.
var noCache [2]bool

func (p clientPair) checkSerializable(t *testing.T, dsn string, f *fixture, believers [2]bool) {
	t.Helper()
	one, two := gate.Open(t, dsn, f.pool, p.canConflict), gate.Open(t, dsn, f.pool, p.canConflict)
	st := f.newRunner(f.logOver(one.Pool, p.late[0]), f.logOver(two.Pool, p.late[1]))
	serial := map[string]string{} // of servers that believe nothing
	for name, order := range map[string][2]int{"one, two": {0, 1}, "two, one": {1, 0}} {
		s := p.newScenario(t, st)
		s.ask(t, order[0])
		s.ask(t, order[1])
		serial[s.outcome(t)] = name
	}
	if len(serial) != 2 {
		t.Error("both orders have the same outcome, so that it does not show which one happened")
	}
	st.cached = believers
	n, waits := gate.Serial(t, one, two, serial, func(schedule *gate.Schedule) string {
		s := p.newScenario(t, st)
		schedule.Run(t, func() { s.ask(t, 0) }, func() { s.ask(t, 1) })
		return s.outcome(t)
	})
	if waits == 0 && p.other == nil {
		t.Errorf("nobody ever waited in %d schedules: the clients did not meet", n)
	}
}

// meets chooses the statements in which the clients can meet.
func (p clientPair) canConflict(sql string) bool {
	return p.other == nil || strings.Contains(sql, "hooks") || strings.Contains(sql, "advisory") ||
		sql == "COMMIT" || sql == "ROLLBACK"
}

// fixtureOn is a fixture on a database that there is.
func fixtureOn(t *testing.T, dsn string) *fixture {
	t.Helper()
	c := &clock{at: day}
	pool := openPool(t, dsn)
	hub := pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler))
	return &fixture{Log: New(pool, hub, noQueue{}, c.now), clock: c}
}

// over is the log as another process has it, whose clock may be ahead.
func (f *fixture) logOver(pool *pgxpool.Pool, late time.Duration) *Log {
	return New(pool, f.hub, noQueue{}, func() time.Time { return day.Add(late) })
}

// stage is where scenes happen.
type scenarioRunner struct {
	*fixture

	// logs are those of the servers that the clients ask.
	logs [2]*Log
	// believers are those of them that remember the runs as they are when the scene is set.
	cached [2]bool
	// sound are the states that have been verified.
	verified map[string]bool
}

func (f *fixture) newRunner(one, two *Log) *scenarioRunner {
	return &scenarioRunner{fixture: f, logs: [2]*Log{one, two}, verified: map[string]bool{}}
}

// scene is what two clients find, and what they are told.
type scenario struct {
	clientPair
	*scenarioRunner

	// ids are those of the runs that the clients are about, and of the holder.
	ids [3]entities.RunID
	// answers are all that the clients were told, and errs the errors in that.
	answers [2]any
	errs    [2]error
}

// set sets the scene.
func (p clientPair) newScenario(t *testing.T, st *scenarioRunner) *scenario {
	t.Helper()
	s := &scenario{clientPair: p, scenarioRunner: st, ids: [3]entities.RunID{newRunID(), newRunID(), newRunID()}}
	if p.other == nil {
		s.ids[1] = s.ids[0]
	}
	for i, before := range [][]Request{p.before, p.other, p.holder} {
		if before == nil {
			continue
		}
		s.must(t, runCreated(s.ids[i]))
		for _, r := range before {
			s.must(t, s.requestOf(r, i))
		}
		for client, believes := range s.cached {
			if believes {
				s.logs[client].cacheRun(s.rows(t, s.ids[i]))
			}
		}
	}
	return s
}

// believe has the log remember a run, as if it had just appended to it.
func (l *Log) cacheRun(s *Snapshot) {
	l.cache.evict(s.Run.ID)
	l.cache.store(decision{before: NewSnapshot(s.Project), after: s}, l.Now())
}

// told is a request of the story, of a client of this scene.
func (s *scenario) requestOf(r Request, client int) Request {
	if r.Data.Token == contestedToken {
		r.Data.Token = "token of " + string(s.ids[0])
	}
	return forRun(r, s.ids[client])
}

// ask asks what a client does, and keeps the answer. It may be called from any goroutine.
func (s *scenario) ask(t *testing.T, client int) { s.askOf(t, client, s.logs[client]) }

func (s *scenario) askOf(t *testing.T, client int, log *Log) {
	var requests []Request
	for _, r := range [][]Request{s.one, s.two}[client] {
		requests = append(requests, s.requestOf(r, client))
	}
	if len(requests) == 1 {
		result, err := log.Append(t.Context(), home, requests[0])
		s.errs[client], s.answers[client] = err, []any{result, fmt.Sprint(err)}
		return
	}
	outcomes, err := log.AppendBatch(t.Context(), home, s.ids[client], requests)
	answers := []any{fmt.Sprint(err)}
	for _, o := range outcomes {
		answers = append(answers, o.Result, fmt.Sprint(o.Err))
		err = errors.Join(err, o.Err)
	}
	s.errs[client], s.answers[client] = err, answers
}

// outcome is all that came of the scene: what was told, the logs and the rows.
func (s *scenario) outcome(t *testing.T) string {
	t.Helper()
	return s.normalized(t, s.answers) + s.state(t)
}

// state is the logs and the rows. Whatever happened, logs are dense (I1) and rows their fold (I2).
func (s *scenario) state(t *testing.T) string {
	t.Helper()
	var all []any
	var found []entities.RunID
	for _, id := range slices.Compact(s.ids[:]) {
		rows := s.rows(t, id)
		if rows.Run == nil {
			continue
		}
		events := s.events(t, id)
		wantDense(t, events)
		all, found = append(all, events, rows), append(found, id)
	}
	text := s.normalized(t, all)
	if s.verified[text] {
		return text // another run of the same log and rows
	}
	audit := NewAudit(s.pool, func() time.Time { return day.Add(s.late[0]) })
	for _, id := range found {
		err := audit.Verify(t.Context(), id, func(d Difference) { t.Errorf("rows are not the fold of the log: %+v", d) })
		if err != nil {
			t.Fatal(err)
		}
	}
	s.verified[text] = true
	return text
}

// text is v with the names of the scene's runs taken out.
func (s *scenario) normalized(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(string(s.ids[0]), "run 1", string(s.ids[1]), "run 2", string(s.ids[2]), "run 3").
		Replace(string(text))
}

// TestReadingLogDuringRunCreation: whoever reads the log of a run that is just being created finds no run, or a
// log with its beginning.
func TestReadingLogDuringRunCreation(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixtureOn(t, dsn)
	writer, reader := gate.Open(t, dsn, f.pool, nil), gate.Open(t, dsn, f.pool, nil)
	writes, reads := f.logOver(writer.Pool, 0), f.logOver(reader.Pool, 0)
	outcomes := map[string]int{}
	gate.Explore(t, writer, reader, func(schedule *gate.Schedule) {
		id := newRunID()
		var page read.EventPage
		var err, refused error
		schedule.Run(t,
			func() { _, refused = writes.Append(t.Context(), home, runCreated(id)) },
			func() { page, err = reads.Events(t.Context(), home, id, pg.Page{Limit: 10}, read.WithPayloads) })
		switch {
		case refused != nil:
			t.Fatal(refused)
		case errors.Is(err, entities.ErrRunNotFound):
			outcomes["missing"]++
		case err != nil || len(page.Events) != 1:
			t.Fatalf("got %d events, %v; want the first, or %v:\n%s", len(page.Events), err, entities.ErrRunNotFound, schedule)
		default:
			outcomes["read"]++
		}
	})
	if outcomes["missing"] == 0 || outcomes["read"] == 0 {
		t.Errorf("schedules by their outcomes: %v, want both", outcomes)
	}
}
