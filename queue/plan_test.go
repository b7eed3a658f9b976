package queue

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// blocks returns the number of blocks that the execution of a plan has read.
func blocks(t testing.TB, plan string) int {
	t.Helper()
	found := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`).FindStringSubmatch(plan)
	if found == nil {
		t.Fatalf("no count of blocks in:\n%s", plan)
	}
	hit, err := strconv.Atoi(found[1])
	read, _ := strconv.Atoi(found[2]) // missing when there are none
	if err != nil || hit+read == 0 {
		t.Fatalf("got %d blocks, %v in:\n%s", hit+read, err, plan)
	}
	return hit + read
}

// fill creates n runs. Every second one has ended; of the others, half have a delayed message and half wait for a hook.
func fill(t testing.TB, r *replica, n int) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq,
			created_at, updated_at, started_at, completed_at)
		SELECT 'wrun_' || lpad(i::text, 10, '0'), 'default', 'dpl_test', 'w',
			CASE i % 2 WHEN 0 THEN 'completed' ELSE 'running' END, 3, 4, CASE i % 2 WHEN 0 THEN 4 ELSE 0 END,
			now() - interval '1 h', now() - interval '1 h', now(), CASE i % 2 WHEN 0 THEN now() END
		FROM generate_series(1, $1) i`,
		`INSERT INTO events (project, run_id, seq, type, spec_version, created_at, data)
		SELECT 'default', 'wrun_' || lpad(i::text, 10, '0'), seq, 'run_started', 3, now(), '{}'
		FROM generate_series(1, $1, 2) i, generate_series(1, 4) seq`,
		`INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, due_at)
		SELECT 'msg_' || lpad(i::text, 10, '0'), 'default', 'w', 'dpl_test', 'wrun_' || lpad(i::text, 10, '0'), '', '',
			now(), now() + interval '1 d'
		FROM generate_series(1, $1, 4) i`,
		`INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
		SELECT 'wrun_' || lpad(i::text, 10, '0'), 'hook_1', 'default', i::text, false, 3, 3, now()
		FROM generate_series(3, $1, 4) i`,
		`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at, completed_at)
		SELECT 'wrun_' || lpad(i::text, 10, '0'), 'step_1', 's', 'completed', 1, 3, 2, now(), now(), now()
		FROM generate_series(1, $1, 2) i`,
		`INSERT INTO waits (run_id, id, status, spec_version, resume_at, created_at, updated_at)
		SELECT 'wrun_' || lpad(i::text, 10, '0'), 'wait_1', 'waiting', 3, now() + interval '1 d', now(), now()
		FROM generate_series(1, $1, 4) i`,
	} {
		r.Exec(t, sql, n)
	}
	r.Exec(t, `ANALYZE`)
}

func (r *replica) explain(t testing.TB, sql string, args ...any) string {
	t.Helper()
	rows, err := r.pool.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS) `+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&plan, line)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return plan.String()
}
