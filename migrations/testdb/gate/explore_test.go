package gate_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// TestExploreFindsEveryOutcome: two transactions read and then write. The schedules that are left out, because they
// differ from others only in the order of statements that commute, have no outcome of their own.
func TestExploreFindsEveryOutcome(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		read  string    // of both
		write [2]string // with what was read
		want  map[string]bool
	}{
		"lost update": { // the rows are 0 and 0
			read: `SELECT v FROM rows WHERE id = 1`,
			write: [2]string{
				`UPDATE rows SET v = $1 + 1 WHERE id = 1`, `UPDATE rows SET v = $1 + 10 WHERE id = 1`,
			},
			// one after the other; and both read 0, then the one or the other is last
			want: map[string]bool{"11 0": true, "10 0": true, "1 0": true},
		},
		"write skew": {
			read: `SELECT sum(v) FROM rows`,
			write: [2]string{
				`UPDATE rows SET v = 1 WHERE id = 1 AND $1 = 0`, `UPDATE rows SET v = 1 WHERE id = 2 AND $1 = 0`,
			},
			want: map[string]bool{"1 0": true, "0 1": true, "1 1": true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, one, two := openRows(t)
			got := map[string]bool{}
			n := gate.Explore(t, one, two, func(s *gate.Schedule) {
				must(t, pool, `UPDATE rows SET v = 0`)
				s.Run(t,
					func() { readThenWrite(t, one.Pool, tt.read, tt.write[0]) },
					func() { readThenWrite(t, two.Pool, tt.read, tt.write[1]) })
				var a, b int
				if err := pool.QueryRow(t.Context(), `SELECT min(v) FILTER (WHERE id = 1), min(v) FILTER (WHERE id = 2) FROM rows`).
					Scan(&a, &b); err != nil {
					t.Fatal(err)
				}
				got[fmt.Sprint(a, b)] = true
			})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("outcomes of %d schedules (-want +got):\n%s", n, diff)
			}
			if all := 20; n >= all {
				t.Errorf("%d schedules, as many as there are ways to shuffle three statements with three others", n)
			}
		})
	}
}

// TestSerialFindsAnomalies: the schedules that Serial explores by default find a lost update and a write skew. It makes
// no difference which session comes first.
func TestSerialFindsAnomalies(t *testing.T) {
	t.Parallel()
	add := [2]string{`UPDATE rows SET v = $1 + 1 WHERE id = 1`, `UPDATE rows SET v = $1 + 10 WHERE id = 1`}
	mark := [2]string{`UPDATE rows SET v = 1 WHERE id = 1 AND $1 = 0`, `UPDATE rows SET v = 1 WHERE id = 2 AND $1 = 0`}
	for name, tt := range map[string]struct {
		read   string
		write  [2]string
		serial map[string]string
		found  bool
	}{
		"lost update": {`SELECT v FROM rows WHERE id = 1`, add, map[string]string{"11 0": "both"}, true},
		"write skew":  {`SELECT sum(v) FROM rows`, mark, map[string]string{"1 0": "A, B", "0 1": "B, A"}, true},
		"locks":       {`SELECT v FROM rows WHERE id = 1 FOR UPDATE`, add, map[string]string{"11 0": "both"}, false},
	} {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			t.Run(fmt.Sprint(name, order), func(t *testing.T) {
				t.Parallel()
				pool, one, two := openRows(t)
				tb := &failing{TB: t}
				done := make(chan struct{})
				go func() { // which Fatalf ends
					defer close(done)
					gate.Serial(tb, one, two, tt.serial, func(s *gate.Schedule) string {
						must(t, pool, `UPDATE rows SET v = 0`)
						s.Run(t,
							func() { readThenWrite(t, one.Pool, tt.read, tt.write[order[0]]) },
							func() { readThenWrite(t, two.Pool, tt.read, tt.write[order[1]]) })
						var state string
						if err := pool.QueryRow(t.Context(), `SELECT string_agg(v::text, ' ' ORDER BY id) FROM rows`).
							Scan(&state); err != nil {
							t.Error(err)
						}
						return state
					})
				}()
				<-done
				if (tb.fatal != "") != tt.found {
					t.Errorf("Serial says %q, want an error: %t", tb.fatal, tt.found)
				}
			})
		}
	}
}

// failing is a test that keeps what it fails with.
type failing struct {
	testing.TB

	fatal string
}

func (f *failing) Errorf(string, ...any) {}

func (f *failing) Fatalf(format string, args ...any) {
	f.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestExploreFindsEveryOrderOfWrites: writes do not commute, so none of their orders is left out.
func TestExploreFindsEveryOrderOfWrites(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	pool := openPool(t, dsn)
	must(t, pool, `CREATE TABLE log (id integer GENERATED ALWAYS AS IDENTITY, name text NOT NULL)`)
	one, two := gate.Open(t, dsn, pool, nil), gate.Open(t, dsn, pool, nil)
	got := map[string]bool{}
	gate.Explore(t, one, two, func(s *gate.Schedule) {
		must(t, pool, `DELETE FROM log`)
		write := func(pool *pgxpool.Pool, name string) {
			if _, err := pool.Exec(t.Context(), `INSERT INTO log (name) VALUES ($1)`, name); err != nil {
				t.Error(err)
			}
		}
		s.Run(t,
			func() { write(one.Pool, "A"); write(one.Pool, "a") },
			func() { write(two.Pool, "B"); write(two.Pool, "b") })
		var order string
		if err := pool.QueryRow(t.Context(), `SELECT string_agg(name, '' ORDER BY id) FROM log`).Scan(&order); err != nil {
			t.Fatal(err)
		}
		got[order] = true
	})
	want := map[string]bool{"AaBb": true, "ABab": true, "ABba": true, "BAab": true, "BAba": true, "BbAa": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
}

// TestExploreFindsEveryView: a session that reads twice sees what the other has committed until then.
func TestExploreFindsEveryView(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	pool := openPool(t, dsn)
	must(t, pool, `CREATE TABLE counter (n integer NOT NULL)`)
	must(t, pool, `INSERT INTO counter VALUES (0)`)
	one, two := gate.Open(t, dsn, pool, nil), gate.Open(t, dsn, pool, nil)
	got := map[[2]int]bool{}
	gate.Explore(t, one, two, func(s *gate.Schedule) {
		must(t, pool, `UPDATE counter SET n = 0`)
		var view [2]int
		s.Run(t,
			func() {
				for i := range view {
					if err := one.Pool.QueryRow(t.Context(), `SELECT n FROM counter`).Scan(&view[i]); err != nil {
						t.Error(err)
					}
				}
			},
			func() {
				for range 2 {
					if _, err := two.Pool.Exec(t.Context(), `UPDATE counter SET n = n + 1`); err != nil {
						t.Error(err)
					}
				}
			})
		got[view] = true
	})
	want := map[[2]int]bool{{0, 0}: true, {0, 1}: true, {0, 2}: true, {1, 1}: true, {1, 2}: true, {2, 2}: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("views (-want +got):\n%s", diff)
	}
}

// openRows makes a table with the rows 1 and 2, and two sessions.
func openRows(t *testing.T) (pool *pgxpool.Pool, one, two *gate.Session) {
	t.Helper()
	dsn := testdb.New(t)
	pool = openPool(t, dsn)
	must(t, pool, `CREATE TABLE rows (id integer PRIMARY KEY, v integer NOT NULL)`)
	must(t, pool, `INSERT INTO rows VALUES (1, 0), (2, 0)`)
	return pool, gate.Open(t, dsn, pool, nil), gate.Open(t, dsn, pool, nil)
}

func openPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := migrations.Pool(t.Context(), dsn, migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func must(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// readThenWrite may be called from any goroutine.
func readThenWrite(t *testing.T, pool *pgxpool.Pool, read, write string) {
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return readAndWrite(t.Context(), tx, read, write)
	})
	if err != nil {
		t.Error(err)
	}
}

func readAndWrite(ctx context.Context, tx pgx.Tx, read, write string) error {
	var v int
	if err := tx.QueryRow(ctx, read).Scan(&v); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, write, v)
	return err
}
