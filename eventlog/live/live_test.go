package live

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	home        = entities.DefaultProject
	testTimeout = 2 * time.Minute
)

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

// counter counts the statements of a pool.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "events") || strings.Contains(d.SQL, "runs") {
		c.n.Add(1)
	}
	return ctx
}

func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// fixture is a log that is written through one pool, and followers that read through another.
type fixture struct {
	*eventlog.Log
	*Followers[entities.RunStatus]
	pool       *pgxpool.Pool
	statements counter
	// polls counts the slow polls, and blocked is what they find.
	polls   atomic.Int64
	blocked atomic.Pointer[map[entities.RunID]int]
	// versions are those of the topics, and reads counts how often they were read.
	versions atomic.Pointer[Versions]
	reads    atomic.Int64
}

func newFixture(t *testing.T, slow time.Duration) *fixture {
	t.Helper()
	pool := testdb.Pool(t)
	f := &fixture{pool: pool}
	config := pool.Config().Copy()
	config.ConnConfig.Tracer = &f.statements
	reading, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reading.Close)
	hub := pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler))
	f.Log = eventlog.New(pool, hub, noQueue{}, time.Now)
	f.blocked.Store(&map[entities.RunID]int{})
	f.versions.Store(&Versions{"queue": "1", "settings": "1"})
	f.Followers = New(Options[entities.RunStatus]{
		Log: read.New(reading, hub, time.Now), PollInterval: slow, TopicsInterval: slow,
		Rows: func(ctx context.Context, p entities.Project, ids []entities.RunID) ([]Row[entities.RunStatus], error) {
			runs, err := store.RunsByID(ctx, pg.NewPool(reading), p, ids)
			var rows []Row[entities.RunStatus]
			for _, r := range runs {
				rows = append(rows, Row[entities.RunStatus]{r, r.Status})
			}
			return rows, err
		},
		BlockedRuns: func(context.Context, entities.Project) (map[entities.RunID]int, error) {
			f.polls.Add(1)
			return *f.blocked.Load(), nil
		},
		Versions: func(context.Context, entities.Project) (Versions, error) {
			f.reads.Add(1)
			return *f.versions.Load(), nil
		},
	})
	return f
}

// settle waits until no transaction is open that began before the last event: those of other tests count too, since
// transactions are numbered for all databases. A viewer that joins then is not sent the events.
func (f *fixture) settle(t *testing.T) {
	t.Helper()
	for late := true; late; {
		c, err := f.options.Log.Changes(t.Context(), home, read.FeedCursor{})
		if err != nil {
			t.Fatal(err)
		}
		late = c.Blocked || slices.ContainsFunc(c.List, func(e read.Change) bool { return e.Late })
	}
}

// append appends an event and returns its run. It gives a run_created a new run.
func (f *fixture) append(t *testing.T, id entities.RunID, typ entities.EventType, attributes ...string) entities.RunID {
	t.Helper()
	r := eventlog.Request{RunID: id, Type: typ, SpecVersion: entities.SpecDriven}
	if id == "" {
		r.RunID = entities.RunID("wrun_" + ulid.MustNew(ulid.Timestamp(time.Now()), rand.Reader).String())
		r.Payload = []byte("{}")
		r.Data = entities.EventData{Driver: entities.DriverServer, WorkflowName: "order", DeploymentID: "shop"}
	}
	for i := 0; i < len(attributes); i += 2 {
		r.Data.Changes = append(r.Data.Changes, entities.AttributeChange{Key: attributes[i], Value: &attributes[i+1]})
	}
	if _, err := f.Append(t.Context(), home, r); err != nil {
		t.Fatal(err)
	}
	return r.RunID
}

func (f *fixture) start(t *testing.T) entities.RunID {
	t.Helper()
	return f.append(t, "", entities.EventRunCreated)
}

func (f *fixture) join(t *testing.T, w Wants) *Viewer[entities.RunStatus] {
	t.Helper()
	v, err := f.Join(t.Context(), home, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

// next returns what a viewer is sent next.
func next(t *testing.T, v *Viewer[entities.RunStatus]) Update[entities.RunStatus] {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	n, ok, err := v.Next(t.Context(), deadline)
	if err != nil || !ok {
		t.Fatalf("got %v, error %v", ok, err)
	}
	return n
}

// until returns the state of a run that a viewer of all runs has been sent at last, at a position or later.
func until(t *testing.T, v *Viewer[entities.RunStatus], id entities.RunID, seq int64) entities.Run {
	t.Helper()
	for {
		for _, row := range next(t, v).Runs {
			if row.Run.ID == id && row.Run.LastSeq >= seq {
				return row.Run
			}
		}
	}
}

var all = &store.RunFilter{}

// TestViewersShareReads: thirty viewers cost as many statements as one.
func TestViewersShareReads(t *testing.T) {
	t.Parallel()
	for _, viewers := range []int{1, 30} {
		f := newFixture(t, time.Hour)
		var list []*Viewer[entities.RunStatus]
		for range viewers {
			list = append(list, f.join(t, Wants{Runs: all}))
		}
		const rounds = 4
		var before int64
		for round := range rounds + 1 { // the first one waits for the follower's first read
			if round == 1 {
				before = f.statements.n.Load()
			}
			id := f.start(t)
			for _, v := range list {
				until(t, v, id, 1)
			}
		}
		// A read, and the rows. A hint may come once more than needed.
		if got := f.statements.n.Load() - before; got > 3*rounds || got < 2*rounds {
			t.Errorf("%d viewers: %d statements for %d changes", viewers, got, rounds)
		}
	}
}

// wantPolls waits until there were n slow polls.
func (f *fixture) wantPolls(t *testing.T, n int64) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); f.polls.Load() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d polls", f.polls.Load())
		}
	}
}

// TestIdleViewersCostLittle: without hints, a follower reads once in a poll, however many viewers it has.
func TestIdleViewersCostLittle(t *testing.T) {
	t.Parallel()
	f := newFixture(t, minPollInterval+50*time.Millisecond)
	for range 30 {
		f.join(t, Wants{Runs: all})
	}
	f.wantPolls(t, 2)
	before := f.statements.n.Load()
	f.wantPolls(t, 6)
	if got := f.statements.n.Load() - before; got > 5 || got < 3 {
		t.Errorf("%d statements in 4 polls", got)
	}
	const inPoll = 2 // what has changed, and what is blocked
	if perSecond := inPoll / pollInterval.Seconds(); perSecond > 0.1 {
		t.Errorf("%f statements a second", perSecond)
	}
}

// TestSlowViewerLosesNoLastState: what a viewer does not take is replaced by newer states, and by a reset if it is
// much.
func TestSlowViewerLosesNoLastState(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	slow, fast := f.join(t, Wants{Runs: all}), f.join(t, Wants{Runs: all})
	first, second := f.start(t), f.start(t)
	for range 5 {
		f.append(t, first, entities.EventAttrSet, "n", "1")
		until(t, fast, first, 0)
	}
	f.append(t, second, entities.EventRunStarted)
	until(t, fast, second, 2)
	n := next(t, slow)
	got := map[entities.RunID]int64{}
	for _, row := range n.Runs {
		got[row.Run.ID] = row.Run.LastSeq
	}
	if diff := cmp.Diff(map[entities.RunID]int64{first: 6, second: 2}, got); diff != "" || len(n.Runs) != 2 || n.Reset {
		t.Errorf("%d states, reset %v (-want +got):\n%s", len(n.Runs), n.Reset, diff)
	}
	for range 2 {
		for range maxKept / 2 {
			f.start(t)
		}
		until(t, fast, f.start(t), 1)
	}
	if n := next(t, slow); !n.Reset || len(n.Runs) > 0 {
		t.Errorf("got reset %v and %d states", n.Reset, len(n.Runs))
	}
	last := f.start(t)
	if n := next(t, slow); n.Reset || len(n.Runs) != 1 || n.Runs[0].Run.ID != last {
		t.Errorf("after the reset: got %+v", n)
	}
}

// TestResume: a viewer that continues at its cursor is sent what happened since, or that it must read anew.
func TestResume(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	v := f.join(t, Wants{Runs: all})
	if v.Resumed() {
		t.Error("a new viewer has resumed")
	}
	f.start(t)
	cursor := next(t, v).Place
	v.Close()
	missed := f.start(t)
	again := f.join(t, Wants{Runs: all, From: &cursor})
	if !again.Resumed() {
		t.Error("it did not resume")
	}
	if again.Begin().String() != cursor.String() {
		t.Error("before it is sent what it missed, it is asked to continue after that")
	}
	until(t, again, missed, 1)
	const tooMany = 1000
	if err := pg.InTx(t.Context(), f.pool, func(tx pgx.Tx) error { return add(t.Context(), tx, missed, tooMany) }); err != nil {
		t.Fatal(err)
	}
	if late := f.join(t, Wants{Runs: all, From: &cursor}); late.Resumed() {
		t.Error("it resumed after too many events")
	}
	future, err := ParsePlace("9000000000000000000::0")
	if err != nil {
		t.Fatal(err)
	}
	if other := f.join(t, Wants{Runs: all, From: &future}); other.Resumed() {
		t.Error("it resumed at a cursor of another database")
	}
}

// add adds attr_set events to a run, in SQL, so that a transaction can be left open.
func add(ctx context.Context, tx pgx.Tx, id entities.RunID, n int) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO events (project, run_id, seq, type, spec_version, created_at, data)
		SELECT project, run_id, seq + n, 'attr_set', spec_version, created_at, '{"changes": []}'
		FROM events, generate_series(1, $2::int) n WHERE run_id = $1 AND seq = 1`, id, n)
	if err == nil {
		_, err = tx.Exec(ctx, `UPDATE runs SET last_seq = last_seq + $2 WHERE id = $1`, id, n)
	}
	return err
}

// TestLateCommits: an open transaction holds up nobody, and what it commits late is sent.
func TestLateCommits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	late := f.start(t)
	f.settle(t)
	v := f.join(t, Wants{Runs: all})
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if err := add(t.Context(), tx, late, 1); err != nil {
		t.Fatal(err)
	}
	until(t, v, f.start(t), 1)
	until(t, v, f.start(t), 1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Announce(home, late, false)
	if got := until(t, v, late, 2); got.LastSeq != 2 {
		t.Errorf("got %d events", got.LastSeq)
	}
}

// TestWatchRun: a viewer of a run is sent its new events and its state, and nothing of other runs.
func TestWatchRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	id := f.start(t)
	f.append(t, id, entities.EventRunStarted)
	v := f.join(t, Wants{Run: id, After: 1})
	if n := next(t, v); n.Log == nil || n.Log.From > 2 || n.Log.To != 2 || n.Run.Shown != entities.RunRunning {
		t.Errorf("at first: got %+v", n)
	}
	f.start(t)
	f.append(t, id, entities.EventAttrSet, "n", "1")
	f.append(t, id, entities.EventAttrSet, "n", "2")
	f.append(t, id, entities.EventRunCompleted)
	for to := int64(2); to < 5; {
		n := next(t, v)
		if n.Log == nil || n.Log.From > to+1 || int64(len(n.Log.Events)) != n.Log.To-n.Log.From+1 || len(n.Runs) > 0 {
			t.Fatalf("got %+v", n)
		}
		for i, e := range n.Log.Events {
			if e.Seq != n.Log.From+int64(i) || e.RunID != id {
				t.Errorf("event %d of %s at %d of %+v", e.Seq, e.RunID, i, n.Log)
			}
		}
		if to = n.Log.To; n.Run.Run.LastSeq < to {
			t.Errorf("the state at %d is older than the log up to %d", n.Run.Run.LastSeq, to)
		}
	}
	if _, err := f.Join(t.Context(), "other", Wants{Run: id}); !errors.Is(err, entities.ErrRunNotFound) {
		t.Errorf("in another project: got error %v", err)
	}
}

// TestBlockedRunsAreSent: slow polls find what no event says.
func TestBlockedRunsAreSent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, minPollInterval)
	id := f.start(t)
	v := f.join(t, Wants{Runs: all})
	f.wantPolls(t, 1)
	for _, blocked := range []map[entities.RunID]int{{id: 1}, {id: 2}, {}} {
		f.blocked.Store(&blocked)
		until(t, v, id, 1)
	}
}

// TestLimits: an owner and the process have limits, and those who leave make room.
func TestLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	f.options.Viewers = viewersPerOwner + 1
	var list []*Viewer[entities.RunStatus]
	for range viewersPerOwner {
		list = append(list, f.join(t, Wants{Owner: "one", Topics: true}))
	}
	full := func(owner string) {
		t.Helper()
		if _, err := f.Join(t.Context(), home, Wants{Owner: owner, Topics: true}); !errors.Is(err, ErrTooMany) {
			t.Errorf("got error %v", err)
		}
	}
	full("one")
	f.join(t, Wants{Owner: "two", Topics: true})
	full("three")
	list[0].Close()
	list[0].Close()
	f.join(t, Wants{Owner: "one", Topics: true})
	full("three")
}

// TestFollowingIsReading: what viewers keep equals what a list shows, whatever happens.
func TestFollowingIsReading(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	filters := []*store.RunFilter{
		all, {Status: entities.RunRunning}, {WorkflowName: "order", Attributes: map[string]string{"n": "1"}}, {WorkflowName: "none"},
		{Open: true},
	}
	kept := make([]map[entities.RunID]int64, len(filters))
	var viewers []*Viewer[entities.RunStatus]
	for i, filter := range filters {
		viewers = append(viewers, f.join(t, Wants{Runs: filter}))
		kept[i] = map[entities.RunID]int64{}
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 12 {
				id := f.start(t)
				f.append(t, id, entities.EventAttrSet, "n", "1")
				f.append(t, id, entities.EventRunStarted)
				if mrand.IntN(2) == 0 {
					f.append(t, id, entities.EventAttrSet, "n", "2")
				}
				if mrand.IntN(2) == 0 {
					f.append(t, id, entities.EventRunCompleted)
				}
			}
		})
	}
	wg.Wait()
	for i, filter := range filters {
		runs, _, err := store.ListRuns(t.Context(), pg.NewPool(f.pool), home, *filter, pg.Page{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		want := map[entities.RunID]int64{}
		for _, r := range runs {
			want[r.ID] = r.LastSeq
		}
		for deadline := time.Now().Add(testTimeout); !cmp.Equal(want, kept[i]); {
			waiting, cancel := context.WithDeadline(t.Context(), deadline)
			n, ok, err := viewers[i].Next(t.Context(), waiting)
			cancel()
			if err != nil || !ok {
				t.Fatalf("filter %d: error %v (-want +got):\n%s", i, err, cmp.Diff(want, kept[i]))
			}
			for _, row := range n.Runs {
				kept[i][row.Run.ID] = row.Run.LastSeq
			}
			for _, g := range n.Gone {
				delete(kept[i], g.ID)
			}
		}
	}
}
