package eventlog

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// epochs is a database whose servers begin epochs of the feed.
type epochs struct {
	*fixture

	dsn string
}

func newEpochs(t *testing.T) *epochs {
	t.Helper()
	e := &epochs{dsn: testdb.New(t)}
	e.serve(t)
	e.exec(t, `INSERT INTO projects (name) VALUES ($1)`, home)
	return e
}

// serve starts a new server on the database.
func (e *epochs) serve(t *testing.T) {
	t.Helper()
	pool := testdb.Connect(t, e.dsn, pg.InstallEpochs)
	c := &clock{at: day}
	hub := pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler))
	e.fixture = &fixture{Log: New(pool, hub, noQueue{}, c.now), clock: c}
}

// restart makes the next server believe that Postgres was started.
func (e *epochs) restart(t *testing.T) {
	t.Helper()
	e.exec(t, `UPDATE feed_epochs SET started_at = started_at - interval '1 day'`)
	e.serve(t)
}

// move makes the next server believe that the database was restored in a cluster with far lower transaction numbers.
// The events must have been written after [epochs.raise].
func (e *epochs) move(t *testing.T) {
	t.Helper()
	e.exec(t, `UPDATE feed_epochs SET base = 0, cluster = '4711:1', started_at = started_at - interval '1 day'`)
	e.serve(t)
}

// raise makes the transaction numbers of the cluster look high.
func (e *epochs) raise(t *testing.T) {
	t.Helper()
	e.exec(t, `UPDATE feed_epochs SET base = 1000000000`)
}

// place returns the cursor of the feed's end.
func (e *epochs) place(t *testing.T) string {
	t.Helper()
	end, err := e.EndOfChanges(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	return end.String()
}

// after returns the events after a cursor, which both lists and followers must read.
func (e *epochs) after(t *testing.T, cursor string) []string {
	t.Helper()
	e.waitForOpenTransactions(t)
	listed := e.feed(t, read.EventQuery{}, pg.Page{Limit: 3, Cursor: cursor})
	from, err := read.ParseFeedCursor(cursor)
	if err != nil {
		t.Fatal(err)
	}
	follower, err := e.FollowProject(t.Context(), home, read.EventQuery{}, &from, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	followed, err := follower.Next(t.Context(), ended())
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(listed, names(followed)); diff != "" {
		t.Errorf("after %s (-list +follower):\n%s", cursor, diff)
	}
	return listed
}

// wantLost checks that a cursor is refused by all that read the feed, and returns the one to continue with.
func (e *epochs) wantLost(t *testing.T, cursor string) (kept string) {
	t.Helper()
	from, err := read.ParseFeedCursor(cursor)
	if err != nil {
		t.Fatal(err)
	}
	_, followed := e.FollowProject(t.Context(), home, read.EventQuery{}, &from, read.WithPayloads)
	_, changed := e.Changes(t.Context(), home, from)
	page := pg.Page{Limit: 3, Cursor: cursor}
	_, listed := e.ProjectEvents(t.Context(), home, read.EventQuery{}, page, read.WithPayloads)
	for what, err := range map[string]error{"follow": followed, "changes": changed, "list": listed} {
		lost, ok := errors.AsType[*read.CursorLostError](err)
		if !ok {
			t.Errorf("%s after %s: got %v, want a CursorLostError", what, cursor, err)
			continue
		}
		kept = lost.Kept
	}
	return kept
}

// TestFeedGoesOnInAnotherCluster: after a dump is restored where transactions have far lower numbers, the feed lists
// all old events before all new ones, and who reads it continues where he was.
func TestFeedGoesOnInAnotherCluster(t *testing.T) {
	t.Parallel()
	e := newEpochs(t)
	e.raise(t)
	ids, _ := e.interleavedRuns(t)
	e.waitForOpenTransactions(t)
	page, err := e.ProjectEvents(t.Context(), home, read.EventQuery{}, pg.Page{Limit: 5}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	all := e.feed(t, read.EventQuery{}, pg.Page{Limit: 100})
	e.move(t)
	e.must(t, onRun(ids[0], "run_completed"))
	want := append(all, string(ids[0])+"/9 run_completed")
	if diff := gocmp.Diff(want, e.after(t, "0::0")); diff != "" {
		t.Errorf("from the start (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(want[5:], e.after(t, page.Cursor)); diff != "" {
		t.Errorf("from the fifth event (-want +got):\n%s", diff)
	}
	e.raise(t) // and once more
	e.move(t)
	if got := e.after(t, page.Cursor); len(got) != len(want)-5 {
		t.Errorf("after a second move: %q", got)
	}
}

// TestCursorsOutliveARestart of Postgres, wherever they are, and those of servers that knew no epochs do.
func TestCursorsOutliveARestart(t *testing.T) {
	t.Parallel()
	e := newEpochs(t)
	ids, _ := e.interleavedRuns(t)
	e.waitForOpenTransactions(t)
	end := e.place(t)
	_, old, _ := strings.Cut(end, ".")
	e.exec(t, `UPDATE feed_epochs SET begins = begins + 1000000 WHERE number = 2`) // the upgrade was later
	e.restart(t)
	e.restart(t)
	e.must(t, onRun(ids[0], "run_completed"))
	want := []string{string(ids[0]) + "/9 run_completed"}
	for _, cursor := range []string{end, old} {
		if diff := gocmp.Diff(want, e.after(t, cursor)); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", cursor, diff)
		}
	}
}

// TestCursorsOfALostHistoryAreRefused: after a restore from a backup, a cursor that is further than the backup is
// refused, also when the numbers of transactions have passed it, and the error says where to continue.
func TestCursorsOfALostHistoryAreRefused(t *testing.T) {
	t.Parallel()
	e := newEpochs(t)
	e.run(t)
	e.waitForOpenTransactions(t)
	end, err := read.ParseFeedCursor(e.place(t))
	if err != nil {
		t.Fatal(err)
	}
	var epoch string
	var next int64
	if err := e.pool.QueryRow(t.Context(), `SELECT id, base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint
		FROM feed_epochs ORDER BY number DESC LIMIT 1`).Scan(&epoch, &next); err != nil {
		t.Fatal(err)
	}
	// All databases of the cluster share its numbers, so the lost part is long.
	const lost = 1_000_000
	ahead := read.FeedCursorOf(read.Entry{Xid: uint64(next + lost)}).String()
	e.wantLost(t, epoch+"."+ahead) // there is none like that yet
	e.restart(t)
	kept := e.wantLost(t, epoch+"."+ahead)
	e.exec(t, `UPDATE feed_epochs SET base = base + 2000000 WHERE number = (SELECT max(number) FROM feed_epochs)`)
	id := e.run(t)
	want := []string{string(id) + "/1 run_created"}
	if again := e.wantLost(t, epoch+"."+ahead); again != kept {
		t.Errorf("continue with %q, then with %q", kept, again)
	}
	for _, cursor := range []string{kept, end.String()} {
		if diff := gocmp.Diff(want, e.after(t, cursor)); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", cursor, diff)
		}
	}
	if kept := e.wantLost(t, "0123abcd.5::0"); kept != "" {
		t.Errorf("of an unknown epoch: continue with %q", kept)
	}
}

// TestOneEpochBegins though many servers find that Postgres was started. Each connection knows it before it is used.
func TestOneEpochBegins(t *testing.T) {
	t.Parallel()
	e := newEpochs(t)
	e.exec(t, `UPDATE feed_epochs SET started_at = started_at - interval '1 day'`)
	var all sync.WaitGroup
	for range racers {
		all.Go(func() {
			pool, err := migrations.Pool(t.Context(), e.dsn, migrations.DefaultSchema, pg.InstallEpochs)
			if err != nil {
				t.Error(err)
				return
			}
			defer pool.Close()
			var epochs int
			err = pool.QueryRow(t.Context(), `SELECT max(number) FROM feed_epochs`).Scan(&epochs)
			if err != nil || epochs != 3 {
				t.Errorf("there are %d epochs, error %v; want the migration's, that before and that after", epochs, err)
			}
		})
	}
	all.Wait()
}
