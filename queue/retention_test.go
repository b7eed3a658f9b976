package queue

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// newRun creates a run that ended the given time ago; 0 creates an open run.
func (r *replica) newRun(t *testing.T, id entities.RunID, ended time.Duration) {
	t.Helper()
	r.Exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq,
			created_at, updated_at, completed_at)
		SELECT $1, $2, $4, 'order', CASE WHEN dead THEN 'failed' ELSE 'running' END, 3, 1, dead::int, now(), now(),
			CASE WHEN dead THEN now() - $3::interval END
		FROM (SELECT $3::interval > '0' AS dead) d`, id, project, ended, deployment)
}

// TestRetentionDeletesRunsWithTheirMessages covers parked and pending messages. Messages of other runs and projects,
// and those without a run, stay.
func TestRetentionDeletesRunsWithTheirMessages(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.newRun(t, "wrun_old", 2*time.Hour)
	r.newRun(t, "wrun_new", time.Minute)
	r.newRun(t, "wrun_live", 0)
	about := func(id entities.RunID, change ...func(*message.Message)) string {
		return r.send(t, append(change, delayed(time.Hour), func(m *message.Message) { m.RunID = id })...)
	}
	gone := []string{about("wrun_old"), about("wrun_old")}
	r.Exec(t, `UPDATE messages SET parked_at = now() WHERE id = $1`, gone[1])
	kept := []string{
		about("wrun_new"), about("wrun_live"), about(""),
		about("wrun_old", func(m *message.Message) { m.Project = "other" }),
	}
	r.worker(t, func(o *WorkerOptions) {
		o.Retention = upkeep.NewRetention(r.pool, upkeep.RetentionOptions{Keep: time.Hour, DeleteRelated: DeleteRunMessages})
	})
	for _, id := range gone {
		r.gone(t, id)
	}
	for _, id := range kept {
		r.stored(t, id)
	}
	r.Want(t, "old runs", 0, `SELECT count(*) FROM runs WHERE id = 'wrun_old'`)
	r.Want(t, "runs are left", 2, `SELECT count(*) FROM runs`)
}

// TestAllExpiredKeysAreDeleted deletes more keys than one batch has, and none that has not expired.
func TestAllExpiredKeysAreDeleted(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.Exec(t, `
		INSERT INTO message_keys (project, deployment_id, topic, key, message_id, expires_at)
		SELECT 'default', 'd', 't', n::text, 'm', now() - interval '1 h' FROM generate_series(1, $1) n`, 2*keysBatch+5)
	r.send(t, keyed("new"))
	if err := deleteExpiredKeys(t.Context(), r.pool); err != nil {
		t.Fatal(err)
	}
	if n, left := r.Count(t, `SELECT count(*) FROM message_keys`), r.Count(t, `SELECT count(*) FROM message_keys WHERE key = 'new'`); n != 1 || left != 1 {
		t.Errorf("%d keys are left, want the new one", n)
	}
}
