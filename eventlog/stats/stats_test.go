package stats

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mrand "math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const home = entities.DefaultProject

// noQueue discards messages.
type noQueue struct{}

func (noQueue) Enqueue(
	context.Context, pgx.Tx, *pgx.Batch, []message.Message,
) ([]*eventlog.InlineStart, func(error), error) {
	return nil, func(error) {}, nil
}

func (noQueue) EnqueueOptimistic(*pg.Conditional, []message.Message) ([]*eventlog.InlineStart, func(error), bool) {
	return nil, func(error) {}, true
}

// fixture is a log and its statistics on a database of their own. Its clock is moved by hand.
type fixture struct {
	*eventlog.Log
	*Follower
	*Reader
	pool *pgxpool.Pool

	mu  sync.Mutex
	now time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := testdb.Pool(t)
	f := &fixture{pool: pool, Follower: NewFollower(pool), now: time.Now().UTC().Truncate(time.Hour).Add(-time.Hour)}
	clock := func() time.Time {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.now
	}
	f.Reader = NewReader(pool, clock)
	f.Log = eventlog.New(pool, pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler)), noQueue{}, clock)
	return f
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// append appends an event and returns it. It gives a run_created a new run.
func (f *fixture) append(t *testing.T, r eventlog.Request) entities.RunID {
	t.Helper()
	r.SpecVersion = entities.SpecDriven
	if r.Type == entities.EventRunCreated {
		r.RunID = entities.RunID("wrun_" + ulid.MustNew(ulid.Timestamp(f.Reader.now()), rand.Reader).String())
		r.Payload, r.Data.Driver = []byte("{}"), entities.DriverServer
	}
	if _, err := f.Append(t.Context(), home, r); err != nil {
		t.Fatal(err)
	}
	return r.RunID
}

func (f *fixture) start(t *testing.T, workflow string) entities.RunID {
	t.Helper()
	return f.append(t, eventlog.Request{
		Type: entities.EventRunCreated,
		Data: entities.EventData{WorkflowName: workflow, DeploymentID: "shop"},
	})
}

// follow counts all events. They can be counted when the transactions that were open at their commit have ended, and
// these may be of other tests, in other databases.
func (f *fixture) follow(t *testing.T) {
	t.Helper()
	for t.Context().Err() == nil {
		if err := f.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, err := readProgress(t.Context(), f.pool, home, noXID)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Behind {
			return
		}
	}
}

// hour is the window of the last hour before the fixture's clock, and what follows.
func (f *fixture) hour() Query {
	now := f.Reader.now()
	return Query{Project: home, From: now.Add(-time.Hour), To: now.Add(time.Hour)}
}

// stored returns all counts, without their times: the number of events by metric, workflow and label.
func (f *fixture) stored(t *testing.T) map[[3]string]int64 {
	t.Helper()
	rows, err := f.pool.Query(t.Context(), `SELECT metric, workflow, label, sum(count)::bigint FROM stats WHERE width = 1440 GROUP BY 1, 2, 3`)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[[3]string]int64{}
	var metric, workflow, label string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&metric, &workflow, &label, &n}, func() error {
		counts[[3]string{metric, workflow, label}] = n
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return counts
}

func TestRunsAndStepsAreCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	from := f.Reader.now()
	run := f.start(t, "order")
	f.pass(2 * time.Second)
	f.append(t, eventlog.Request{RunID: run, Type: entities.EventRunStarted})
	step := func(event entities.EventType) {
		r := eventlog.Request{RunID: run, Type: event, CorrelationID: "s1"}
		if event == entities.EventStepCreated {
			r.Data.StepName = "charge"
		}
		f.append(t, r)
	}
	step(entities.EventStepCreated)
	step(entities.EventStepStarted)
	step(entities.EventStepRetrying)
	f.pass(time.Second)
	step(entities.EventStepStarted)
	step(entities.EventStepCompleted)
	f.pass(5 * time.Second)
	f.append(t, eventlog.Request{RunID: run, Type: entities.EventRunFailed, Data: entities.EventData{ErrorCode: "declined"}})
	f.pass(time.Minute)
	f.start(t, "refund")
	f.follow(t)

	series, err := f.Runs(t.Context(), f.hour(), time.Minute, Together)
	if err != nil {
		t.Fatal(err)
	}
	if len(series) != 1 || len(series[0].Points) != 2 {
		t.Fatalf("got %+v, want one series of two minutes", series)
	}
	first := series[0].Points[0]
	wantAbout(t, first.Delay.P50, 2*time.Second)
	wantAbout(t, first.Took.P99, 8*time.Second)
	first.Delay, first.Took = nil, nil
	want := []Point{{At: from, Created: 1, Started: 1, Failed: 1}, {At: from.Add(time.Minute), Created: 1}}
	if diff := cmp.Diff(want, []Point{first, series[0].Points[1]}); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	byWorkflow, err := f.Runs(t.Context(), f.hour(), time.Hour, ByWorkflow)
	if err != nil || len(byWorkflow) != 2 || byWorkflow[0].Name != "order" || byWorkflow[1].Name != "refund" {
		t.Errorf("by workflow: got %+v, %v", byWorkflow, err)
	}
	q := f.hour()
	q.Workflow = "order"
	of, err := f.Steps(t.Context(), q)
	if err != nil || len(of) != 1 {
		t.Fatalf("steps: got %+v, %v", of, err)
	}
	wantAbout(t, of[0].Took.P50, time.Second)
	of[0].Took = nil
	if diff := cmp.Diff([]Step{{Workflow: "order", Name: "charge", Completed: 1, Retried: 1}}, of); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	failures, err := f.Failures(t.Context(), f.hour())
	if diff := cmp.Diff([]Failures{{"order", "declined", 1}}, failures); err != nil || diff != "" {
		t.Errorf("failures (-want +got):\n%s%v", diff, err)
	}
}

// wantAbout checks a percentile against the duration that it stands for.
func wantAbout(t *testing.T, got, want time.Duration) {
	t.Helper()
	if ratio := float64(got) / float64(want); ratio < 1/1.19 || ratio > 1.19 {
		t.Errorf("got %s, want %s ± 19 %%", got, want)
	}
}

// TestEachEventIsCountedOnce lets several processes follow while runs are written and followers are interrupted.
func TestEachEventIsCountedOnce(t *testing.T) {
	t.Parallel()
	const writers, each, followers = 4, 12, 3
	f := newFixture(t)
	writing, done := context.WithCancel(t.Context())
	var follow sync.WaitGroup
	for i := range followers {
		g := &Follower{pool: f.pool, batch: 3 + i}
		follow.Go(func() {
			random := mrand.New(mrand.NewPCG(uint64(i), 1))
			for writing.Err() == nil {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(20))*time.Millisecond)
				if err := g.Follow(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	want := f.write(t, writers, each)
	done()
	follow.Wait()
	f.follow(t)
	if diff := cmp.Diff(want, f.stored(t)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// write writes runs, from several writers at a time, and returns how often each event was written.
func (f *fixture) write(t *testing.T, writers, each int) map[[3]string]int64 {
	t.Helper()
	written := map[[3]string]int64{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				workflow := "w" + strconv.Itoa(i%3)
				run := f.start(t, workflow)
				f.append(t, eventlog.Request{RunID: run, Type: entities.EventRunStarted})
				end := []entities.EventType{entities.EventRunCompleted, entities.EventRunCancelled}[(w+i)%2]
				f.append(t, eventlog.Request{RunID: run, Type: end})
				f.pass(time.Second)
				mu.Lock()
				for _, event := range []entities.EventType{entities.EventRunCreated, entities.EventRunStarted, end} {
					written[[3]string{string(event), workflow, "shop"}]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return written
}

// TestRebuildDuringWrites: counts that are made anew while events are written and counted are those of the log.
func TestRebuildDuringWrites(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, 1, 3)
	f.follow(t)
	if _, err := f.pool.Exec(t.Context(), `UPDATE stats SET count = count + 5`); err != nil {
		t.Fatal(err)
	}
	writing, done := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			g := &Follower{pool: f.pool, batch: 5}
			for writing.Err() == nil {
				if err := g.Follow(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	rebuilds := 0
	others.Go(func() {
		g := &Follower{pool: f.pool, batch: 5}
		for ; rebuilds < 3 && t.Context().Err() == nil; rebuilds++ {
			if err := g.Rebuild(t.Context(), []entities.Project{home}, func(time.Time) {}); err != nil {
				t.Error(err)
			}
		}
	})
	f.write(t, 4, 12)
	done()
	others.Wait()
	f.follow(t)
	rows, err := f.pool.Query(t.Context(), `
		SELECT ARRAY[type, workflow_name, 'shop'], count(*) FROM events JOIN runs ON id = run_id GROUP BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[[3]string]int64{}
	var key []string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error {
		want[[3]string(key)] = n
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, f.stored(t)); diff != "" || len(want) < 12 || rebuilds != 3 {
		t.Errorf("counts (-log +counted), after %d rebuilds:\n%s", rebuilds, diff)
	}
}

// TestEventsOfLateTransactionsAreCounted: a transaction that began first and commits last is neither passed over nor
// taken for counted.
func TestEventsOfLateTransactionsAreCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	late, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	f.start(t, "order")
	if err := f.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.stored(t); len(got) != 0 {
		t.Errorf("counted %v behind an open transaction", got)
	}
	if to, err := f.CompleteTo(t.Context(), home); err != nil || !to.Before(f.Reader.now()) {
		t.Errorf("complete to %s, %v; want an earlier time than %s", to, err, f.Reader.now())
	}
	if err := late.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.follow(t)
	if diff := cmp.Diff(map[[3]string]int64{{"run_created", "order", "shop"}: 1}, f.stored(t)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if to, err := f.CompleteTo(t.Context(), home); err != nil || !to.Equal(f.Reader.now()) {
		t.Errorf("complete to %s, %v; want now, %s", to, err, f.Reader.now())
	}
}

// TestOldCountsAreDeleted: minutes are kept for two days and hours for 90. Days stay, also those of events that are counted
// late.
func TestOldCountsAreDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	for _, age := range []int{1, 10, 100} {
		if _, err := f.pool.Exec(t.Context(), `
			INSERT INTO stats (project, width, at, metric, workflow, label, took, count)
			SELECT 'default', width, $1, 'run_created', 'order', 'shop', 0, 1 FROM (VALUES (1), (60), (360), (1440)) AS w (width)`,
			midnight.AddDate(0, 0, -age)); err != nil {
			t.Fatal(err)
		}
	}
	late := f.start(t, "late")
	if _, err := f.pool.Exec(t.Context(), `UPDATE events SET created_at = $1 WHERE run_id = $2`,
		midnight.AddDate(0, 0, -100), late); err != nil {
		t.Fatal(err)
	}
	f.follow(t)
	rows, err := f.pool.Query(t.Context(), `SELECT workflow, width, at FROM stats ORDER BY workflow, width, at DESC`)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Workflow string
		Width    int
		Age      int
	}
	var got []row
	var r row
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&r.Workflow, &r.Width, &at}, func() error {
		r.Age = int(midnight.Sub(at).Hours() / 24)
		got = append(got, r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []row{
		{"late", 1440, 100}, {"order", 1, 1}, {"order", 60, 1}, {"order", 60, 10}, {"order", 360, 1}, {"order", 360, 10},
		{"order", 1440, 1}, {"order", 1440, 10}, {"order", 1440, 100},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestInvalidQueriesAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	now := f.Reader.now()
	for name, tt := range map[string]struct {
		from, to time.Time
		step     time.Duration
		by       Group
	}{
		"backwards":      {now, now, time.Hour, Together},
		"odd step":       {now.Add(-time.Hour), now, 7 * time.Minute, Together},
		"too many steps": {now.Add(-7 * time.Hour), now, time.Minute, Together},
		"too fine":       {now.Add(-72 * time.Hour), now.Add(-71 * time.Hour), time.Minute, Together},
		"unknown group":  {now.Add(-time.Hour), now, time.Minute, "colour"},
	} {
		_, err := f.Runs(t.Context(), Query{Project: home, From: tt.from, To: tt.to}, tt.step, tt.by)
		if !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got %v, want an invalid request", name, err)
		}
	}
}
