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
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
)

// clientPair is two clients that append at the same time.
type clientPair struct {
	// before are earlier requests to the run, after created; nil: the run does not exist yet.
	before []Request
	// other are earlier requests to the second client's run; nil: both clients append to the same run.
	other []Request
	// holder are earlier requests to a third run, to which no client appends; nil: there is no third run.
	holder []Request
	// one and two are the clients' requests. Several requests are a batch, or appended all or none if atomic is set.
	one, two []Request
	atomic   bool
	// driver is the driver of the runs.
	driver entities.Driver
	// late is how far the clients' clocks are ahead.
	late [2]time.Duration
	// driven means that the server continues the runs.
	driven bool
	// fenced means that the runs have a fence, and forced that they know takeovers of tokens.
	fenced, forced bool
}

// contestedToken stands for the token that both runs claim, and otherToken for a second one; each scenario has its own.
const contestedToken, otherToken = "contested", "other"

// clientPairs has pairs that other engines got wrong, and pairs that our optimizations put at risk.
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
	forced := takingOver("hook_1", contestedToken)
	withStep := []Request{started, step("step_created")}
	running := []Request{started, step("step_created"), step("step_started")}
	withHook := []Request{started, hook("hook_created")}
	full := []Request{started, step("step_created"), hook("hook_created"), sleep("wait_created")}
	batch := []Request{
		on(theRun, "step_created", "step_2"), on(theRun, "step_started", "step_2"), step("step_completed"),
		sleep("wait_created"),
	}
	is := func(r ...Request) []Request { return append([]Request{}, r...) }
	shorter := asked
	shorter.Grace = time.Second
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
		"continuation × message":             {driver: driven, before: is(started, opened, sent("m1")), one: is(continued), two: is(sent("m2"))},
		"continuation × continuation":        {driver: driven, before: is(started, opened, sent("m1")), one: is(continued), two: is(completed)},
		"attr_set × attr_set":                {before: is(started), one: is(on(theRun, "attr_set", "")), two: is(setAttribute())},
		"store_set × the same ID":            {driver: driven, before: is(started), one: is(storeSet("s", `{"k":1}`)), two: is(storeSet("s", `{"k":2}`))},
		"store_set × another ID":             {driver: driven, before: is(started), one: is(storeSet("s", `{"k":1}`)), two: is(storeSet("t", `{"k":null,"l":2}`))},
		"store_set × complete":               {driver: driven, before: is(started), one: is(storeSet("s", `{"k":1}`)), two: is(completed)},
		"messages × the same": {
			driver: driven, atomic: true, before: is(opened), one: is(sent("m1"), sent("m2")),
			two: is(sent("m2"), sent("m3")),
		},
		"messages × complete": {driver: driven, atomic: true, before: is(opened, started), one: is(sent("m1"), sent("m2")), two: is(completed)},
		"two steps write one key": {
			driver: driven, atomic: true, before: is(started, step("step_created"), on(theRun, "step_created", "step_2")),
			one: is(writtenBy("step_1", `{"k":1}`), step("step_completed")),
			two: is(writtenBy("step_2", `{"k":2}`), on(theRun, "step_completed", "step_2")),
		},
		"a step's write × the same": {
			driver: driven, atomic: true, before: is(started, step("step_created")),
			one: is(writtenBy("step_1", `{"k":1}`), step("step_completed")),
			two: is(writtenBy("step_1", `{"k":1}`), step("step_completed")),
		},

		// Cancellation.
		"ask × complete":                  {driven: true, before: full, one: is(asked), two: is(completed)},
		"ask × cancel":                    {driven: true, before: full, one: is(asked), two: is(cancelled)},
		"ask × a shorter grace":           {driven: true, before: full, one: is(asked), two: is(shorter)},
		"ask × end as asked":              {driven: true, before: is(started, asked), one: is(shorter), two: is(asAsked)},
		"end as asked × the same":         {driven: true, before: is(started, asked), one: is(asAsked), two: is(asAsked)},
		"end as asked × complete":         {driven: true, before: is(started, asked), one: is(asAsked), two: is(completed)},
		"run_started × ask":               {driven: true, before: is(), one: is(started), two: is(asked)},
		"cancelled step × step_completed": {driven: true, before: running, one: is(dropped), two: is(step("step_completed"))},
		"cancelled step × complete":       {driven: true, before: running, one: is(dropped), two: is(completed)},
		"wait_cancelled × wait_completed": {driven: true, before: full, one: is(sleep("wait_cancelled")), two: is(sleep("wait_completed"))},

		// Two orchestrators of one run, and others beside one.
		"in-band × in-band": {
			fenced: true, before: is(inBand(started, 1)), one: is(inBand(step("step_created"), 2)),
			two: is(inBand(on(theRun, "step_created", "step_2"), 2)),
		},
		"in-band × the same": {
			fenced: true, before: is(inBand(started, 1)), one: is(inBand(sleep("wait_created"), 2)),
			two: is(inBand(step("step_created"), 2)),
		},
		"in-band batch × in-band batch": {
			fenced: true, before: is(inBand(started, 1)), one: inBandAll(batch[:2]...),
			two: inBandAll(step("step_created"), sleep("wait_created")),
		},
		"in-band batch × in-band end": {
			fenced: true, before: is(inBand(started, 1)), one: inBandAll(batch[:2]...), two: is(inBand(completed, 2)),
		},
		"in-band × out-of-band": {
			fenced: true, before: is(inBand(started, 1), inBand(step("step_created"), 2)),
			one: is(inBand(on(theRun, "step_created", "step_2"), 3)), two: is(step("step_completed")),
		},
		"in-band × cancel": {
			fenced: true, before: is(inBand(started, 1)), one: is(inBand(step("step_created"), 2)), two: is(cancelled),
		},

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
		"takeover × takeover": {
			forced: true, before: is(started), other: is(started), holder: is(started, claims), one: is(forced), two: is(forced),
		},
		"takeover × claim": {
			forced: true, before: is(started), other: is(started), holder: is(started, claims), one: is(forced), two: is(claims),
		},
		"takeover of a free token × claim": {forced: true, before: is(started), other: is(started), one: is(forced), two: is(claims)},
		"takeover of a free token × takeover": {
			forced: true, before: is(started), other: is(started), one: is(forced), two: is(forced),
		},
		"takeover × takeover from the claimer": {
			forced: true, before: is(started, hookCreated(theRun, "hook_2", otherToken)), other: is(started, claims),
			one: is(forced), two: is(takingOver("hook_2", otherToken)),
		},
		"takeover × hook_disposed": {forced: true, before: is(started), other: is(started, claims), one: is(forced), two: is(hook("hook_disposed"))},
		"takeover × hook_received": {forced: true, before: is(started), other: is(started, claims), one: is(forced), two: is(hook("hook_received"))},
		"takeover × resumption":    {forced: true, before: is(started), other: is(started, claims), one: is(forced), two: is(resumed)},
		"takeover × complete":      {forced: true, before: is(started), other: is(started, claims), one: is(forced), two: is(completed)},
		"takeover × end that retained": {
			forced: true, before: is(started), other: is(started, retained), one: is(forced), two: is(completed),
		},
		"claim of an expired token × another": {
			before: is(started), other: is(started), holder: is(started, retained, completed),
			late: [2]time.Duration{2 * time.Hour, 2 * time.Hour}, one: is(claims), two: is(claims),
		},
	}
}

// inBandAll returns the requests as those of the orchestrator that knows the two in-band positions of a started run.
func inBandAll(requests ...Request) (all []Request) {
	for _, r := range requests {
		all = append(all, inBand(r, 2))
	}
	return all
}

// takingOver returns a hook_created that may take the token over.
func takingOver(id, token string) Request {
	r := hookCreated(theRun, id, token)
	r.Data.Force = true
	return r
}

// driven is the driver of runs with a store.
const driven = entities.DriverServer

// storeSet returns a command's write to the store.
func storeSet(id, values string) Request {
	r := on(theRun, entities.EventStoreSet, id)
	r.Payload = []byte(values)
	return r
}

// writtenBy returns a step's write to the store.
func writtenBy(id, values string) Request {
	r := storeSet(id, values)
	r.Data.StepName = "charge"
	return r
}

// setAttribute returns an attr_set with another value than the others.
func setAttribute() Request {
	r := on(theRun, entities.EventAttrSet, "")
	r.Data.Changes = []entities.AttributeChange{{Key: "k", Value: ptr("w")}}
	return r
}

// TestI4EveryInterleavingIsSerializable stops two clients, each with its own session, before each statement, and lets
// them continue in every order that [gate.Serial] explores. In every order the answers, the logs and the rows are those of one client
// after the other, no deadlock happens, logs are dense (I1), and rows are their fold (I2).
//
// Clients stop at all statements, also within batches, and at every commit and rollback; see package gate. They do not
// stop at begin, which takes no lock and no snapshot. Clients of two runs stop only where they can conflict: at
// statements about hooks and tokens, at locks on runs if both runs may be locked by one client, and at the end. All
// other statements are about rows of one run.
func TestI4EveryInterleavingIsSerializable(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixtureOn(t, dsn)
	for name, p := range clientPairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p.checkSerializable(t, dsn, f, noCache)
		})
		if p.other == nil { // one or both servers have the run cached
			for i, cached := range [][2]bool{{true, true}, {false, true}} {
				t.Run(fmt.Sprintf("%s, cached %d", name, i), func(t *testing.T) {
					t.Parallel()
					p.checkSerializable(t, dsn, f, cached)
				})
			}
		}
	}
}

// noCache is for servers without cached runs.
var noCache [2]bool

func (p clientPair) checkSerializable(t *testing.T, dsn string, f *fixture, cached [2]bool) {
	t.Helper()
	one, two := gate.Open(t, dsn, f.pool, p.canConflict), gate.Open(t, dsn, f.pool, p.canConflict)
	st := f.newRunner(f.logOver(one.Pool, p.late[0]), f.logOver(two.Pool, p.late[1]))
	serial := map[string]string{} // of servers without cached runs
	for name, order := range map[string][2]int{"one, two": {0, 1}, "two, one": {1, 0}} {
		s := p.newScenario(t, st)
		s.ask(t, order[0])
		s.ask(t, order[1])
		serial[s.outcome(t)] = name
	}
	if len(serial) != 2 {
		t.Error("both orders have the same outcome, which does not tell them apart")
	}
	st.cached = cached
	n, waits := gate.Serial(t, one, two, serial, func(schedule *gate.Schedule) string {
		s := p.newScenario(t, st)
		schedule.Run(t, func() { s.ask(t, 0) }, func() { s.ask(t, 1) })
		return s.outcome(t)
	})
	if waits == 0 && p.other == nil {
		t.Errorf("no client ever waited in %d schedules: they did not conflict", n)
	}
}

// canConflict selects the statements at which the clients can conflict.
func (p clientPair) canConflict(sql string) bool {
	return p.other == nil || p.forced && strings.Contains(sql, "FOR NO KEY UPDATE") || strings.Contains(sql, "hooks") || strings.Contains(sql, "advisory") ||
		sql == "COMMIT" || sql == "ROLLBACK"
}

// fixtureOn returns a fixture on an existing database.
func fixtureOn(t *testing.T, dsn string) *fixture {
	t.Helper()
	c := &clock{at: day}
	pool := testdb.Connect(t, dsn)
	hub := pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler))
	return &fixture{Log: New(pool, hub, noQueue{}, c.now), clock: c}
}

// logOver returns the log of another process, whose clock may be ahead.
func (f *fixture) logOver(pool *pgxpool.Pool, late time.Duration) *Log {
	l := New(pool, f.hub, noQueue{}, func() time.Time { return day.Add(late) })
	for _, p := range []entities.Project{home, stranger} { // so that no append reads them
		l.quotas.projects[p] = &quota{reading: make(chan struct{}, 1), readAt: day.Add(late)}
	}
	return l
}

// scenarioRunner runs scenarios.
type scenarioRunner struct {
	*fixture

	// logs are the logs of the clients' servers.
	logs [2]*Log
	// cached is set for the servers that have the runs cached, as they are at the start of the scenario.
	cached [2]bool
	// verified has the states that were verified.
	verified map[string]bool
}

func (f *fixture) newRunner(one, two *Log) *scenarioRunner {
	return &scenarioRunner{fixture: f, logs: [2]*Log{one, two}, verified: map[string]bool{}}
}

// scenario is the state that two clients start from, and their answers.
type scenario struct {
	clientPair
	*scenarioRunner

	// ids are the IDs of the clients' runs and of the third run.
	ids [3]entities.RunID
	// answers are the clients' answers, and errs the errors in them.
	answers [2]any
	errs    [2]error
}

// newScenario creates the runs and appends the earlier requests.
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
		first := runCreated(s.ids[i])
		if first.Data.Driver = p.driver; p.driven {
			first.Data.Driver = entities.DriverServer
		}
		if p.fenced {
			first.SpecVersion = entities.SpecFence
		}
		if p.forced {
			first.SpecVersion = entities.SpecTakeover
		}
		s.must(t, first)
		for _, r := range before {
			s.must(t, s.requestOf(r, i))
		}
		for client, cached := range s.cached {
			if cached {
				s.logs[client].cacheRun(s.rows(t, s.ids[i]))
			}
		}
	}
	return s
}

// cacheRun puts a run into the log's cache, as if the log had just appended to it.
func (l *Log) cacheRun(s *Snapshot) {
	l.cache.runs.Remove(s.Run.ID)
	l.cache.store(decision{before: NewSnapshot(s.Project), after: s}, l.Now())
}

// requestOf returns the request for a client's run.
func (s *scenario) requestOf(r Request, client int) Request {
	if r.Data.Token == contestedToken || r.Data.Token == otherToken {
		r.Data.Token += " token of " + string(s.ids[0])
	}
	if r.Continue != nil {
		next := *r.Continue
		next.Next.RunID, r.Continue = s.ids[2], &next
	}
	return forRun(r, s.ids[client])
}

// ask sends a client's requests and keeps the answer. It may be called from any goroutine.
func (s *scenario) ask(t *testing.T, client int) { s.askOf(t, client, s.logs[client]) }

func (s *scenario) askOf(t *testing.T, client int, log *Log) {
	var requests []Request
	for _, r := range [][]Request{s.one, s.two}[client] {
		requests = append(requests, s.requestOf(r, client))
	}
	if s.atomic {
		results, err := log.AppendAll(t.Context(), home, s.ids[client], requests, AppendOptions{})
		s.errs[client], s.answers[client] = err, []any{results, fmt.Sprint(err)}
		return
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

// outcome returns the answers, the logs and the rows.
func (s *scenario) outcome(t *testing.T) string {
	t.Helper()
	return s.normalized(t, s.answers) + s.state(t)
}

// state returns the logs and the rows. It checks that logs are dense (I1) and rows their fold (I2).
func (s *scenario) state(t *testing.T) string {
	t.Helper()
	var all []any
	var found []entities.RunID
	for _, id := range slices.Compact(slices.Clone(s.ids[:])) {
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
		return text // the same logs and rows were verified before
	}
	for _, id := range found {
		s.wantVerifiedAt(t, id, func() time.Time { return day.Add(s.late[0]) })
	}
	s.verified[text] = true
	return text
}

// normalized returns v as text, with the same run IDs in every scenario.
func (s *scenario) normalized(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(string(s.ids[0]), "run 1", string(s.ids[1]), "run 2", string(s.ids[2]), "run 3").
		Replace(string(text))
}

// TestReadingLogDuringRunCreation: a reader of the log of a run that is just being created finds no run, or its first
// event.
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
