package migrations_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// validRows insert a run with one row in each table. The tests then make single columns invalid.
const validRows = `
	INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
	VALUES ('run', 'p', 'd', 'w', 'running', 3, 1, now(), now());
	INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data)
	VALUES ('p', 'run', 1, 'hook_created', 'hook', 3, now(), '{}');
	INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
	VALUES ('run', 'step', 's', 'running', 1, 3, 2, now(), now());
	INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
	VALUES ('run', 'hook', 'p', 'T', false, 3, 1, now());
	INSERT INTO waits (run_id, id, status, spec_version, created_at, updated_at)
	VALUES ('run', 'wait', 'waiting', 3, now(), now());
	INSERT INTO run_attributes (run_id, key, value, project, workflow_name, created_at)
	VALUES ('run', 'k', 'v', 'p', 'w', now());
	INSERT INTO streams (project, name, run_id, chunks, created_at) VALUES ('p', 'strm', 'none', 0, now());
	INSERT INTO stream_chunks (stream_id, idx, data) SELECT id, 0, '' FROM streams;
	INSERT INTO messages (id, project, topic, deployment_id, content_type, body, expires_at, due_at, lease)
	VALUES ('msg', 'p', 't', 'd', '', '', now(), now(), 'receipt');
	INSERT INTO signals (project, id, name, key, data, keep_until, expires_at)
	VALUES ('p', 'sig', 's', 'k', '1', now(), now());
	INSERT INTO api_keys (id, project, name, role, prefix, hash, created_at)
	VALUES ('key', 'default', 'k', 'read', 'sw_', sha256('k'), now())`

func TestConstraintsRejectInvalidRows(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"runs_status_check": {
			`UPDATE runs SET status = 'none'`, `UPDATE runs SET status = 'Running'`, `UPDATE runs SET status = ''`,
		},
		"runs_completed_at_check": {
			`UPDATE runs SET status = 'completed'`, `UPDATE runs SET status = 'failed'`, `UPDATE runs SET status = 'cancelled'`,
			`UPDATE runs SET completed_at = now(), end_seq = 1`,
		},
		"runs_end_seq_check": {
			`UPDATE runs SET end_seq = 1`, `UPDATE runs SET status = 'failed', completed_at = now()`,
		},
		"runs_last_seq_check": {`UPDATE runs SET last_seq = 0`},
		"runs_pkey": {`
			INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
			VALUES ('run', 'another project', 'd', 'w', 'running', 3, 1, now(), now())`},
		"projects_daily_starts_check":  {`UPDATE projects SET daily_starts = -1`},
		"projects_storage_bytes_check": {`UPDATE projects SET storage_bytes = -1`},
		"events_seq_check":             {`UPDATE events SET seq = 0`},
		"events_type_check":            {`UPDATE events SET type = 'step_exploded'`},
		"events_pkey": {`
			INSERT INTO events (project, run_id, seq, type, spec_version, created_at, data)
			VALUES ('p', 'run', 1, 'run_started', 3, now(), '{}')`},
		"events_hook_claim_key": {`
			INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data)
			VALUES ('p', 'run', 2, 'hook_conflict', 'hook', 3, now(), '{}')`},
		"steps_status_check":  {`UPDATE steps SET status = 'cancelled'`},
		"steps_attempt_check": {`UPDATE steps SET attempt = -1`},
		"steps_completed_at_check": {
			`UPDATE steps SET status = 'completed'`, `UPDATE steps SET status = 'failed'`,
			`UPDATE steps SET completed_at = now()`,
		},
		"hooks_token_key": {`
			INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
			VALUES ('run', 'twin', 'p', 'T', false, 3, 1, now())`},
		"waits_status_check":       {`UPDATE waits SET status = 'pending'`},
		"waits_completed_at_check": {`UPDATE waits SET status = 'completed'`, `UPDATE waits SET completed_at = now()`},
		"streams_chunks_check":     {`UPDATE streams SET chunks = -1`},
		"streams_name_key": {`
			INSERT INTO streams (project, name, run_id, chunks, created_at) VALUES ('p', 'strm', 'other', 0, now())`},
		"stream_chunks_idx_check": {`UPDATE stream_chunks SET idx = -1`},
		"signals_expires_at_check": {
			`UPDATE signals SET keep_until = created_at - interval '1 h'`, `UPDATE signals SET expires_at = now() - interval '1 h'`,
		},
		"signals_key": {`
			INSERT INTO signals (project, id, name, key, data, keep_until, expires_at)
			VALUES ('p', 'twin', 's', 'k', '1', now(), now())`},
		"messages_parked_check": {`UPDATE messages SET parked_at = now()`},
		"api_keys_project_fkey": {`UPDATE api_keys SET project = 'nowhere'`, `DELETE FROM projects`},
		"api_keys_role_check":   {`UPDATE api_keys SET role = 'owner'`},
		"api_keys_hash_check":   {`UPDATE api_keys SET hash = 'short'`},
		"api_keys_hash_key": {`
			INSERT INTO api_keys (id, project, name, role, prefix, hash, created_at)
			VALUES ('twin', 'default', 'k', 'read', 'sw_', sha256('k'), now())`},
	}
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	if _, err := pool.Exec(t.Context(), validRows); err != nil {
		t.Fatal(err)
	}
	for name, statements := range tests {
		for _, sql := range statements {
			t.Run(name+" "+strings.TrimSpace(sql), func(t *testing.T) {
				t.Parallel()
				tx, err := pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(t.Context()) }()
				_, err = tx.Exec(t.Context(), sql)
				var pg *pgconn.PgError
				if !errors.As(err, &pg) || pg.ConstraintName != name {
					t.Errorf("got error %v, want constraint %s", err, name)
				}
			})
		}
	}
}

func TestConstraintsAcceptCompleteEndings(t *testing.T) {
	t.Parallel()
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	for _, sql := range []string{
		validRows,
		`UPDATE runs SET status = 'cancelled', completed_at = now(), end_seq = 2`,
		`UPDATE steps SET status = 'failed', completed_at = now()`,
		`UPDATE waits SET status = 'completed', completed_at = now()`,
		`UPDATE messages SET parked_at = now(), lease = ''`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

func TestDeletingRunDeletesItsRows(t *testing.T) {
	t.Parallel()
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	if _, err := pool.Exec(t.Context(), validRows+`;
		INSERT INTO run_store (run_id, key, value, seq) VALUES ('run', 'k', '1', 1);
		DELETE FROM runs`); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"events", "steps", "hooks", "waits", "run_attributes", "run_store"} {
		if n := queryOne[int](t, pool, `SELECT count(*) FROM `+table); n != 0 {
			t.Errorf("%s still has %d rows", table, n)
		}
	}
}
