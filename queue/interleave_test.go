package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// operation is a call of the queue by a server. It returns the call's result and error.
type operation func(ctx context.Context, s *site) (any, error)

// site is a replica with the message of the test case.
type site struct {
	*replica

	worker *Worker
	log    *eventlog.Log
	id     string
	// handle is the message's initial lease, if it has one.
	handle string
	// run is the run that the test case creates, if it does.
	run entities.RunID
}

// The operations. Each is one transaction.

func claims(handle string) operation {
	return func(ctx context.Context, s *site) (any, error) {
		d, ok, err := s.Claim(ctx, tickets.Ticket{MessageID: s.id, Number: firstTicket}, handle, frozen, leaseTime)
		return fmt.Sprint(ok, " ", d.Lease, " ", d.DeliveryCount), err
	}
}

func receives(ctx context.Context, s *site) (any, error) {
	m, err := s.Receive(ctx, project, topic, s.id, time.Minute)
	return fmt.Sprint(m.Lease, " ", m.DeliveryCount), err
}

func acknowledges(ctx context.Context, s *site) (any, error) {
	return nil, s.Acknowledge(ctx, project, topic, s.handle)
}

func extends(ctx context.Context, s *site) (any, error) {
	return nil, s.SetVisibility(ctx, project, topic, s.handle, time.Hour)
}

func releases(ctx context.Context, s *site) (any, error) {
	f := Failure{Reason: "broken", After: time.Minute, Reached: true}
	_, err := s.pool.Exec(ctx, nackSQL, f.nackArgs(s.handle)...)
	return nil, err
}

// issuesTickets issues the tickets of due messages, as a server's loop does.
func issuesTickets(ctx context.Context, s *site) (any, error) {
	_, err := s.worker.issue(ctx, []ration{{project, maxTickets}})
	return nil, err
}

func sends(options ...func(*message.Message)) operation {
	return func(ctx context.Context, s *site) (any, error) { return s.Send(ctx, newMessage(options...)) }
}

// sendsInTx sends in a transaction that begins before the other session's first statement.
func sendsInTx(options ...func(*message.Message)) operation {
	return func(ctx context.Context, s *site) (any, error) {
		return s.SendAll(ctx, []message.Message{newMessage(options...)})
	}
}

// answers does what the answer to a delivery does: it appends an event, sends a message about its run, and acknowledges
// the site's message. All facts are known, since it creates the run.
func answers(ctx context.Context, s *site) (any, error) { return answersOn(ctx, s, topic) }

func answersOn(ctx context.Context, s *site, topic string) (any, error) {
	id := ""
	m := newMessage(keyed("key"), body("next"), ofRun(s.run))
	m.Stored = &id
	with, committed := s.AcknowledgeWith(project, topic, s.handle)
	o := eventlog.AppendOptions{With: with, Messages: []message.Message{m}}
	outcomes, err := s.log.AppendEach(ctx, project, s.run, []eventlog.Request{{
		Type: entities.EventRunCreated, SpecVersion: 3, Payload: []byte("input"),
		Data: entities.EventData{DeploymentID: deployment, WorkflowName: "order"},
	}}, o)
	if err != nil {
		return nil, err
	}
	committed()
	return id, outcomes[0].Err
}

// frozen is the process that makes the deliveries. The others have declared it dead, but it may be alive.
const frozen = "proc_1"

func leaves(ctx context.Context, s *site) (any, error) {
	return nil, shortenLease(ctx, s.pool, s.handle, time.Hour)
}

// reaps takes over the leases of dead processes.
func reaps(ctx context.Context, s *site) (any, error) {
	return cluster.TakeOver(ctx, s.pool, []string{frozen}, time.Second, time.Second)
}

// on returns a replica on the pool. Its hub neither sends nor receives hints, and its worker does not run.
func on(t *testing.T, pool *pgxpool.Pool) *site {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	hub := pg.NewHub(pool, "stepwell", quiet)
	q, err := New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	w, err := q.NewWorker(migrations.DefaultSchema, WorkerOptions{
		Deliveries: 1, MaxDeliveries: 50, Allowed: loopback(t), Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &site{replica: &replica{pool: pool, hub: hub, Rows: testdb.In(pool), Queue: q}, worker: w, log: eventlog.New(pool, hub, q, time.Now)}
}

// The initial states.

func (s *site) empty(t *testing.T) {
	t.Helper()
	s.Exec(t, `DELETE FROM messages`)
	s.Exec(t, `DELETE FROM message_keys`)
	s.Exec(t, `DELETE FROM river_job`)
	s.Exec(t, `
		INSERT INTO processes (id, host, session_key, beat_at) VALUES ($1, 'host', 1, now() - interval '1 h')
		ON CONFLICT (id) DO NOTHING`, frozen)
	s.id, s.handle = "", ""
}

// ready stores a message with an issued ticket.
func (s *site) ready(t *testing.T) {
	t.Helper()
	s.empty(t)
	s.id = s.send(t, keyed("key"))
	s.issue(t)
}

// lost stores a message whose ticket counts as lost.
func (s *site) lost(t *testing.T) {
	t.Helper()
	s.ready(t)
	s.Exec(t, `UPDATE messages SET due_at = now()`)
}

// fetched stores a message whose ticket the frozen process has fetched.
func (s *site) fetched(t *testing.T) {
	t.Helper()
	s.ready(t)
	s.Exec(t, `UPDATE river_job SET state = 'running', attempted_by = ARRAY[$1]`, frozen)
}

// leased stores a message that is being delivered.
func (s *site) leased(t *testing.T) {
	t.Helper()
	s.ready(t)
	s.handle = "rh_first"
	if _, err := claims(s.handle)(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// expired stores a message whose lease has expired.
func (s *site) expired(t *testing.T) {
	t.Helper()
	s.leased(t)
	s.Exec(t, `UPDATE messages SET due_at = now()`)
}

// delivered stores a message that is being delivered, whose answer creates a run.
func (s *site) delivered(t *testing.T) {
	t.Helper()
	s.leased(t)
	s.Exec(t, `DELETE FROM message_keys`)
	s.Exec(t, `DELETE FROM runs`)
	s.run = entities.RunID("wrun_" + ulid.Make().String())
}

// forgotten stores an expired key of a message that is gone.
func (s *site) forgotten(t *testing.T) {
	t.Helper()
	s.ready(t)
	s.Exec(t, `DELETE FROM messages`)
	s.Exec(t, `UPDATE message_keys SET expires_at = now()`)
}

// with returns a site with the same message on another replica.
func (s *site) with(other *site) *site {
	there := *other
	there.id, there.handle, there.run = s.id, s.handle, s.run
	return &there
}

var made = regexp.MustCompile(`(?:msg|rh|wrun)_[0-9A-Z]{26}`)

// state returns all rows of the queue, without times and generated IDs.
func (s *site) state(t *testing.T, outcomes ...any) string {
	t.Helper()
	all := []any{outcomes}
	for _, sql := range []string{
		`SELECT id, encode(body, 'escape') AS body, run_id, ticket, lease, holder, delivery_count, unreached_count, last_error,
			parked_at IS NOT NULL AS parked, due_at > now() AS later, due_at > now() + interval '30 min' AS far FROM messages ORDER BY body, id`,
		`SELECT key, message_id, expires_at > now() AS remembered FROM message_keys ORDER BY key`,
		`SELECT args ->> 'message' AS message, args ->> 'ticket' AS ticket, state FROM river_job ORDER BY id`,
		`SELECT id FROM processes`,
		`SELECT run_id, seq, type FROM events ORDER BY run_id, seq`,
	} {
		rows, err := s.pool.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowToMap)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found)
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	return made.ReplaceAllStringFunc(string(text), func(name string) string {
		if _, ok := names[name]; !ok {
			kind, _, _ := strings.Cut(name, "_")
			names[name] = kind + " " + strconv.Itoa(len(names)+1)
		}
		return names[name]
	})
}

// TestI4EveryInterleavingOfTheQueueIsSerial pauses two replicas before each of their statements, and before the commit
// of single statements, and runs them in every order that [gate.Serial] explores. The results and the queue's state
// always equal those of one of the two serial orders, and no deadlock happens.
//
// Two pairs are missing because they are not serial and need not be. A timer whose transaction started before a
// takeover does not see the messages that the takeover made due, and issues their tickets on its next poll. A takeover
// does not see a claim that is still uncommitted seconds after its process's last heartbeat; the sweeper's next pass
// releases the lease (TestLeaseOfAnUnregisteredHolderIsReleased).
func TestI4EveryInterleavingOfTheQueueIsSerial(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := on(t, withoutHints(t, dsn).pool)
	for name, test := range map[string]struct {
		setup    func(*site, *testing.T)
		one, two operation
		// alike is set when both orders have the same outcome.
		alike bool
	}{
		"claim × claim":                   {setup: (*site).ready, one: claims("rh_1"), two: claims("rh_2")},
		"claim × receive":                 {setup: (*site).ready, one: claims("rh_1"), two: receives},
		"receive × receive":               {setup: (*site).ready, one: receives, two: receives},
		"claim × timer":                   {setup: (*site).lost, one: claims("rh_1"), two: issuesTickets},
		"receive × timer":                 {setup: (*site).lost, one: receives, two: issuesTickets},
		"timer × timer":                   {setup: (*site).lost, one: issuesTickets, two: issuesTickets, alike: true},
		"claim × timer, after the lease":  {setup: (*site).expired, one: claims("rh_1"), two: issuesTickets, alike: true},
		"acknowledge × acknowledge":       {setup: (*site).leased, one: acknowledges, two: acknowledges},
		"acknowledge × release":           {setup: (*site).leased, one: acknowledges, two: releases},
		"acknowledge × extend":            {setup: (*site).leased, one: acknowledges, two: extends},
		"extend × release":                {setup: (*site).leased, one: extends, two: releases},
		"receive × release":               {setup: (*site).leased, one: receives, two: releases},
		"acknowledge × timer, too late":   {setup: (*site).expired, one: acknowledges, two: issuesTickets, alike: true},
		"release × timer":                 {setup: (*site).expired, one: releases, two: issuesTickets},
		"take over × take over":           {setup: (*site).leased, one: reaps, two: reaps},
		"take over × acknowledge":         {setup: (*site).leased, one: reaps, two: acknowledges},
		"take over × extend":              {setup: (*site).leased, one: reaps, two: extends},
		"take over × release":             {setup: (*site).leased, one: reaps, two: releases},
		"take over × leave with function": {setup: (*site).leased, one: reaps, two: leaves},
		"take over × receive":             {setup: (*site).fetched, one: reaps, two: receives},
		"send × send, one key":            {setup: (*site).empty, one: sends(keyed("key"), body("1")), two: sends(keyed("key"), body("2"))},
		"send × send, a forgotten key":    {setup: (*site).forgotten, one: sends(keyed("key"), body("1")), two: sends(keyed("key"), body("2"))},
		"send × send later, one key":      {setup: (*site).empty, one: sends(keyed("key")), two: sends(keyed("key"), delayed(time.Hour))},
		"send of a known key × delivery":  {setup: (*site).ready, one: sends(keyed("key")), two: claims("rh_1"), alike: true},
		"send of a known key × its end":   {setup: (*site).leased, one: sends(keyed("key")), two: acknowledges, alike: true},
		"answer × answer":                 {setup: (*site).delivered, one: answers, two: answers},
		"answer × acknowledge":            {setup: (*site).delivered, one: answers, two: acknowledges},
		"answer × extend":                 {setup: (*site).delivered, one: answers, two: extends},
		"answer × release":                {setup: (*site).delivered, one: answers, two: releases},
		"answer × take over":              {setup: (*site).delivered, one: answers, two: reaps},
		"answer × send, one key":          {setup: (*site).delivered, one: answers, two: sends(keyed("key"), body("sent"))},
		"send × timer, of another's loss": {setup: (*site).lost, one: sendsInTx(keyed("other")), two: issuesTickets},
	} {
		t.Run(name, func(t *testing.T) { // not in parallel: a timer reads all messages
			one, two := gate.Open(t, dsn, home.pool, nil), gate.Open(t, dsn, home.pool, nil)
			sites := [2]*site{on(t, one.Pool), on(t, two.Pool)}
			var outcomes [2]any
			ask := func(i int) {
				answer, err := [2]operation{test.one, test.two}[i](t.Context(), home.with(sites[i]))
				outcomes[i] = []any{answer, fmt.Sprint(err)}
			}
			serial := map[string]string{}
			for name, order := range map[string][2]int{"one, two": {0, 1}, "two, one": {1, 0}} {
				test.setup(home, t)
				ask(order[0])
				ask(order[1])
				serial[home.state(t, outcomes[:]...)] = name
			}
			if alike := len(serial) == 1; alike != test.alike {
				t.Errorf("both orders have the same outcome: %v, want %v", alike, test.alike)
			}
			n, _ := gate.Serial(t, one, two, serial, func(schedule *gate.Schedule) string {
				test.setup(home, t)
				schedule.Run(t, func() { ask(0) }, func() { ask(1) })
				return home.state(t, outcomes[:]...)
			})
			if n < 3 {
				t.Errorf("got only %d schedules", n)
			}
		})
	}
}
