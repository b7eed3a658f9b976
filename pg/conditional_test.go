package pg

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestRenumber: only parameters have numbers. A $ of a pattern stays, or the pattern would match nothing.
func TestRenumber(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sql    string
		offset int
		want   string
	}{
		"parameters":        {`SELECT $1::text, $12`, 8, `SELECT $9::text, $20`},
		"none before":       {`SELECT $1`, 0, `SELECT $1`},
		"end of a pattern":  {`topic ~ '^a(.*)$' AND id = $2`, 8, `topic ~ '^a(.*)$' AND id = $10`},
		"end of the string": {`SELECT $1, '$`, 1, `SELECT $2, '$`},
	} {
		check.Equal(t, name, renumber(tt.sql, tt.offset), tt.want)
	}
}

// TestSizeIsThatOfThePayloads: the group commit tells large statements by it.
func TestSizeIsThatOfThePayloads(t *testing.T) {
	t.Parallel()
	var c Conditional
	c.About(Write{Args: []any{"run", int64(1)}})
	c.Add(Write{Args: []any{make([]byte, 100), nil, 7}})
	c.Add(Write{Args: []any{[][]byte{make([]byte, 20), nil}, []string{"abc", "d"}}})
	check.Equal(t, "the size", c.Size(), 3+100+20+4)
}

// TestQueueLockedWritesInOrder: the run, the writes, and what needs the lock, without the conditions.
func TestQueueLockedWritesInOrder(t *testing.T) {
	t.Parallel()
	var c Conditional
	c.Require(`false`)
	c.Add(Write{SQL: `UPDATE steps`, If: `false`})
	if c.NeedsLock() {
		t.Error("a statement without UnderLock needs the lock")
	}
	c.UnderLock(func(b *pgx.Batch) { b.Queue(`UPDATE hooks`) })
	if !c.NeedsLock() {
		t.Error("a statement with UnderLock does not need the lock")
	}
	c.Add(Write{SQL: `UPDATE waits`})
	queued := func() (list []string) {
		var b pgx.Batch
		c.QueueLocked(&b)
		for _, q := range b.QueuedQueries {
			list = append(list, q.SQL)
		}
		return list
	}
	rows := []string{`UPDATE steps`, `UPDATE waits`, `UPDATE hooks`}
	if got := queued(); !slices.Equal(got, rows) {
		t.Errorf("got %q about no run, want %q", got, rows)
	}
	c.About(Write{SQL: `INSERT INTO runs`, Rest: ` ON CONFLICT DO NOTHING`})
	if got, want := queued(), append([]string{`INSERT INTO runs`}, rows...); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
