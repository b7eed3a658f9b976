package queue

import (
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestAQueueThatWasEmptyIsReadByItsIndex: a statement that is planned once, when the queue is empty and has just been
// vacuumed, must not read the whole table for as long as the plan lasts.
func TestAQueueThatWasEmptyIsReadByItsIndex(t *testing.T) {
	t.Parallel()
	pool, err := migrations.Pool(t.Context(), testdb.New(t), migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{
		`VACUUM ANALYZE messages`, `SET plan_cache_mode = force_generic_plan`,
		`PREPARE drop_lease (text) AS DELETE FROM messages WHERE ` + ofLease,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE drop_lease ('rh_1')`)
	if err != nil {
		t.Fatal(err)
	}
	var plan []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plan, "\n"); strings.Contains(text, "Seq Scan") {
		t.Errorf("an empty queue is read whole:\n%s", text)
	}
}
