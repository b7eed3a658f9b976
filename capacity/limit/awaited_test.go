package limit_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestAwaitedPageReadsAPage of the keys that something waits for, one key of each limit with a total, and about as many
// entries of the index.
func TestAwaitedPageReadsAPage(t *testing.T) {
	t.Parallel()
	const page, keys = 100, 5000
	dsn := testdb.New(t)
	pool := testdb.Connect(t, dsn)
	for _, sql := range []string{`
		INSERT INTO limits (project, name, per_key, total, rate, per, burst, fair, on_full, paused, created_at, updated_at)
		SELECT 'home', name, 1, total, 0, '0', 0, false, 'wait', false, now(), now()
		FROM (VALUES ('a_total', 9), ('b_key', 0), ('c_total', 9)) AS l (name, total)`, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at,
			updated_at)
		SELECT 'wrun_1', 'home', 'd', 'w', 'pending', 2, '{}', 1, now(), now()`, fmt.Sprintf(`
		INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at)
		SELECT project || ' ' || i, 'wrun_1', project, name, to_char(i / 2, 'FM0000'), '', 1, now(), now()
		FROM generate_series(0, %d - 1) i, (VALUES ('home', 'a_total'), ('home', 'b_key'), ('home', 'c_total'),
			('home', 'd_deleted'), ('stranger', 'b_key')) AS p (project, name)`, 2*keys)} {
		exec(t, pool, sql)
	}
	projects, err := limit.AwaitingProjects(t.Context(), pool)
	if diff := cmp.Diff([]entities.Project{home, stranger}, projects); err != nil || diff != "" {
		t.Errorf("projects differ (-want +got), error %v:\n%s", err, diff)
	}
	key := func(name string, i int) limit.Bucket { return limit.Bucket{Name: name, Key: fmt.Sprintf("%04d", i)} }
	for _, tt := range []struct {
		after limit.Bucket
		want  func(i int) limit.Bucket
	}{
		{limit.Bucket{}, func(i int) limit.Bucket { // the first, and all others of the next limit
			return map[bool]limit.Bucket{true: key("a_total", 0), false: key("b_key", i-1)}[i == 0]
		}},
		{key("b_key", 98), func(i int) limit.Bucket { return key("b_key", 99+i) }},
		{key("b_key", keys-1), func(i int) limit.Bucket {
			return map[bool]limit.Bucket{true: key("c_total", 0), false: key("d_deleted", i-1)}[i == 0]
		}},
	} {
		var want []limit.Bucket
		for i := range page {
			want = append(want, tt.want(i))
		}
		got, err := limit.AwaitedPage(t.Context(), pool, home, tt.after, page)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("after %v: the page differs (-want +got), error %v:\n%s", tt.after, err, diff)
		}
	}
	last, err := limit.AwaitedPage(t.Context(), pool, home, key("d_deleted", keys-2), page)
	if len(last) != 1 || err != nil {
		t.Errorf("got %v, error %v; want the last key", last, err)
	}
	pool.Close()
	if n, most := testdb.Read(t, dsn)["permits_waiting_idx"], 4*page; n > most {
		t.Errorf("%d entries of the index were read for three pages, want at most %d", n, most)
	}
}
