package move

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

const shop entities.Project = "shop"

// newMover returns a mover between the databases of the cells eu1 and eu2. The first has testdata/project.sql.
func newMover(t *testing.T) *Mover {
	t.Helper()
	rows, err := os.ReadFile("testdata/project.sql")
	if err != nil {
		t.Fatal(err)
	}
	m := &Mover{
		From: testdb.Pool(t, pg.InstallEpochs), To: testdb.Pool(t, pg.InstallEpochs), SameSettings: true,
		Logger: slog.New(slog.DiscardHandler),
	}
	testdb.Exec(t, m.From, string(rows))
	serves(t, m.From, "eu1")
	serves(t, m.To, "eu2")
	return m
}

// serves has a server of a cell on a database.
func serves(t *testing.T, pool *pgxpool.Pool, cell string) {
	t.Helper()
	testdb.Exec(t, pool, `
		INSERT INTO processes (id, host, session_key, cell, beat_at) VALUES ('proc_' || $1::text, '', 0, $1, now() + interval '1 h')`, cell)
}

// back returns the mover of the other direction.
func (m *Mover) back() *Mover {
	return &Mover{From: m.To, To: m.From, SameSettings: true, Logger: m.Logger}
}

// rowsOf returns the project's rows of a table as JSON, without the columns whose values are replaced.
func rowsOf(t *testing.T, pool *pgxpool.Pool, of table) []string {
	t.Helper()
	drop := []string{}
	for name := range of.values {
		drop = append(drop, name)
	}
	from := ""
	if of.keyed() == "stream_id" {
		from = ` JOIN streams s ON s.id = t.stream_id AND s.project = 'shop'`
	}
	where := strings.ReplaceAll(of.ofProject(), "$project", "'shop'")
	return column(t, pool, `SELECT (to_jsonb(t) - $1::text[])::text FROM `+of.name+` t`+from+` WHERE `+where+` ORDER BY 1`, drop)
}

func allRows(t *testing.T, pool *pgxpool.Pool) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, of := range tables {
		all[of.name] = rowsOf(t, pool, of)
	}
	return all
}

// TestEachRowMoves: the target has what the source had, with its own numbers, and the source has nothing but the names.
func TestEachRowMoves(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	testdb.Exec(t, m.To, `INSERT INTO pauses (project, kind, name, paused_by) SELECT 'x', 'run', n::text, '' FROM generate_series(1, 9) n`)
	before := allRows(t, m.From)
	for name, rows := range before {
		if len(rows) == 0 {
			t.Errorf("testdata/project.sql has no row of %s", name)
		}
	}
	others := column(t, m.From, `SELECT stream_id || ' ' || data::text FROM stream_chunks JOIN streams s ON s.id = stream_id AND project = 'other'`)
	if err := m.Move(t.Context(), shop, "eu2"); err != nil {
		t.Fatal(err)
	}
	after := allRows(t, m.To)
	for _, also := range []string{"audit", "arrivals", "arrived_epochs"} { // have what says that it has moved
		if len(after[also]) <= len(before[also]) {
			t.Errorf("%s has nothing about the move", also)
		}
		for _, row := range before[also] {
			if !strings.Contains(strings.Join(after[also], "\n"), row) {
				t.Errorf("%s lacks %s", also, row)
			}
		}
		delete(before, also)
		delete(after, also)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("rows differ (-source +target):\n%s", diff)
	}
	to := testdb.In(m.To)
	to.Want(t, "chunks with their streams", 2, `
		SELECT count(*) FROM stream_chunks c JOIN streams s ON s.id = c.stream_id JOIN stream_writers w ON w.stream_id = s.id
		WHERE project = 'shop' AND data = convert_to('shop' || name, 'UTF8') AND attempt = name`)
	to.Want(t, "messages held by their pause", 1, `
		SELECT count(*) FROM messages m JOIN pauses p ON p.id = m.held_by WHERE p.project = 'shop' AND p.kind = 'run'`)
	to.Want(t, "lost leases", 1, `
		SELECT count(*) FROM messages WHERE id = 'msg_1' AND lease = '' AND holder = '' AND due_at <= now() AND ticket = 0
			AND delivery_count = 2 AND excused_count = 1 AND unreached_count = 0`)
	to.Want(t, "messages whose last call is known not to have arrived", 1, `
		SELECT count(*) FROM messages WHERE id = 'msg_2' AND unreached_count = 3`)
	to.Want(t, "order of the audit", 1, `
		SELECT count(*) FROM audit a JOIN audit b ON b.seq > a.seq WHERE a.subject = 'key_1' AND b.subject = 's'`)
	to.Want(t, "next IDs are above", 1, `
		WITH new AS (INSERT INTO streams (project, name, run_id, chunks, created_at) VALUES ('x', 'x', '', 0, now()) RETURNING id)
		SELECT count(*) FROM new WHERE id > (SELECT max(id) FROM streams)`)
	for name, rows := range allRows(t, m.From) {
		if stays := name == "projects" || name == "api_keys" || name == "audit"; (len(rows) > 0) != stays {
			t.Errorf("the source has %d rows of %s", len(rows), name)
		}
	}
	testdb.In(m.From).Want(t, "blobs that the source has to delete", 1, `SELECT count(*) FROM blobs WHERE run_id IS NULL`)
	if diff := cmp.Diff(others, column(t, m.From, `SELECT stream_id || ' ' || data::text FROM stream_chunks`)); diff != "" {
		t.Errorf("chunks of another project (-before +after):\n%s", diff)
	}
	if err := m.Move(t.Context(), shop, "eu2"); err != nil {
		t.Errorf("a repeated move: %v", err)
	}
}

// TestProjectsComeBack: with what they had, and are written again.
func TestProjectsComeBack(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	before := allRows(t, m.From)
	if err := m.Move(t.Context(), shop, "eu2"); err != nil {
		t.Fatal(err)
	}
	if err := m.back().Move(t.Context(), shop, "eu1"); err != nil {
		t.Fatal(err)
	}
	after := allRows(t, m.From)
	for _, about := range []string{"audit", "arrivals", "arrived_epochs"} {
		delete(before, about)
		delete(after, about)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("rows differ (-first +last):\n%s", diff)
	}
	testdb.Exec(t, m.From, `UPDATE runs SET updated_at = now() WHERE project = 'shop'`)
	testdb.Exec(t, m.From, `UPDATE steps SET updated_at = now()`)
	wantMove(t, write(t, m.To), true)
	if err := m.Move(t.Context(), shop, "eu2"); err != nil {
		t.Errorf("a second move: %v", err)
	}
}

// write writes to the project in a transaction of its own.
func write(t *testing.T, pool *pgxpool.Pool) error {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		INSERT INTO message_keys (project, deployment_id, topic, key, message_id, expires_at)
		VALUES ('shop', 'd', 't', gen_random_uuid(), 'm', now())`)
	return err
}

func wantMove(t *testing.T, err error, done bool) {
	t.Helper()
	if got, ok := pg.MoveOf(err); !ok || got != (pg.Move{Project: "shop", Here: got.Here, Cell: got.Cell, Done: done}) || got.Cell == "" {
		t.Errorf("a write: got %v (%+v), want that the project has moved: %v", err, got, done)
	}
}

// TestFenceRefusesEveryWrite of every table, whatever it does, and none of another project.
func TestFenceRefusesEveryWrite(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	m.diesAt(t, fenced)
	for _, of := range tables {
		key := pgx.Identifier{of.keyed()}.Sanitize()
		for _, sql := range []string{
			`DELETE FROM %s t WHERE %w`, `UPDATE %s t SET %k = %k WHERE %w`,
		} {
			where := strings.ReplaceAll(of.ofProject(), "$project", "'shop'")
			if of.keyed() == "stream_id" {
				where = `t.stream_id IN (SELECT id FROM streams WHERE project = 'shop')`
			}
			_, err := m.From.Exec(t.Context(), strings.NewReplacer("%s", of.name, "%w", where, "%k", key).Replace(sql))
			if _, refused := pg.MoveOf(err); !refused {
				t.Errorf("%s of %s: got %v", sql, of.name, err)
			}
		}
	}
	wantMove(t, write(t, m.From), false)
	testdb.Exec(t, m.From, `UPDATE run_wakes SET acked_seq = 2 WHERE run_id = 'wrun_2'`)
	testdb.Exec(t, m.From, `UPDATE stream_chunks SET idx = 1 WHERE stream_id IN (SELECT id FROM streams WHERE project = 'other')`)
	testdb.Exec(t, m.From, `UPDATE runs SET updated_at = now() WHERE project = 'other'`)
}

// TestFenceWaitsForWriters: a transaction that has written before the fence is part of the copy. One that sees the
// database as it was before has to begin again.
func TestFenceWaitsForWriters(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	writer, old := begin(t, m.From, pgx.ReadCommitted), begin(t, m.From, pgx.RepeatableRead)
	if _, err := writer.Exec(t.Context(), `INSERT INTO secrets (project, name, "values", created_at, updated_at)
		VALUES ('shop', 'late', '{v}', now(), now())`); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Exec(t.Context(), `SELECT count(*) FROM projects`); err != nil { // takes its snapshot
		t.Fatal(err)
	}
	moved := make(chan error, 1)
	go func() { moved <- m.Move(t.Context(), shop, "eu2") }()
	testdb.Eventually(t, "the fence waits for the writer", func() bool {
		return testdb.In(m.From).Count(t, `SELECT count(*) FROM pg_locks
			WHERE relation = 'secrets'::regclass AND mode = 'ShareRowExclusiveLock' AND NOT granted`) > 0
	})
	if err := writer.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	testdb.In(m.To).Want(t, "late secrets", 1, `SELECT count(*) FROM secrets WHERE name = 'late'`)
	_, err := old.Exec(t.Context(), `INSERT INTO secrets (project, name, "values", created_at, updated_at)
		VALUES ('shop', 'lost', '{v}', now(), now())`)
	if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "40001" {
		t.Errorf("a write with an old snapshot: got %v", err)
	}
}

func begin(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

// errDead is what a command dies of.
var errDead = errors.New("dead")

// diesAt moves the project by a command that dies at a phase.
func (m *Mover) diesAt(t *testing.T, at phase) {
	t.Helper()
	ctx, die := context.WithCancelCause(t.Context())
	dying := *m
	dying.reached = func(p phase) {
		if p == at {
			die(errDead)
		}
	}
	if err := dying.Move(ctx, shop, "eu2"); !errors.Is(context.Cause(ctx), errDead) || err == nil {
		t.Fatalf("the command did not die when %s: %v", at, err)
	}
}

// TestAbort: a move can be given up until the target has the project.
func TestAbort(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	wantRefused(t, m.Abort(t.Context(), shop, "eu2"), "is not being moved")
	endRuns(t, m.From, 3)
	for _, at := range []phase{copying, changes, departing, fenced, copied} {
		m.diesAt(t, at)
		if err := m.Abort(t.Context(), shop, "eu2"); err != nil {
			t.Fatal(err)
		}
		for name, rows := range allRows(t, m.To) {
			if len(rows) > 0 {
				t.Errorf("when %s: the target has rows of %s: %v", at, name, rows)
			}
		}
		testdb.Exec(t, m.From, `UPDATE runs SET updated_at = now() WHERE project = 'shop'`)
		testdb.In(m.From).Want(t, "what is noted", 0, `SELECT (SELECT count(*) FROM leaving_changes) + (SELECT count(*) FROM leaving)`)
		testdb.Exec(t, m.To, `INSERT INTO projects (name) VALUES ('shop')`)
		testdb.Exec(t, m.To, `DELETE FROM projects WHERE name = 'shop'`)
		if err := write(t, m.From); err != nil {
			t.Errorf("after a move that was given up when %s: %v", at, err)
		}
		testdb.In(m.To).Want(t, "projects", 0, `SELECT count(*) FROM projects WHERE name = 'shop'`)
	}
	for _, at := range []phase{arrived, marked, cleaning} {
		m.diesAt(t, at)
		wantRefused(t, m.Abort(t.Context(), shop, "eu2"), "cannot be given up")
		wantMove(t, write(t, m.From), at != arrived)
		if err := write(t, m.To); err != nil {
			t.Errorf("in the target, when %s: %v", at, err)
		}
	}
	if err := m.Move(t.Context(), shop, "eu2"); err != nil {
		t.Error(err)
	}
	wantMove(t, write(t, m.From), true)
}

func wantRefused(t *testing.T, err error, why string) {
	t.Helper()
	if _, ok := errors.AsType[*RefusedError](err); !ok || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want a refusal with %q", err, why)
	}
}

// TestRefusedMovesChangeNothing: whatever is wrong is found before anything is written.
func TestRefusedMovesChangeNothing(t *testing.T) {
	t.Parallel()
	away, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/nothing")
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	for name, tt := range map[string]struct {
		from, to string // what is executed there before
		change   func(*Mover)
		project  entities.Project
		cell     entities.Cell
		why      string
	}{
		"default":       {project: "default", why: "each cell has its own"},
		"unknown":       {project: "nobody", why: "has no project nobody"},
		"older version": {to: `DELETE FROM goose_db_version WHERE version_id >= 122`, why: "run the same version"},
		"wrong cell":    {cell: "eu3", why: "not of eu3"},
		"same cell":     {cell: "eu1", to: `UPDATE processes SET cell = 'eu1'`, why: "is in cell eu1 already"},
		"no servers":    {to: `DELETE FROM processes`, why: "start its servers"},
		"no cell":       {from: `UPDATE processes SET cell = ''`, why: "STEPWELL_CELL"},
		"two cells":     {to: `INSERT INTO processes (id, host, session_key, cell) VALUES ('p', '', 0, 'us1')`, why: `"us1"`},
		"exists":        {to: `INSERT INTO projects (name) VALUES ('shop')`, why: "has a project shop already"},
		"unreachable":   {change: func(m *Mover) { m.To = away }, why: "cannot be reached"},
		"objects":       {change: func(m *Mover) { m.SameSettings = false }, why: "STEPWELL_PAYLOADS"},
		"encrypted": {
			from: `DELETE FROM blobs`, change: func(m *Mover) { m.SameSettings = false }, why: "STEPWELL_ENCRYPTION_KEYS",
		},
		"archive": {
			from: `DELETE FROM blobs; DELETE FROM archive_files`, change: func(m *Mover) { m.SameSettings = false }, why: "STEPWELL_ARCHIVE",
		},
		"half gone": {
			to:  `INSERT INTO departures (project, here, cell, target, moved_at) VALUES ('shop', 'eu2', 'eu1', '', now())`,
			why: "repeat the move from there",
		},
		"elsewhere": {
			from: `INSERT INTO departures (project, here, cell, target) VALUES ('shop', 'eu1', 'eu3', '')`, why: "goes to cell eu3",
		},
		"copied elsewhere": {from: `INSERT INTO leaving (project, cell) VALUES ('shop', 'eu3')`, why: "goes to cell eu3"},
		"copied from elsewhere": {
			to: `INSERT INTO arriving (project, cell, began_at, pass) VALUES ('shop', 'ap1', now(), 'runs')`, why: "from cell ap1",
		},
		"another database": {
			from: `INSERT INTO departures (project, here, cell, target) VALUES ('shop', 'eu1', 'eu2', 'x')`, why: "another database",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMover(t)
			for pool, sql := range map[*pgxpool.Pool]string{m.From: tt.from, m.To: tt.to} {
				if sql != "" {
					testdb.Exec(t, pool, sql)
				}
			}
			if tt.change != nil {
				tt.change(m)
			}
			if tt.project == "" {
				tt.project = shop
			}
			if tt.cell == "" {
				tt.cell = "eu2"
			}
			const departures = `SELECT to_jsonb(d)::text FROM departures d`
			before := column(t, m.From, departures)
			wantRefused(t, m.Move(t.Context(), tt.project, tt.cell), tt.why)
			if diff := cmp.Diff(before, column(t, m.From, departures)); diff != "" {
				t.Errorf("departures (-before +after):\n%s", diff)
			}
			if err := write(t, m.From); len(before) == 0 && err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRacingMoves: of several commands, one moves the project, and the others are refused or find that it has moved.
func TestRacingMoves(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	const racers = 8
	var all sync.WaitGroup
	var mu sync.Mutex
	succeeded := 0
	for range racers {
		all.Go(func() {
			racer := *m
			err := racer.Move(t.Context(), shop, "eu2")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				succeeded++
			} else {
				wantRefused(t, err, "another command")
			}
		})
	}
	all.Wait()
	if succeeded == 0 {
		t.Error("no command has moved the project")
	}
	to := testdb.In(m.To)
	to.Want(t, "events", 2, `SELECT count(*) FROM events WHERE project = 'shop'`)
	to.Want(t, "arrivals", 1, `SELECT count(*) FROM arrivals WHERE cell = 'eu1'`)
}

// TestLateCommandsLeaveReturnedProjectsAlone: a command that slept since it moved the project, or has begun to delete
// what is left of it, deletes nothing of what has come back.
func TestLateCommandsLeaveReturnedProjectsAlone(t *testing.T) {
	t.Parallel()
	for _, at := range []phase{copying, changes, arrived, marked, cleaning} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			lateCommand(t, at)
		})
	}
}

// lateCommand has a command sleep once it is in a phase, until the project has moved and come back.
func lateCommand(t *testing.T, at phase) {
	t.Helper()
	m := newMover(t)
	endRuns(t, m.From, 3)
	asleep, wake := make(chan struct{}), make(chan struct{})
	slow := *m
	var once sync.Once
	slow.reached = func(p phase) {
		if p == at {
			once.Do(func() { close(asleep); <-wake })
		}
	}
	late := make(chan error, 1)
	go func() { late <- slow.Move(t.Context(), shop, "eu2") }()
	<-asleep
	testdb.Exec(t, m.To, `
		SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	for _, move := range []func() error{
		func() error { return m.Move(t.Context(), shop, "eu2") },
		func() error { return m.back().Move(t.Context(), shop, "eu1") },
	} {
		if err := move(); err != nil {
			t.Fatal(err)
		}
	}
	close(wake)
	if err := <-late; err == nil && (at == copying || at == changes || at == arrived) {
		t.Error("the late command says that it has moved the project")
	}
	testdb.In(m.From).Want(t, "events", 8, `SELECT count(*) FROM events WHERE project = 'shop'`)
	if err := write(t, m.From); err != nil {
		t.Error(err)
	}
}

// TestFeedGoesOn: events of the target come after those that have arrived, and only if they must.
func TestFeedGoesOn(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	testdb.Exec(t, m.From, `UPDATE feed_epochs SET base = base + 1000000000`)
	for range 2 {
		if err := m.Move(t.Context(), shop, "eu2"); err != nil {
			t.Fatal(err)
		}
		testdb.In(m.To).Want(t, "places after the source's", 1, `
			SELECT count(*) FROM feed_epochs e, pg_current_snapshot() s
			WHERE number = (SELECT max(number) FROM feed_epochs) AND base + pg_snapshot_xmin(s)::text::bigint >= 1000000000`)
		m = m.back()
		if err := m.Move(t.Context(), shop, "eu1"); err != nil {
			t.Fatal(err)
		}
		m = m.back()
	}
	for _, pool := range []*pgxpool.Pool{m.From, m.To} {
		if n := testdb.In(pool).Count(t, `SELECT count(*) FROM feed_epochs WHERE number > 2`); n > 4 {
			t.Errorf("%d epochs were begun", n)
		}
	}
}
