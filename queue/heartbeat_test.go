package queue

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// redeliveryLimit is how long it may take on a busy machine to deliver a message again after the death of its server. It
// should be 5 s; if nobody noticed the death, it would be the lease's 5 min.
const redeliveryLimit = time.Minute

// silentProcess registers a process without a heartbeat, silent for the given time. Its session stays open until
// closed.
func (r *replica) silentProcess(t testing.TB, id string, silent time.Duration) (session *pgx.Conn) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), r.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	const locked = `SELECT pg_advisory_lock(hashtextextended($1, 0))` // all 64 bits matter
	if _, err := conn.Exec(t.Context(), locked, id); err != nil {
		t.Fatal(err)
	}
	r.Exec(t, `
		INSERT INTO processes (id, host, session_key, beat_at)
		VALUES ($1, 'host', hashtextextended($1, 0), now() - $2::interval)`, id, silent)
	return conn
}

// closeSession ends a session as the death of its process would, and waits until Postgres has noticed.
func (r *replica) closeSession(t testing.TB, session *pgx.Conn) {
	t.Helper()
	_ = session.PgConn().Conn().Close()
	testdb.Eventually(t, "the session is over", func() bool {
		return r.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, session.PgConn().PID()) == 0
	})
}

// registerProcess registers a process unless it is registered.
func (r *replica) registerProcess(t testing.TB, id string) {
	t.Helper()
	r.Exec(t, `INSERT INTO processes (id, host, session_key) VALUES ($1, 'host', 0) ON CONFLICT DO NOTHING`, id)
}

// claimed sends a message and claims it for a registered process.
func (r *replica) claimed(t testing.TB, holder string, changes ...func(*message.Message)) Delivery {
	t.Helper()
	if holder != "" {
		r.registerProcess(t, holder)
	}
	id := r.send(t, changes...)
	d, ok, err := r.Claim(t.Context(), tickets.Ticket{MessageID: id, Number: firstTicket}, "rh_"+id, holder, leaseTime)
	if err != nil || !ok {
		t.Fatalf("claim: got %v, %v", ok, err)
	}
	return d
}

func TestLeasesOfADeadProcessAreTakenOver(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	r := open(t, dsn)
	a := newApp(t, nil)
	r.register(t, deployment, a.URL)
	session := r.silentProcess(t, "proc_dead", 0)
	r.silentProcess(t, "proc_living", 0)
	lost, kept, living := r.claimed(t, "proc_dead"), r.claimed(t, "proc_dead"), r.claimed(t, "proc_living")
	// One function has extended its lease itself, so the lease must survive the server.
	if err := r.SetVisibility(t.Context(), project, topic, kept.Lease, leaseTime); err != nil {
		t.Fatal(err)
	}
	// One ticket was fetched but not used.
	fetched := r.send(t)
	r.issue(t)
	r.Exec(t, `DELETE FROM river_job WHERE args->>'message' <> $1`, fetched)
	r.Exec(t, `UPDATE river_job SET state = 'running', attempted_by = '{proc_other, proc_dead}'`)
	r.worker(t)
	r.closeSession(t, session)
	died := time.Now()

	got := map[string]call{}
	for range 2 {
		c := a.next(t)
		got[c.id()] = c
	}
	if took := time.Since(died); took > redeliveryLimit {
		t.Errorf("delivered again after %s, want at most %s", took, redeliveryLimit)
	}
	for _, id := range []string{lost.ID, fetched} {
		if c, ok := got[id]; !ok || c.count() != "1" || c.handle() == lost.Lease {
			t.Errorf("message %s: got %v, want delivery 1 with a new handle", id, c.Header)
		}
	}
	testdb.WantError(t, "the old handle", r.Acknowledge(t.Context(), project, topic, lost.Lease), message.ErrLeaseNotFound)
	for _, d := range []Delivery{kept, living} {
		if s := r.stored(t, d.ID); s.Lease != d.Lease || s.DeliveryCount != 1 {
			t.Errorf("got %+v, want the lease %s untouched", s, d.Lease)
		}
		if err := r.Acknowledge(t.Context(), project, topic, d.Lease); err != nil {
			t.Errorf("acknowledge %s: %v", d.Lease, err)
		}
	}
	r.ack(t, got[lost.ID])
	r.ack(t, got[fetched])
	r.Want(t, "dead processes", 0, `SELECT count(*) FROM processes WHERE id = 'proc_dead'`)
	testdb.Eventually(t, "no ticket is in use", func() bool {
		return r.Count(t, `SELECT count(*) FROM river_job WHERE state = 'running'`) == 0
	})
}

// silentOf returns the processes that p would declare dead.
func (r *replica) silentOf(t testing.TB, p *cluster.Heartbeat) []string {
	t.Helper()
	t.Cleanup(func() { p.SignOff(context.Background()) })
	silent, _, err := p.Silent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return silent
}

// TestServersTellWhatTheyRun: the version, the commit and the role of a process come with its first beat.
func TestServersTellWhatTheyRun(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	want := cluster.Program{Version: "v1.2.3", Commit: "3f20b23 (modified)", Role: "worker"}
	p := cluster.NewHeartbeat(r.pool, r.pool, want, func() {}, slog.New(slog.DiscardHandler))
	r.silentOf(t, p)
	servers, err := cluster.ListServers(t.Context(), r.pool)
	if err != nil || len(servers.List) != 1 || servers.List[0].Program != want {
		t.Errorf("got %+v, %v; want one server with %+v", servers.List, err, want)
	}
}

func TestOnlySteadyProcessesDeclareOthersDead(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.silentProcess(t, "proc_silent", time.Minute)
	p := r.newWorker(t).heartbeat
	if got := r.silentOf(t, p); len(got) != 0 {
		t.Errorf("first beat: got %v, want none declared dead", got)
	}
	// Beats of the future are not missing on a busy machine.
	r.Exec(t, `UPDATE processes SET steady_since = now() - interval '1 h', beat_at = now() + interval '1 h' WHERE id = $1`, p.ID)
	if got := r.silentOf(t, p); !slices.Equal(got, []string{"proc_silent"}) {
		t.Errorf("steady: got %v, want the silent one", got)
	}
	// The process itself paused, as all do during a database outage.
	r.Exec(t, `UPDATE processes SET beat_at = now() - interval '3 s' WHERE id = $1`, p.ID)
	if got := r.silentOf(t, p); len(got) != 0 {
		t.Errorf("after a pause: got %v, want none declared dead", got)
	}
	r.Exec(t, `UPDATE processes SET beat_at = now() + interval '1 h'`)
	r.Exec(t, `UPDATE processes SET steady_since = now() - interval '1 h' WHERE id = $1`, p.ID)
	if got := r.silentOf(t, p); len(got) != 0 {
		t.Errorf("none silent: got %v", got)
	}
}

func TestSlowProcessKeepsItsLeases(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		silent      time.Duration
		gone        bool
		sessionless bool
		wantDead    bool
	}{
		"slow":                            {silent: 2 * cluster.SilenceLimit},
		"beats, reconnecting":             {silent: -time.Minute, gone: true}, // or it would be silent on a busy machine
		"gone":                            {silent: 3 * time.Second, gone: true, wantDead: true},
		"frozen":                          {silent: 16 * time.Second, wantDead: true},
		"without a session, slow or gone": {silent: 10 * time.Second, sessionless: true},
		"without a session, gone":         {silent: 16 * time.Second, sessionless: true, wantDead: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withoutHints(t, testdb.New(t))
			session := r.silentProcess(t, "proc_1", tt.silent)
			d := r.claimed(t, "proc_1")
			if tt.gone {
				r.closeSession(t, session)
			}
			if tt.sessionless {
				r.Exec(t, `UPDATE processes SET session_key = 0 WHERE id = 'proc_1'`)
			}
			p := r.newWorker(t).heartbeat
			r.silentOf(t, p)
			// All this may have taken seconds.
			r.Exec(t, `UPDATE processes SET beat_at = now() - $1::interval WHERE id = 'proc_1'`, tt.silent)
			got, err := cluster.TakeOver(t.Context(), r.pool, []string{"proc_1"}, cluster.SilenceLimit, cluster.FrozenLimit)
			if err != nil {
				t.Fatal(err)
			}
			s := r.stored(t, d.ID)
			if dead := len(got.Processes) == 1; dead != tt.wantDead || (s.Lease == "") != tt.wantDead {
				t.Errorf("got %+v and %+v, want it dead: %v", got, s, tt.wantDead)
			}
		})
	}
}

func TestRacersTakeOverOnce(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	var heartbeats []*cluster.Heartbeat
	for range 8 {
		p := r.newWorker(t).heartbeat
		r.silentOf(t, p)
		heartbeats = append(heartbeats, p)
	}
	for range 10 {
		r.closeSession(t, r.silentProcess(t, "proc_dead", 5*time.Second))
		var held []Delivery
		for range 5 {
			held = append(held, r.claimed(t, "proc_dead"))
		}
		won := race(len(heartbeats), func(i int) int {
			got, err := cluster.TakeOver(context.Background(), r.pool, []string{"proc_dead"}, cluster.SilenceLimit, cluster.FrozenLimit)
			if err != nil {
				t.Error(err)
			}
			return len(got.Processes)*100 + got.Leases
		})
		slices.Sort(won)
		if got := won[len(won)-1]; got != 105 || won[len(won)-2] != 0 {
			t.Errorf("got %v, want one that took 5 leases over, and nothing for the others", won)
		}
		for _, d := range held {
			if s := r.stored(t, d.ID); s.DeliveryCount != 0 || s.Lease != "" || s.LastError != message.ServerDied {
				t.Errorf("got %+v, want it taken over once", s)
			}
		}
	}
}

func TestTakeoverIsAtomic(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.closeSession(t, r.silentProcess(t, "proc_dead", 5*time.Second))
	d := r.claimed(t, "proc_dead")
	r.send(t)
	r.issue(t)
	r.Exec(t, `UPDATE river_job SET state = 'running', attempted_by = '{proc_dead}'`)
	r.Exec(t, `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON messages FOR EACH ROW EXECUTE FUNCTION refuse()`)
	p := r.newWorker(t).heartbeat
	r.silentOf(t, p)
	if got, err := cluster.TakeOver(t.Context(), r.pool, []string{"proc_dead"}, cluster.SilenceLimit, cluster.FrozenLimit); err == nil {
		t.Fatalf("got %+v, want an error", got)
	}
	if s := r.stored(t, d.ID); s.Lease != d.Lease {
		t.Errorf("got %+v, want the lease %s", s, d.Lease)
	}
	left := r.Count(t, `
		SELECT (SELECT count(*) FROM river_job) + (SELECT count(*) FROM processes WHERE id = 'proc_dead')`)
	if left != 2 {
		t.Errorf("got %d rows of the dead process, want the ticket and the process", left)
	}
}

// TestHeartbeatSurvivesTheLossOfItsSession: a live process that loses its connection reconnects before others take over
// its leases.
func TestHeartbeatSurvivesTheLossOfItsSession(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	release := make(chan struct{})
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) { <-release })
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	r, other := open(t, dsn), open(t, dsn)
	r.register(t, deployment, a.URL)
	var l testdb.Log
	w := r.worker(t, func(o *WorkerOptions) { o.Grace = 0 })
	id := r.send(t)
	c := a.next(t)
	other.worker(t, func(o *WorkerOptions) { o.Logger = l.Logger() })
	for range 2 {
		beaten := func() bool {
			return r.Count(t, `
				SELECT count(*) FROM processes p JOIN pg_locks l ON l.locktype = 'advisory'
					AND l.classid::bigint << 32 | l.objid::bigint = p.session_key
				WHERE p.ID = $1 AND p.beat_at > now() - interval '2 s'`, w.heartbeat.ID) == 1
		}
		testdb.Eventually(t, "it beats", beaten)
		r.Exec(t, `
			SELECT pg_terminate_backend(pid) FROM pg_locks l JOIN processes p ON l.locktype = 'advisory'
				AND l.classid::bigint << 32 | l.objid::bigint = p.session_key WHERE p.ID = $1`, w.heartbeat.ID)
		testdb.Eventually(t, "it has lost its session", func() bool { return !beaten() })
		testdb.Eventually(t, "it beats again", beaten)
	}
	if got := r.stored(t, id); got.Lease != c.handle() {
		t.Errorf("got %+v, want the lease %s", got, c.handle())
	}
	if l.Contains("took over") {
		t.Error("the other process took over from a live one")
	}
	r.ack(t, c)
}

func TestWorkerThatCannotRegisterDoesNotStart(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	a := newApp(t, nil)
	r.register(t, deployment, a.URL)
	r.send(t)
	r.Exec(t, `ALTER TABLE processes RENAME TO elsewhere`)
	if err := r.newWorker(t).Start(t.Context()); err == nil {
		t.Fatal("it started without being registered")
	}
	r.Exec(t, `ALTER TABLE elsewhere RENAME TO processes`)
	w := r.newWorker(t)
	startWorker(t, w)
	r.Want(t, "rows of a worker that has started", 1, `SELECT count(*) FROM processes WHERE id = $1`, w.heartbeat.ID)
	r.ack(t, a.next(t))
}

// TestLeaseOfAnUnregisteredHolderIsReleased: the holder died and was taken over from before the database executed its
// claim. Leases of live processes and of functions stay.
func TestLeaseOfAnUnregisteredHolderIsReleased(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.silentProcess(t, "proc_alive", 0)
	lost, kept, own := r.claimed(t, "proc_gone"), r.claimed(t, "proc_alive"), r.claimed(t, "")
	r.Exec(t, `DELETE FROM processes WHERE id = 'proc_gone'`)
	if _, err := cluster.NewSweeper(r.pool, r.Queue, slog.New(slog.DiscardHandler)).Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int{lost.ID: 0, kept.ID: 1, own.ID: 1} {
		if got := r.Count(t, `SELECT count(*) FROM messages WHERE id = $1 AND lease <> ''`, id); got != want {
			t.Errorf("message %s has %d leases, want %d", id, got, want)
		}
	}
	r.Want(t, "messages due at once, uncounted", 1, `SELECT count(*) FROM messages WHERE id = $1 AND due_at <= now() AND delivery_count = 0`, lost.ID)
}

// TestUnregisteredProcessClaimsNothing: others took over from a live process while it was disconnected, and would take
// over new leases as well. It claims again after its next heartbeat.
func TestUnregisteredProcessClaimsNothing(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	a := newApp(t, nil)
	r.register(t, deployment, a.URL)
	w := r.worker(t)
	r.ticketsOnly()
	w.loop.deregister() // its pool is alive
	w.loop.beats.Wait()
	id := r.send(t)
	testdb.Eventually(t, "its ticket was used in vain, and another one", func() bool {
		return r.Count(t, `SELECT count(*) FROM river_job WHERE state = 'completed'`) >= 2
	})
	if got := r.stored(t, id); got.Lease != "" || got.DeliveryCount != 0 || got.Ticket != firstTicket || len(a.calls) > 0 {
		t.Errorf("got %+v and %d calls, want the message untouched", got, len(a.calls))
	}
	r.sweep(t)
	if _, err := w.heartbeat.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := a.next(t)
	if c.id() != id || c.count() != "1" {
		t.Errorf("got delivery %s of %s, want 1 of %s", c.count(), c.id(), id)
	}
	r.sweep(t)
	r.ack(t, c)
	w.heartbeat.SignOff(t.Context())
}
