package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/schedule"
	"github.com/stepwell-dev/stepwell/starts/startstest"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const project = entities.DefaultProject

var noon = startstest.Noon

type server struct {
	*Scheduler
	startstest.Server
}

// newServer returns a server on the database. At first it is noon there.
func newServer(t testing.TB, dsn string) *server {
	t.Helper()
	return serverOn(t, testdb.Connect(t, dsn))
}

func serverOn(t testing.TB, pool *pgxpool.Pool) *server {
	t.Helper()
	s := startstest.New(t, pool)
	return &server{New(s.Queue, s.Log), s}
}

// registered returns a server on a database of its own, with an app that has the workflow of the schedule.
func registered(t testing.TB) *server {
	t.Helper()
	s := newServer(t, testdb.New(t))
	s.Register(t, "report")
	return s
}

// put creates a schedule that ticks every hour.
func (s *server) put(t testing.TB, edit ...func(*schedule.Schedule)) schedule.Schedule {
	t.Helper()
	sched, created, err := s.Put(t.Context(), project, "hourly", hourly(edit...).Spec)
	if err != nil || !created {
		t.Fatalf("got created %v, error %v", created, err)
	}
	return sched
}

// claim leases the schedule's work.
func (s *server) claim(t testing.TB, id schedule.ID) queue.Delivery {
	t.Helper()
	d, ok := s.Claim(t, message.WorkSchedule, string(id))
	if !ok {
		t.Fatalf("no work of %s", id)
	}
	return d
}

// deliver delivers the schedule's work once.
func (s *server) deliver(t testing.TB, id schedule.ID) {
	t.Helper()
	s.Deliver(t, message.WorkSchedule, string(id), s.handle)
}

// read returns the schedule with the ticks that were decided, in their order.
func (s *server) read(t testing.TB) (schedule.Schedule, []schedule.Tick) {
	t.Helper()
	q := pg.NewPool(s.pool)
	sched, err := schedule.ByName(t.Context(), q, project, "hourly")
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := schedule.ListTicks(t.Context(), q, sched.ID, pg.Page{Limit: pg.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	return sched, list
}

// decisions returns the ticks as text.
func decisions(list []schedule.Tick) string {
	d := decision{ticks: list, start: -1}
	text, _ := strings.CutSuffix(describe(d), "due never")
	return strings.TrimSuffix(text, ", ")
}

// wantTicks checks what was decided, and that each tick that started has its run and no other run exists.
func (s *server) wantTicks(t testing.TB, want string) []schedule.Tick {
	t.Helper()
	_, list := s.read(t)
	if got := decisions(list); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	started := 0
	for _, tick := range list {
		if tick.Decision != schedule.Started {
			continue
		}
		started++
		run, err := store.RunByID(t.Context(), pg.NewPool(s.pool), project, tick.RunID)
		if err != nil {
			t.Errorf("the run of %s: %v", clock(tick.At), err)
			continue
		}
		if run.Attributes["$schedule"] != "hourly" || run.Attributes["$scheduledAt"] != tick.At.UTC().Format(time.RFC3339) {
			t.Errorf("the run of %s has the attributes %v", clock(tick.At), run.Attributes)
		}
	}
	if n := s.Count(t, `SELECT count(*) FROM runs`); n != started {
		t.Errorf("there are %d runs, want %d", n, started)
	}
	return list
}

// end cancels a run.
func (s *server) end(t testing.TB, id entities.RunID) {
	t.Helper()
	s.End(t, id, entities.EventRunCancelled, "")
}

func TestTickStartsARun(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t, func(s *schedule.Schedule) {
		s.Input, s.Attributes, s.Timeout = []byte(`{"a": 1}`), map[string]string{"k": "v"}, time.Hour
	})
	s.deliver(t, sched.ID)
	s.wantTicks(t, "")
	s.At(time.Hour)
	s.deliver(t, sched.ID)
	list := s.wantTicks(t, "tick 13:00 started")
	run, err := store.RunByID(t.Context(), pg.NewPool(s.pool), project, list[0].RunID)
	if err != nil {
		t.Fatal(err)
	}
	if run.Attributes["k"] != "v" || run.DeploymentID != "dpl" || run.Deadline == nil || !run.Deadline.Equal(noon.Add(2*time.Hour)) {
		t.Errorf("got run %+v", run)
	}
	created, err := s.log.Event(t.Context(), project, run.ID, 1)
	if err != nil || string(created.Payload) != `{"a": 1}` {
		t.Errorf("the run began with %q, %v", created.Payload, err)
	}
	if n := s.Count(t, `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'run'`, run.ID); n != 1 {
		t.Errorf("the run has %d invocations", n)
	}
	var due time.Time
	if err := s.pool.QueryRow(t.Context(), `SELECT due_at FROM messages WHERE work = 'schedule'`).Scan(&due); err != nil {
		t.Fatal(err)
	}
	if sched, _ := s.read(t); !due.Equal(noon.Add(2*time.Hour)) || !sched.NextAt.Equal(due) {
		t.Errorf("the work is due at %s, the next tick is at %s", due, sched.NextAt)
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for o, want := range map[schedule.Overlap][2]string{
		// After the second tick, and when the first run has ended.
		schedule.OverlapSkip:   {"tick 13:00 started, tick 14:00 skipped", "tick 13:00 started, tick 14:00 skipped"},
		schedule.OverlapWait:   {"tick 13:00 started, tick 14:00 waiting", "tick 13:00 started, tick 14:00 started"},
		schedule.OverlapAllow:  {"tick 13:00 started, tick 14:00 started", "tick 13:00 started, tick 14:00 started"},
		schedule.OverlapCancel: {"tick 13:00 started, tick 14:00 started", "tick 13:00 started, tick 14:00 started"},
	} {
		t.Run(string(o), func(t *testing.T) {
			t.Parallel()
			s := newServer(t, testdb.New(t))
			s.Register(t, "report")
			sched := s.put(t, overlap(o))
			s.At(time.Hour)
			s.deliver(t, sched.ID)
			s.At(2 * time.Hour)
			s.deliver(t, sched.ID)
			list := s.wantTicks(t, want[0])
			cancelled := s.Count(t, `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'cancel'`, list[0].RunID)
			if (cancelled == 1) != (o == schedule.OverlapCancel) {
				t.Errorf("there are %d orders to cancel the first run", cancelled)
			}
			s.end(t, list[0].RunID)
			s.At(2*time.Hour + 10*time.Minute)
			s.deliver(t, sched.ID)
			s.wantTicks(t, want[1])
		})
	}
}

func TestCatchUpAfterAnOutage(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t, func(s *schedule.Schedule) {
		s.CatchUp, s.CatchUpWindow, s.Overlap = schedule.CatchUpAll, 2*time.Hour, schedule.OverlapAllow
	})
	s.At(5*time.Hour + 30*time.Minute)
	for range 4 {
		s.deliver(t, sched.ID)
	}
	s.wantTicks(t, "tick 13:00 missed to 15:00 (3), tick 16:00 started, tick 17:00 started")
}

// TestPause resumes a schedule late, triggers it meanwhile, and requires that the ticks of the pause are missed.
func TestPause(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t)
	for range 2 { // the second changes nothing
		if got, err := s.Pause(t.Context(), project, "hourly", "the database moves"); err != nil || got.NextAt != nil {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	s.At(time.Hour)
	s.deliver(t, sched.ID)
	if n := s.Count(t, `SELECT count(*) FROM messages WHERE work = 'schedule'`); n != 0 {
		t.Errorf("a paused schedule has %d pieces of work", n)
	}
	s.wantTicks(t, "")
	if _, err := s.Trigger(t.Context(), project, "hourly"); err != nil {
		t.Fatal(err)
	}
	s.At(3*time.Hour + time.Minute)
	if got, err := s.Resume(t.Context(), project, "hourly"); err != nil || clock(*got.NextAt) != "16:00" || got.PauseNote != "" {
		t.Fatalf("got %+v, %v", got, err)
	}
	s.deliver(t, sched.ID)
	s.wantTicks(t, "trigger 13:00 started, tick 13:00 missed to 15:00 (3)")
	if n := s.Count(t, `SELECT count(*) FROM audit WHERE action LIKE 'schedule.%'`); n != 4 { // put, pause, trigger, resume
		t.Errorf("the audit has %d entries", n)
	}
}

func TestTriggerObeysOverlap(t *testing.T) {
	t.Parallel()
	s := registered(t)
	s.put(t)
	first, err := s.Trigger(t.Context(), project, "hourly")
	if err != nil {
		t.Fatal(err)
	}
	s.At(time.Minute)
	if _, err := s.Trigger(t.Context(), project, "hourly"); !errors.Is(err, entities.ErrConflict) || !strings.Contains(err.Error(), string(first.RunID)) {
		t.Errorf("got %v, want a conflict that names the run", err)
	}
	s.wantTicks(t, "trigger 12:00 started")
	s.end(t, first.RunID)
	if _, err := s.Trigger(t.Context(), project, "hourly"); err != nil {
		t.Error(err)
	}
	s.wantTicks(t, "trigger 12:00 started, trigger 12:01 started")
}

func TestBackfillStartsOneRunAfterTheOther(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t)
	s.At(time.Hour)
	s.deliver(t, sched.ID)
	s.At(90 * time.Minute)
	from := noon.Add(-time.Hour)
	if _, err := s.Backfill(t.Context(), project, "hourly", from, noon.Add(time.Hour), false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backfill(t.Context(), project, "hourly", from, noon, false); !errors.Is(err, entities.ErrConflict) {
		t.Errorf("a second backfill: got %v, want a conflict", err)
	}
	s.deliver(t, sched.ID)
	s.deliver(t, sched.ID)
	list := s.wantTicks(t, "tick 13:00 started, backfill 11:00 started")
	s.end(t, list[1].RunID)
	s.deliver(t, sched.ID)
	list = s.wantTicks(t, "tick 13:00 started, backfill 11:00 started, backfill 12:00 started")
	s.end(t, list[2].RunID)
	s.deliver(t, sched.ID) // 13:00 has started before
	if sched, _ := s.read(t); sched.BackfillAt != nil {
		t.Errorf("the backfill goes on after %s", sched.BackfillAt)
	}
	s.wantTicks(t, "tick 13:00 started, backfill 11:00 started, backfill 12:00 started")
	for what, span := range map[string][2]time.Duration{
		"the future": {0, 24 * time.Hour}, "no tick": {time.Minute, 2 * time.Minute}, "too many": {-2000 * time.Hour, 0},
	} {
		_, err := s.Backfill(t.Context(), project, "hourly", noon.Add(span[0]), noon.Add(span[1]), false)
		if !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got %v, want it to be invalid", what, err)
		}
	}
}

// TestRefusedTicksSayWhy has a deployment that is gone, and a project whose quota is used up.
func TestRefusedTicksSayWhy(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t)
	if err := s.queue.RemoveDeployment(t.Context(), project, "dpl"); err != nil {
		t.Fatal(err)
	}
	s.At(time.Hour)
	s.deliver(t, sched.ID)
	s.Register(t, "report")
	s.Exec(t, `INSERT INTO projects (name, daily_starts) VALUES ($1, 0) ON CONFLICT (name) DO UPDATE SET daily_starts = 0`, project)
	s.At(2 * time.Hour)
	s.deliver(t, sched.ID)
	list := s.wantTicks(t, "tick 13:00 refused, tick 14:00 refused")
	if !strings.Contains(list[0].Reason, `"report"`) || !strings.Contains(list[1].Reason, "dailyStarts") {
		t.Errorf("got the reasons %q and %q", list[0].Reason, list[1].Reason)
	}
	if _, err := s.Trigger(t.Context(), project, "hourly"); !errors.Is(err, admin.ErrStartQuota) {
		t.Errorf("a trigger: got %v, want the quota's error", err)
	}
}

func TestPut(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t))
	spec := hourly().Spec
	if _, _, err := s.Put(t.Context(), project, "hourly", spec); !errors.Is(err, message.ErrDeploymentNotFound) {
		t.Errorf("without an app: got %v", err)
	}
	s.Register(t, "report")
	sched := s.put(t)
	again, created, err := s.Put(t.Context(), project, "hourly", spec)
	if err != nil || created || again.Revision != sched.Revision {
		t.Errorf("saying the same again: got %+v, %v, %v", again, created, err)
	}
	// A schedule that changes its times does not look back.
	s.At(90 * time.Minute)
	spec.Every, spec.Cron = 0, "45 * * * *"
	changed, created, err := s.Put(t.Context(), project, "hourly", spec)
	if err != nil || created || changed.ID != sched.ID || clock(*changed.NextAt) != "13:45" {
		t.Errorf("got %+v, %v, %v", changed, created, err)
	}
	s.deliver(t, sched.ID)
	s.wantTicks(t, "")
	// One that changes something else does.
	s.At(110 * time.Minute)
	spec.Input = []byte(`1`)
	if _, _, err := s.Put(t.Context(), project, "hourly", spec); err != nil {
		t.Error(err)
	}
	s.deliver(t, sched.ID)
	s.wantTicks(t, "tick 13:45 started")
}

// TestDelete also creates the schedule again, whose ticks are new ones.
func TestDelete(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t)
	s.At(time.Hour)
	s.deliver(t, sched.ID)
	if err := s.Delete(t.Context(), project, "hourly"); err != nil {
		t.Fatal(err)
	}
	s.deliver(t, sched.ID)
	if n := s.Count(t, `SELECT (SELECT count(*) FROM messages WHERE work = 'schedule') + (SELECT count(*) FROM schedule_ticks)`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if err := s.Delete(t.Context(), project, "hourly"); !errors.Is(err, schedule.ErrNotFound) {
		t.Errorf("deleting it again: got %v", err)
	}
	s.At(0)
	if again := s.put(t); again.ID == sched.ID || again.Ticks != 0 {
		t.Errorf("got %+v", again)
	}
}

func TestProjectsAreIsolated(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t)
	const other = entities.Project("other")
	for what, do := range map[string]func(ctx context.Context) error{
		"pause":        func(ctx context.Context) error { _, err := s.Pause(ctx, other, "hourly", ""); return err },
		"resume":       func(ctx context.Context) error { _, err := s.Resume(ctx, other, "hourly"); return err },
		"trigger":      func(ctx context.Context) error { _, err := s.Trigger(ctx, other, "hourly"); return err },
		"delete":       func(ctx context.Context) error { return s.Delete(ctx, other, "hourly") },
		"end backfill": func(ctx context.Context) error { _, err := s.EndBackfill(ctx, other, "hourly"); return err },
		"backfill": func(ctx context.Context) error {
			_, err := s.Backfill(ctx, other, "hourly", noon.Add(-time.Hour), noon, false)
			return err
		},
		"read by ID": func(ctx context.Context) error {
			_, err := schedule.ByID(ctx, pg.NewPool(s.pool), other, sched.ID)
			return err
		},
	} {
		if err := do(t.Context()); !errors.Is(err, schedule.ErrNotFound) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	list, _, err := schedule.List(t.Context(), pg.NewPool(s.pool), other, pg.Page{Limit: 10})
	if err != nil || len(list) != 0 {
		t.Errorf("the other project has %v, %v", list, err)
	}
	if _, _, err := s.Put(t.Context(), other, "hourly", hourly().Spec); !errors.Is(err, message.ErrDeploymentNotFound) {
		t.Errorf("the other project's apps: got %v", err)
	}
}

// TestOldDecisionsAreDeleted keeps the last thousand, and ticks that wait.
func TestOldDecisionsAreDeleted(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t)
	s.Exec(t, `
		INSERT INTO schedule_ticks (project, schedule_id, kind, at, decision, run_id, reason, count, last_at, decided_at, seq)
		SELECT $1, $2, 'tick', at, 'missed', '', '', 1, at, at, n
		FROM (SELECT n, $3::timestamptz - (2000 - n) * interval '1 hour' AS at FROM generate_series(1, 1500) n) AS old`,
		project, sched.ID, noon)
	s.Exec(t, `UPDATE schedule_ticks SET decision = 'waiting' WHERE seq = 7`) // it is not over
	s.Exec(t, `UPDATE schedules SET ticks = 1500`)
	s.At(time.Hour)
	s.deliver(t, sched.ID)
	if n := s.Count(t, `SELECT count(*) FROM schedule_ticks`); n != 1001 {
		t.Errorf("%d decisions are kept", n)
	}
}
