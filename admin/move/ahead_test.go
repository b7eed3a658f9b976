package move

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// endRuns inserts runs of shop that have ended, 1 to last, each with a row of whatever is copied with it.
func endRuns(t *testing.T, pool *pgxpool.Pool, last int) {
	t.Helper()
	tx := begin(t, pool, pgx.ReadCommitted)
	for _, sql := range endedRuns {
		testdb.Exec(t, tx, sql, 1, last)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

var endedRuns = []string{
	`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, created_at, updated_at,
			completed_at, idempotency_key)
		SELECT 'wrun_e' || n, 'shop', 'order@1', 'order', 'completed', 2, 2, 2, now(), now(), now() - n % 7 * interval '1 s', 'key ' || n % 40
		FROM generate_series($1::int, $2::int) n ON CONFLICT DO NOTHING`,
	`INSERT INTO events (run_id, seq, created_at, spec_version, type, data, project)
		SELECT 'wrun_e' || n, seq, now(), 2, 'run_started', '{}', 'shop'
		FROM generate_series($1::int, $2::int) n, generate_series(1, 2) seq WHERE ` + new + ` ON CONFLICT DO NOTHING`,
	`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
		SELECT 'wrun_e' || n, 's', 's', 'running', 1, 2, 1, now(), now() FROM generate_series($1::int, $2::int) n WHERE ` + new + ` ON CONFLICT DO NOTHING`,
	`INSERT INTO run_attributes (run_id, key, value, project, workflow_name, created_at)
		SELECT 'wrun_e' || n, 'k', 'v', 'shop', 'order', now() FROM generate_series($1::int, $2::int) n WHERE ` + new + ` ON CONFLICT DO NOTHING`,
	`INSERT INTO run_store (run_id, key, value, seq)
		SELECT 'wrun_e' || n, 'k', 'v', 1 FROM generate_series($1::int, $2::int) n WHERE ` + new + ` ON CONFLICT DO NOTHING`,
	`INSERT INTO run_keys (run_id, project, secret)
		SELECT 'wrun_e' || n, 'shop', sha256('r') FROM generate_series($1::int, $2::int) n WHERE ` + new + ` ON CONFLICT DO NOTHING`,
	`INSERT INTO blobs (id, project, run_id, size)
		SELECT gen_random_uuid(), 'shop', 'wrun_e' || n, 3 FROM generate_series($1::int, $2::int) n WHERE ` + new,
	`INSERT INTO collected (run_id, seq, project, idempotency_key, digest, input)
		SELECT 'wrun_e' || n, 1, 'shop', '', '', '\x01' FROM generate_series($1::int, $2::int) n WHERE ` + new + ` ON CONFLICT DO NOTHING`,
	`WITH new AS (INSERT INTO streams (project, name, run_id, chunks, created_at)
			SELECT 'shop', 'of ' || n, 'wrun_e' || n, 1, now() FROM generate_series($1::int, $2::int) n WHERE ` + new + `
			ON CONFLICT DO NOTHING RETURNING id, name)
		INSERT INTO stream_chunks (stream_id, idx, data) SELECT id, 0, convert_to('shop' || name, 'UTF8') FROM new`,
}

// new is the condition that this transaction has inserted the run, and was not refused because of its key.
const new = `EXISTS (SELECT FROM runs WHERE id = 'wrun_e' || n AND xmin::text = (pg_current_xact_id()::text::bigint % 4294967296)::text)`

// compare compares what the source has with what the target has got of it.
func compare(t *testing.T, source map[string][]string, to *pgxpool.Pool) {
	t.Helper()
	target := allRows(t, to)
	for _, also := range []string{"audit", "arrivals", "arrived_epochs"} { // have what says that it has moved
		delete(source, also)
		delete(target, also)
	}
	for name, rows := range source {
		if name == "messages" { // TestEachRowMoves compares them
			continue
		}
		if diff := cmp.Diff(rows, target[name]); diff != "" {
			t.Errorf("rows of %s differ (-source +target):\n%.3000s", name, diff)
		}
	}
	testdb.In(to).Want(t, "chunks of other streams", 0, `
		SELECT count(*) FROM stream_chunks c JOIN streams s ON s.id = c.stream_id
		WHERE project = 'shop' AND data <> convert_to('shop' || name, 'UTF8')`)
	testdb.In(to).Want(t, "copies under way", 0, `SELECT count(*) FROM arriving`)
}

// TestEndedRunsAreCopiedAhead: before the project is refused writes, the target has its ended runs, in several batches,
// and nothing else of it.
func TestEndedRunsAreCopiedAhead(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	testdb.Exec(t, m.From, `DROP INDEX runs_idempotency_key`)
	testdb.Exec(t, m.To, `DROP INDEX runs_idempotency_key`)
	const ended = 1200
	endRuns(t, m.From, ended)
	var source map[string][]string
	pages := 0
	m.reached = func(at phase) {
		switch at {
		case copying:
			pages++
			if err := write(t, m.From); err != nil {
				t.Error(err)
			}
			_, err := m.To.Exec(t.Context(), `INSERT INTO projects (name) VALUES ('shop')`)
			wantMove(t, err, true)
		case departing:
			to := testdb.In(m.To)
			to.Want(t, "runs", ended, `SELECT count(*) FROM runs`)
			to.Want(t, "events", 2*ended, `SELECT count(*) FROM events`)
			to.Want(t, "chunks", ended, `SELECT count(*) FROM stream_chunks`)
			to.Want(t, "archived runs", 1, `SELECT count(*) FROM archived_runs`)
			to.Want(t, "others", 0, `SELECT count(*) FROM projects WHERE name = 'shop'`)
		case copied:
			source = allRows(t, m.From)
		default:
		}
	}
	if err := m.Move(t.Context(), shop, "eu2"); err != nil {
		t.Fatal(err)
	}
	if pages < 5 {
		t.Errorf("%d batches", pages)
	}
	if m.copiedRuns != ended+3 { // with an open, an archived and a collected one
		t.Errorf("%d runs were copied", m.copiedRuns)
	}
	compare(t, source, m.To)
	testdb.In(m.From).Want(t, "what was noted", 0, `SELECT count(*) FROM leaving_changes, leaving`)
}

// changed are what may happen to runs that have ended, by retention, archiving, shredding, imports, late writers, and new
// runs. $1 and $2 are random numbers.
var changed = map[string][]string{
	"remove": {
		`DELETE FROM collected WHERE run_id = 'wrun_e' || $1::int`,
		`DELETE FROM run_keys WHERE run_id = 'wrun_e' || $1::int`,
		`DELETE FROM streams WHERE project = 'shop' AND run_id = 'wrun_e' || $1::int`,
		`DELETE FROM runs WHERE id = 'wrun_e' || $1::int`,
	},
	"archive": {
		`INSERT INTO archived_runs SELECT * FROM runs WHERE id = 'wrun_e' || $1::int ON CONFLICT (id) DO UPDATE SET archived_at = now()`,
		`DELETE FROM streams WHERE project = 'shop' AND run_id = 'wrun_e' || $1::int`,
		`DELETE FROM collected WHERE run_id = 'wrun_e' || $1::int`,
		`DELETE FROM runs WHERE id = 'wrun_e' || $1::int`,
	},
	"forget": {`DELETE FROM archived_runs WHERE id = 'wrun_e' || $1::int`},
	"shred": {
		`UPDATE run_keys SET secret = NULL, shredded_at = now() WHERE run_id = 'wrun_e' || $1::int`,
		`DELETE FROM streams WHERE project = 'shop' AND run_id = 'wrun_e' || $1::int`,
		`DELETE FROM run_store WHERE run_id = 'wrun_e' || $1::int AND EXISTS (SELECT FROM run_keys k WHERE k.run_id = run_store.run_id)`,
		`UPDATE collected SET input = '' WHERE run_id = 'wrun_e' || $1::int AND EXISTS (SELECT FROM run_keys k WHERE k.run_id = collected.run_id)`,
	},
	"append": {`
		UPDATE runs SET last_seq = last_seq + 1 WHERE id = 'wrun_e' || $1::int`, `
		INSERT INTO events (run_id, seq, created_at, spec_version, type, data, project)
		SELECT id, 1 + coalesce((SELECT max(seq) FROM events WHERE run_id = runs.id), 0), now(), 2, 'hook_disposed', '{}', 'shop'
		FROM runs WHERE id = 'wrun_e' || $1::int`},
	"write": {`
		WITH longer AS (UPDATE streams SET chunks = chunks + 1 WHERE project = 'shop' AND name = 'of ' || $1::int RETURNING id, chunks, name)
		INSERT INTO stream_chunks (stream_id, idx, data) SELECT id, chunks - 1, convert_to('shop' || name, 'UTF8') FROM longer`},
	"open": {`
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at, idempotency_key)
		VALUES ('wrun_e' || $1::int, 'shop', 'order@1', 'order', 'running', 2, 1, now(), now(), 'key ' || $2::int % 40) ON CONFLICT DO NOTHING`},
	"end": {`
		UPDATE runs SET status = 'completed', completed_at = now(), end_seq = 1 WHERE id = 'wrun_e' || $1::int AND completed_at IS NULL`},
	"new": endedRuns,
}

// change makes a random change.
func change(ctx context.Context, pool *pgxpool.Pool, numbers *rand.Rand) error {
	name := slices.Sorted(maps.Keys(changed))[numbers.IntN(len(changed))]
	n := numbers.IntN(60)
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer rollBack(ctx, tx)
	for _, sql := range changed[name] {
		args := []any{n, n}[:1+min(1, strings.Count(sql, "$2"))]
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return tx.Commit(ctx)
}

// TestEachChangeIsFollowed: each kind of change, of a run of its own that is copied, is true in the target.
func TestEachChangeIsFollowed(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	endRuns(t, m.From, 30)
	kinds := slices.Sorted(maps.Keys(changed))
	apply := func(name string, n int) {
		for _, sql := range changed[name] {
			testdb.Exec(t, m.From, sql, []any{n, n}[:1+min(1, strings.Count(sql, "$2"))]...)
		}
	}
	apply("archive", 1+slices.Index(kinds, "forget"))
	apply("remove", 1+slices.Index(kinds, "end"))
	apply("open", 1+slices.Index(kinds, "end"))
	var source map[string][]string
	m.reached = func(at phase) {
		switch at {
		case changes:
			if len(source) == 0 && len(column(t, m.From, `SELECT project FROM departures`)) == 0 {
				for i, name := range kinds {
					apply(name, i+1)
				}
			}
		case copied:
			source = allRows(t, m.From)
		default:
		}
	}
	if err := m.Move(t.Context(), shop, "eu2"); err != nil {
		t.Fatal(err)
	}
	compare(t, source, m.To)
}

// TestChangesAreFollowed: whatever happens to runs that are copied is true in the target, by writers that go on until
// they are refused. Each command dies, and the last one goes on.
func TestChangesAreFollowed(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	endRuns(t, m.From, 30)
	var writers sync.WaitGroup
	var made atomic.Int64
	for seed := range uint64(4) {
		writers.Go(func() {
			numbers := rand.New(rand.NewPCG(seed, 1))
			for {
				err := change(t.Context(), m.From, numbers)
				if move, refused := pg.MoveOf(err); refused && !move.Done {
					return
				}
				if err != nil && !pg.Retryable(err) {
					t.Error(err)
					return
				}
				made.Add(1)
			}
		})
	}
	enough := func(phase) {
		was := made.Load()
		testdb.Eventually(t, "some changes", func() bool { return made.Load() > was+30 })
	}
	for _, at := range []phase{copying, changes, changes} {
		m.diesAt(t, at)
		enough(at)
	}
	var source map[string][]string
	m.reached = func(at phase) {
		switch at {
		case copying, changes:
			if len(column(t, m.From, `SELECT project FROM departures`)) == 0 {
				enough(at)
			}
		case copied:
			writers.Wait()
			source = allRows(t, m.From)
		default:
		}
	}
	if err := m.Move(t.Context(), shop, "eu2"); err != nil {
		t.Fatal(err)
	}
	compare(t, source, m.To)
}

// TestCopiesGoOn where a command died that has copied some runs, but not if the source has lost what was copied.
func TestCopiesGoOn(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	endRuns(t, m.From, 30)
	m.diesAt(t, changes)
	again := *m
	again.diesAt(t, changes)
	if again.copiedRuns != 0 {
		t.Errorf("%d runs were copied again", again.copiedRuns)
	}
	testdb.Exec(t, m.To, `
		WITH mover AS MATERIALIZED (SELECT set_config('stepwell.mover', 'on', true))
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, created_at, updated_at, completed_at)
		SELECT 'wrun_lost', 'shop', '', '', 'completed', 2, 1, 1, now(), now(), now() FROM mover`)
	testdb.Exec(t, m.From, `
		INSERT INTO feed_epochs (number, id, cluster, started_at, begins, base)
		SELECT number + 1, 'restored', cluster, started_at, (SELECT base + pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1000), base
		FROM feed_epochs ORDER BY number DESC LIMIT 1`)
	if err := m.Move(t.Context(), shop, "eu2"); err != nil {
		t.Fatal(err)
	}
	testdb.In(m.To).Want(t, "lost runs", 0, `SELECT count(*) FROM runs WHERE id = 'wrun_lost'`)
	testdb.In(m.To).Want(t, "runs", 31, `SELECT count(*) FROM runs WHERE project = 'shop'`)
}

// TestCopiesLeaveOthersAlone: a client names the runs of its streams. Those of other projects are neither copied nor
// deleted.
func TestCopiesLeaveOthersAlone(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	testdb.Exec(t, m.To, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
		VALUES ('wrun_x', 'x', '', '', 'running', 2, 1, now(), now())`)
	testdb.Exec(t, m.To, `INSERT INTO step_results (run_id, step_id) VALUES ('wrun_x', 's')`)
	testdb.Exec(t, m.To, `INSERT INTO streams (project, name, run_id, chunks, created_at) VALUES ('x', 'a', 'wrun_x', 0, now())`)
	testdb.Exec(t, m.From, `INSERT INTO step_results (run_id, step_id) VALUES ('wrun_2', 's')`)
	hostile := func(phase) {
		for i, id := range []string{"wrun_x", "wrun_2"} {
			_, err := m.From.Exec(t.Context(), `
				INSERT INTO streams (project, name, run_id, chunks, created_at, before_run) VALUES ('shop', gen_random_uuid()::text, $1, 0, now(), $2)`,
				id, i == 0)
			if _, refused := pg.MoveOf(err); err != nil && !refused {
				t.Error(err)
			}
		}
	}
	m.reached = hostile
	if err := m.Move(t.Context(), shop, "eu2"); err != nil {
		t.Fatal(err)
	}
	to := testdb.In(m.To)
	to.Want(t, "what x had", 3, `
		SELECT (SELECT count(*) FROM runs WHERE project = 'x') + (SELECT count(*) FROM step_results WHERE run_id = 'wrun_x')
			+ (SELECT count(*) FROM streams WHERE project = 'x')`)
	to.Want(t, "what another one had", 0, `
		SELECT (SELECT count(*) FROM runs WHERE id = 'wrun_2') + (SELECT count(*) FROM step_results WHERE run_id = 'wrun_2')`)
}
