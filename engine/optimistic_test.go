package engine

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// cachingServer is a server that appends from its cache of runs, and dies before it calls a function.
type cachingServer struct {
	*server

	worker *queue.Worker
}

// serverOn makes a server on the pool, whose hub does not run.
func serverOn(t *testing.T, pool *pgxpool.Pool) *server {
	t.Helper()
	hub := pg.NewHub(pool, "stepwell", slog.New(slog.DiscardHandler))
	q, err := queue.New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	log := eventlog.New(pool, hub, q, time.Now)
	return &server{&replica{pool: pool, hub: hub, Rows: testdb.In(pool), Queue: q}, log, New(q, log)}
}

func cachingServerOn(t *testing.T, session *gate.Session, home *server) *cachingServer {
	t.Helper()
	s := serverOn(t, session.Pool)
	log := eventlog.New(session.Pool, s.hub, dyingQueue{s.Queue}, time.Now)
	d := &server{s.replica, log, New(serverOn(t, session.Pool).Queue, log)} // this queue starts nothing inline
	b := &cachingServer{d, d.newWorker(t, d.works)}
	home.onRecord(t, b.worker.ProcessID())
	return b
}

// send executes one statement, in a transaction of its own.
func (b *cachingServer) send(ctx context.Context, fill func(*pgx.Batch)) error {
	var batch pgx.Batch
	fill(&batch)
	q := batch.QueuedQueries[0]
	_, err := b.pool.Exec(ctx, q.SQL, q.Arguments...)
	return err
}

// frozenProcess holds the leases. The other processes take it for dead, but it may still be running.
const frozenProcess = "proc_1"

// generatedIDs matches names that were generatedIDs up.
var generatedIDs = regexp.MustCompile(`(?:msg|rh|wrun)_[0-9A-Z]{26}`)

// runUnderWay is a run whose invocation and two steps, a and b, are under way.
type runUnderWay struct {
	home       *server
	run        entities.Run
	invocation queue.Delivery
	steps      map[string]queue.Delivery
	due        time.Time // when the message is due of a run that waits shortly
}

// prepareInvoked makes a run under way on the server, which then has the run in its cache.
func (b *cachingServer) prepareInvoked(t *testing.T, home *server) *runUnderWay {
	t.Helper()
	b.Attach(nil)
	home.Exec(t, `DELETE FROM runs`)
	home.Exec(t, `DELETE FROM river_job`)
	home.Exec(t, `DELETE FROM messages`)
	m := &runUnderWay{home: home, steps: map[string]queue.Delivery{}}
	id := b.startRun(t, `null`)
	m.invocation = home.claim(t, message.WorkRun, "")
	run, _, err := b.runs.recordStart(t.Context(), m.invocation)
	if err != nil {
		t.Fatal(err)
	}
	m.run = run
	if _, err := b.runs.Command(t.Context(), callOf(id, m.invocation.Lease), []byte(`{"commands":[
		{"type":"runStep","id":"a"},{"type":"runStep","id":"b"},{"type":"openHook","id":"h","token":"T"}]}`)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"a", "b"} {
		m.steps[step] = home.claim(t, message.WorkStep, step)
	}
	home.Exec(t, `
		INSERT INTO processes (id, host, session_key, beat_at) VALUES ($1, 'host', 1, now() - interval '1 h')
		ON CONFLICT (id) DO NOTHING`, frozenProcess)
	home.Exec(t, `UPDATE messages SET holder = $1`, frozenProcess)
	return m
}

// prepareAnswered makes a run whose invocation was answered, and which waits for its steps.
func (b *cachingServer) prepareAnswered(t *testing.T, home *server) *runUnderWay {
	t.Helper()
	m := b.prepareInvoked(t, home)
	if err := b.runs.answer(t.Context(), m.invocation, m.run, []byte(`{"commands":[{"type":"runStep","id":"c"}]}`)); err != nil {
		t.Fatal(err)
	}
	return m
}

// after is a preparation followed by an action of the same server.
func after(prepare preparation, action serverAction) preparation {
	return func(b *cachingServer, t *testing.T, home *server) *runUnderWay {
		t.Helper()
		m := prepare(b, t, home)
		if err := action(t.Context(), b, m); err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// deleteProcesses deletes the rows of all servers in processes.
func deleteProcesses(ctx context.Context, b *cachingServer, _ *runUnderWay) error {
	_, err := b.pool.Exec(ctx, `DELETE FROM processes`)
	return err
}

// expireLease makes the lease of the invocation expire.
func expireLease(ctx context.Context, b *cachingServer, m *runUnderWay) error {
	_, err := b.pool.Exec(ctx, `UPDATE messages SET due_at = now() WHERE lease = $1`, m.invocation.Lease)
	return err
}

// preparation prepares a run.
type preparation func(*cachingServer, *testing.T, *server) *runUnderWay

// serverAction is an operation of a server on a run.
type serverAction func(ctx context.Context, b *cachingServer, m *runUnderWay) error

func answerWith(answer string) serverAction { return answerAwaiting(answer, `null`) }

// answerAwaiting is an answer with commands and with what the run awaits.
func answerAwaiting(answer, await string) serverAction {
	return func(ctx context.Context, b *cachingServer, m *runUnderWay) error {
		return b.runs.answer(ctx, m.invocation, m.run, []byte(`{"commands":[`+answer+`],"await":`+await+`}`))
	}
}

func sendCommand(command string) serverAction {
	return func(ctx context.Context, b *cachingServer, m *runUnderWay) error {
		_, err := b.runs.Command(ctx, callOf(m.run.ID, m.invocation.Lease), []byte(`{"commands":[`+command+`]}`))
		return err
	}
}

// sendCopy is a command of a copy of the call, which knows the log as far as the call has it.
func sendCopy(command string) serverAction {
	return func(ctx context.Context, b *cachingServer, m *runUnderWay) error {
		_, err := b.runs.Exchange(ctx, callOf(m.run.ID, m.invocation.Lease), m.run.LastSeq,
			[]byte(`{"commands":[`+command+`]}`))
		return err
	}
}

// answerCopy is the answer of a copy of the call, which knows the log as far as the call has it.
func answerCopy(command string) serverAction {
	return func(ctx context.Context, b *cachingServer, m *runUnderWay) error {
		return b.runs.answer(ctx, m.invocation, m.run,
			fmt.Appendf(nil, `{"commands":[%s],"seen":%d}`, command, m.run.LastSeq))
	}
}

// completeStep completes a step with an output.
func completeStep(step, output string) serverAction {
	return func(ctx context.Context, b *cachingServer, m *runUnderWay) error {
		return b.runs.finish(ctx, b.worker.Bind(m.steps[step]), eventlog.Request{
			Type: entities.EventStepCompleted, CorrelationID: step, SpecVersion: entities.SpecDriven, Payload: []byte(output),
		})
	}
}

func appendEvent(r eventlog.Request) serverAction {
	return func(ctx context.Context, b *cachingServer, m *runUnderWay) error {
		r := r
		r.RunID, r.SpecVersion = m.run.ID, entities.SpecDriven
		_, err := b.log.Append(ctx, project, r)
		return err
	}
}

func (m *runUnderWay) child() eventlog.Request {
	return eventlog.Request{
		RunID: entities.NewRunID(time.Now()), Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven,
		Data: entities.EventData{
			DeploymentID: deployment, WorkflowName: "child", Driver: entities.DriverServer, ParentID: m.run.ID,
		},
	}
}

// startChild starts a child of the run.
func startChild(ctx context.Context, b *cachingServer, m *runUnderWay) error {
	_, _, err := b.log.Start(ctx, project, m.child())
	return err
}

// startChildHoldingLease starts a child in a transaction that also locks the parent's work, so that a statement that
// ends that work has to wait.
func startChildHoldingLease(ctx context.Context, b *cachingServer, m *runUnderWay) error {
	child := m.child()
	_, err := b.log.AppendAll(ctx, project, child.RunID, []eventlog.Request{child}, eventlog.AppendOptions{With: eventlog.UnderLock{
		Guard: func(batch *pgx.Batch) func([]eventlog.Request) error {
			var parent *entities.Run
			store.LockRunShared(batch, project, m.run.ID, &parent)
			m.invocation.Guard(batch)
			return func([]eventlog.Request) error {
				if parent.Status.Ended() {
					return entities.ErrRunEnded
				}
				return nil
			}
		},
	}})
	return err
}

// enqueueInvocation enqueues an invocation although the run has no new events, as the sweeper does.
func enqueueInvocation(ctx context.Context, b *cachingServer, m *runUnderWay) error {
	_, err := b.runs.queue.SendAll(ctx, []message.Message{{
		Project: project, DeploymentID: deployment, Topic: "order", RunID: m.run.ID, Work: message.WorkRun,
	}})
	return err
}

// takeOver takes over from frozenProcess, as another server does.
func takeOver(ctx context.Context, b *cachingServer, _ *runUnderWay) error {
	_, err := cluster.TakeOver(ctx, b.pool, []string{frozenProcess}, time.Second, time.Second)
	return err
}

func extendLease(ctx context.Context, b *cachingServer, m *runUnderWay) error {
	return b.send(ctx, func(batch *pgx.Batch) { m.invocation.ExtendIn(batch, 2*time.Hour) })
}

func nackWork(step string) serverAction {
	return func(ctx context.Context, b *cachingServer, m *runUnderWay) error {
		work := m.invocation
		if step != "" {
			work = m.steps[step]
		}
		return b.send(ctx, func(batch *pgx.Batch) {
			work.NackIn(batch, queue.Failure{Reason: "broken", After: time.Minute, Reached: true})
		})
	}
}

// state describes all runs and work, without times and generated IDs, and the errors that the servers got.
func (m *runUnderWay) state(t *testing.T, errs [2]error) string {
	t.Helper()
	var text string
	m.home.Scan(t, `
		SELECT concat_ws(E'\n',
			(SELECT string_agg(concat_ws(' ', workflow_name, status, last_seq, end_seq, parent_id, await - 'at'), ', ' ORDER BY workflow_name) FROM runs),
			(SELECT string_agg(concat_ws(' ', seq, type, correlation_id, convert_from(payload, 'UTF8')), ', ' ORDER BY seq)
				FROM events WHERE run_id = $1),
			(SELECT string_agg(concat_ws(' ', id, status, attempt, result_seq), ', ' ORDER BY id) FROM steps),
			(SELECT string_agg(concat_ws(' ', id, status), ', ' ORDER BY id) FROM waits),
			(SELECT string_agg(concat_ws(' ', work, subject, CASE holder WHEN '' THEN 'none' WHEN $2 THEN 'frozen' ELSE 'new' END,
				lease <> '', delivery_count, redeliver, ticket, due_at > now(), due_at > now() + interval '1 h', last_error),
				', ' ORDER BY work, subject) FROM messages WHERE run_id = $1),
			(SELECT count(*) FROM river_job))`, []any{m.run.ID, frozenProcess}, &text)
	return generatedIDs.ReplaceAllString(fmt.Sprintf("%s\n%v\n%v\n", text, errs[0], errs[1]), "ID")
}

// pairing is two operations of two servers on a run at the same time.
type pairing struct {
	prepare  preparation
	one, two serverAction
	// needsLock is set if the first operation has to lock the run although its cache is right.
	needsLock bool
}

func pairings() map[string]pairing {
	var now, later preparation = (*cachingServer).prepareInvoked, (*cachingServer).prepareAnswered
	cancels := appendEvent(eventlog.Request{Type: entities.EventRunCancelled})
	asked := appendEvent(eventlog.Request{Type: entities.EventCancelRequested, Grace: 2 * time.Hour})
	disposes := appendEvent(eventlog.Request{Type: entities.EventHookDisposed, CorrelationID: "h"})
	waitsToo := sendCommand(`{"type":"wait","id":"v","for":"30m"}`)
	drops := sendCommand(`{"type":"cancelStep","id":"a"}`)
	resumes := appendEvent(eventlog.Request{Type: entities.EventHookReceived, CorrelationID: "h", Payload: []byte(`1`)})
	ends := answerWith(`{"type":"complete","output":"1"}`)
	sleeps := answerWith(`{"type":"wait","id":"w","for":"1h"}`)
	waiting := until(after(now, answerWith(`{"type":"wait","id":"w","for":"1ms"}`)))
	awaitingSleep := until(after(now, answerAwaiting(`{"type":"wait","id":"w","for":"1ms"}`, `{"any":["wait:w"]}`)))
	asks, waits := answerWith(`{"type":"runStep","id":"x"}`), sendCommand(`{"type":"wait","id":"w","for":"1h"}`)
	records := sendCommand(`{"type":"recordStep","id":"r","output":1},{"type":"runStep","id":"f",` +
		`"firstAttempt":{"error":{"message":"m"},"retryAfter":"2h"}}`)
	const both = `{"all":[["step:a","step:b"]]}`
	recorded := func(output string) string { return `{"type":"recordStep","id":"r","output":` + output + `}` }
	awaiting, awaited := answerAwaiting(`{"type":"runStep","id":"x"}`, both), after(now, answerAwaiting(``, both))
	return map[string]pairing{
		"awaiting answer × result":         {prepare: now, one: awaiting, two: completeStep("a", "1")},
		"awaiting answer × hook received":  {prepare: now, one: awaiting, two: resumes},
		"awaiting answer × sweeper":        {prepare: now, one: awaiting, two: enqueueInvocation},
		"result × awaiting answer":         {prepare: now, one: completeStep("a", "1"), two: answerAwaiting(``, both)},
		"awaited result × awaited result":  {prepare: awaited, one: completeStep("a", "1"), two: completeStep("b", "1")},
		"awaited result × the same result": {prepare: awaited, one: completeStep("a", "1"), two: completeStep("a", "1")},
		"awaited result × hook received":   {prepare: awaited, one: completeStep("a", "1"), two: resumes},
		"last awaited result × hook received": {
			prepare: after(awaited, completeStep("b", "1")), one: completeStep("a", "1"), two: resumes,
		},

		"answer that sleeps × result":        {prepare: now, one: sleeps, two: completeStep("a", "1")},
		"answer that sleeps × hook received": {prepare: now, one: sleeps, two: resumes},
		"answer that sleeps × command to wait": {
			prepare: now, one: sleeps, two: sendCommand(`{"type":"wait","id":"v","for":"2h"}`),
		},
		"answer that sleeps × sweeper":           {prepare: now, one: sleeps, two: enqueueInvocation},
		"answer that sleeps × takeover":          {prepare: now, one: sleeps, two: takeOver},
		"answer that sleeps × longer lease":      {prepare: now, one: sleeps, two: extendLease},
		"answer that sleeps, with a wait × nack": {prepare: after(now, waitsToo), one: sleeps, two: nackWork("")},
		"answer that awaits sleep × result": {
			prepare: now, one: answerAwaiting(`{"type":"wait","id":"w","for":"1h"}`, `{"any":["wait:w"]}`),
			two: completeStep("a", "1"),
		},
		"wake × hook received":          {prepare: waiting, one: wake, two: resumes},
		"wake × result":                 {prepare: waiting, one: wake, two: completeStep("a", "1")},
		"wake × sweeper":                {prepare: waiting, one: wake, two: enqueueInvocation},
		"wake × cancel":                 {prepare: waiting, one: wake, two: cancels},
		"wake × the same":               {prepare: waiting, one: wake, two: wake},
		"awaited wake × result":         {prepare: awaitingSleep, one: wake, two: completeStep("a", "1")},
		"awaited wake × hook received":  {prepare: awaitingSleep, one: wake, two: resumes},
		"hook received × hook received": {prepare: later, one: resumes, two: resumes},
		"hook received × result":        {prepare: later, one: resumes, two: completeStep("a", "1")},
		"hook received × cancel":        {prepare: later, one: resumes, two: cancels},
		"hook received × sweeper":       {prepare: later, one: resumes, two: enqueueInvocation},
		"hook received × answer":        {prepare: now, one: resumes, two: asks},
		"hook received × disposal":      {prepare: later, one: resumes, two: disposes},

		"copy × copy":        {prepare: now, one: sendCopy(recorded("1")), two: sendCopy(recorded("2"))},
		"copy × its request": {prepare: now, one: sendCopy(recorded("1")), two: sendCopy(recorded("1"))},
		"copy × answer":      {prepare: now, one: sendCopy(recorded("1")), two: answerCopy(recorded("2"))},
		"copy × result":      {prepare: now, one: sendCopy(recorded("1")), two: completeStep("a", "1")},
		"copy's answer × copy": {
			prepare: now, one: answerCopy(`{"type":"runStep","id":"x"}`), two: sendCopy(recorded("2")),
		},
		"copy's answer, overtaken × result": {
			prepare: after(now, sendCopy(recorded("1"))), one: answerCopy(recorded("2")), two: completeStep("a", "1"),
			needsLock: true,
		},

		"answer × result":              {prepare: now, one: asks, two: completeStep("a", "1")},
		"answer × cancel":              {prepare: now, one: asks, two: cancels},
		"answer × hook received":       {prepare: now, one: asks, two: resumes},
		"answer × the same answer":     {prepare: now, one: asks, two: asks},
		"answer × another answer":      {prepare: now, one: asks, two: answerWith(`{"type":"complete"}`)},
		"answer × command to wait":     {prepare: now, one: asks, two: waits},
		"answer × command of the same": {prepare: now, one: asks, two: sendCommand(`{"type":"runStep","id":"x"}`)},
		"answer × start of a child":    {prepare: now, one: asks, two: startChild},
		"answer × sweeper":             {prepare: now, one: asks, two: enqueueInvocation},
		"answer × takeover":            {prepare: now, one: asks, two: takeOver},
		"answer × longer lease":        {prepare: now, one: asks, two: extendLease},
		"answer × nack":                {prepare: now, one: asks, two: nackWork("")},

		"command × answer":          {prepare: now, one: records, two: asks},
		"command × the same":        {prepare: now, one: records, two: records},
		"command × result":          {prepare: now, one: records, two: completeStep("a", "1")},
		"command × cancel":          {prepare: now, one: records, two: cancels},
		"command × hook received":   {prepare: now, one: records, two: resumes},
		"command × sweeper":         {prepare: now, one: records, two: enqueueInvocation},
		"command × takeover":        {prepare: now, one: records, two: takeOver},
		"command × longer lease":    {prepare: now, one: records, two: extendLease},
		"command × nack":            {prepare: now, one: records, two: nackWork("")},
		"last command × result":     {prepare: now, one: sendCommand(`{"type":"complete"}`), two: completeStep("a", "1")},
		"command to wait × sweeper": {prepare: now, one: waits, two: enqueueInvocation},
		"command after expiry × longer lease": {
			prepare: after(now, expireLease), one: records, two: extendLease, needsLock: true,
		},
		"answer × ask to cancel":  {prepare: now, one: asks, two: asked},
		"answer × cancelled step": {prepare: now, one: asks, two: drops},
		"result × ask to cancel":  {prepare: later, one: completeStep("a", "1"), two: asked},
		"result × cancelled step": {prepare: now, one: completeStep("a", "1"), two: drops},
		"end × ask to cancel":     {prepare: now, one: ends, two: asked},
		"end as asked × result": {
			prepare: after(now, asked), one: answerWith(`{"type":"cancelled"}`), two: completeStep("a", "1"), needsLock: true,
		},

		"result × result, invoked":  {prepare: now, one: completeStep("a", "1"), two: completeStep("b", "2")},
		"result × answer":           {prepare: now, one: completeStep("a", "1"), two: asks},
		"result × result":           {prepare: later, one: completeStep("a", "1"), two: completeStep("b", "2")},
		"result × the same result":  {prepare: later, one: completeStep("a", "1"), two: completeStep("a", "1")},
		"result × cancel":           {prepare: later, one: completeStep("a", "1"), two: cancels},
		"result × hook received":    {prepare: later, one: completeStep("a", "1"), two: resumes},
		"result × sweeper":          {prepare: later, one: completeStep("a", "1"), two: enqueueInvocation},
		"result × takeover":         {prepare: later, one: completeStep("a", "1"), two: takeOver},
		"result × nack":             {prepare: later, one: completeStep("a", "1"), two: nackWork("a")},
		"result × start of a child": {prepare: later, one: completeStep("a", "1"), two: startChild},

		"end × start of a child":    {prepare: now, one: ends, two: startChild},
		"end × child meanwhile":     {prepare: now, one: ends, two: startChildHoldingLease},
		"end × result":              {prepare: now, one: ends, two: completeStep("a", "1")},
		"end × cancel":              {prepare: now, one: ends, two: cancels},
		"end × hook received":       {prepare: now, one: ends, two: resumes},
		"end × sweeper":             {prepare: now, one: ends, two: enqueueInvocation},
		"end × takeover":            {prepare: now, one: ends, two: takeOver},
		"end × longer lease":        {prepare: now, one: ends, two: extendLease},
		"end × nack":                {prepare: now, one: ends, two: nackWork("")},
		"cancel × start of a child": {prepare: now, one: cancels, two: startChild},
		"cancel × takeover":         {prepare: later, one: cancels, two: takeOver},

		"end, with a child × sweeper":        {prepare: after(now, startChild), one: ends, two: enqueueInvocation, needsLock: true},
		"end after expiry × longer lease":    {prepare: after(now, expireLease), one: ends, two: extendLease, needsLock: true},
		"end, with a wait × sweeper":         {prepare: after(now, waits), one: ends, two: enqueueInvocation},
		"answer, with a wait × sweeper":      {prepare: after(now, waits), one: asks, two: enqueueInvocation, needsLock: true},
		"answer, with new events × cancel":   {prepare: after(now, enqueueInvocation), one: asks, two: cancels, needsLock: true},
		"answer after expiry × longer lease": {prepare: after(now, expireLease), one: asks, two: extendLease, needsLock: true},
		"answer without process × sweeper":   {prepare: after(now, deleteProcesses), one: asks, two: enqueueInvocation, needsLock: true},
		"result, with a wait × cancel":       {prepare: after(after(now, waits), asks), one: completeStep("a", "1"), two: cancels},
		"result without process × sweeper":   {prepare: after(later, deleteProcesses), one: completeStep("a", "1"), two: enqueueInvocation, needsLock: true},
		"result, after a wait × cancel": {prepare: after(after(now, sendCommand(
			`{"type":"wait","id":"w","for":"0s"}`)), asks), one: completeStep("a", "1"), two: cancels, needsLock: true},
	}
}

// TestI4EveryInterleavingOfOptimisticAppendsIsSerial stops two servers before each statement and commit, and lets them
// continue in every order that [gate.Serial] explores. The first has a cached run, which is right until the second
// writes to it; it ends a lease and starts other work optimistically. The second locks the run. Their errors and the
// state are always the same as if one had acted after the other, both with locks, and they never deadlock.
func TestI4EveryInterleavingOfOptimisticAppendsIsSerial(t *testing.T) {
	t.Parallel()
	for name, e := range pairings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e.checkSerial(t)
		})
	}
}

func (e pairing) checkSerial(t *testing.T) {
	t.Helper()
	d := e.duel(t)
	alone := d.alone(t)
	const most = 3 // a lock if need be, the statement, and the commit
	if optimistic := len(alone) <= most; optimistic == e.needsLock || d.errs[0] != nil && !e.needsLock {
		t.Fatalf("got statements %q and error %v; needs a lock: %v", alone, d.errs[0], e.needsLock)
	}
	// The third server shows the results of the locked append.
	serial := map[string]string{d.after(t, 2, 1): "one, two", d.after(t, 1, 2): "two, one"}
	gate.Serial(t, d.one, d.two, serial, func(schedule *gate.Schedule) string { return d.play(t, schedule) })
}

// TestEachStepIsOneStatement: a function that records each step before the next costs one statement for each, and its
// last answer one, however many steps the answer has. Their events need no read.
func TestEachStepIsOneStatement(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := idleServer(t, dsn)
	session := gate.Open(t, dsn, home.pool, nil)
	b := cachingServerOn(t, session, home)
	m := b.prepareInvoked(t, home)
	b.Attach(b.worker)
	record := func(id string) string { return `{"type":"recordStep","id":"` + id + `","output":1}` }
	want := func(n int, what string, do func() error) {
		t.Helper()
		var err error
		if statements := session.Run(t, -1, gate.None, func() { err = do() }); len(statements) != n || err != nil {
			t.Errorf("%s: got error %v and %d statements, want %d: %.100q", what, err, len(statements), n, statements)
		}
	}
	knows := m.run.LastSeq
	for _, id := range []string{"x", "y"} {
		want(2, id, func() error { // the statement and its commit
			results, err := b.runs.Exchange(t.Context(), callOf(m.run.ID, m.invocation.Lease), knows,
				[]byte(`{"commands":[`+record(id)+`]}`))
			if err == nil && results[1].Log == nil {
				t.Error("the result has no log")
			}
			if err == nil {
				knows = results[1].Event.Seq
			}
			return err
		})
	}
	answer := record("0")
	for i := 1; i < 15; i++ {
		answer += "," + record(fmt.Sprint(i))
	}
	want(3, "the answer", func() error { // and the lock, as the end of the run must see all children
		return answerWith(answer+`,{"type":"complete"}`)(t.Context(), b, m)
	})
	home.Want(t, "completed runs", 1, `SELECT count(*) FROM runs WHERE status = 'completed'`)
}
