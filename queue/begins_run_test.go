package queue

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestMessagesThatBeginRunsAreDue: they are in another part of the index than those of runs that have begun, and each
// statement about a project's due messages reads both.
func TestMessagesThatBeginRunsAreDue(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.Exec(t, `INSERT INTO messages (id, project, topic, deployment_id, content_type, body, expires_at, due_at, begins_run)
		SELECT 'msg_' || n, $1, 'order', $2, '', '', now() + interval '1 d', now() - n * interval '1 h', n = 2
		FROM generate_series(1, 2) n`, project, deployment)
	demands, err := readDemands(t.Context(), r.pool)
	if err != nil || len(demands) != 1 || demands[0].Wait > -2*time.Hour {
		t.Errorf("demands: got %+v, %v, want one of the earlier message", demands, err)
	}
	counts, err := r.Counts(t.Context(), project)
	if err != nil || counts.Due.Count != 2 {
		t.Errorf("counts: got %+v, %v, want 2 that are due", counts, err)
	}
	list, _, err := r.Messages(t.Context(), project, Filter{State: StateDue}, pg.Page{Limit: 9})
	if err != nil || len(list) != 2 || list[0].ID != "msg_2" {
		t.Errorf("list: got %+v, %v, want both, the earlier first", list, err)
	}
}

// TestAllMessagesOfARunAreDeleted: those of its app, and the server's own work.
func TestAllMessagesOfARunAreDeleted(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	run := r.created(t)
	r.Exec(t, `INSERT INTO messages (id, project, topic, deployment_id, run_id, work, content_type, body, expires_at, due_at)
		SELECT 'msg_of_' || work, $1, 'order', $2, $3, work, '', '', now() + interval '1 d', now() FROM unnest(ARRAY['', 'run']) work`,
		project, deployment, run.RunID)
	err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		return DeleteRunMessages(t.Context(), tx, project, []entities.RunID{run.RunID})
	})
	if n := r.Count(t, `SELECT count(*) FROM messages`); err != nil || n != 0 {
		t.Errorf("%d messages are left, %v", n, err)
	}
}
