package live

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/pg"
)

// TestCursorIsBeforeWhatIsUnsent: a viewer that has not taken its update, because its deadline ended first, takes it
// then, and never a cursor behind it.
func TestCursorIsBeforeWhatIsUnsent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	slow, fast := f.join(t, Wants{Runs: all}), f.join(t, Wants{Runs: all})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 { // a select that is ready twice takes either
		id := f.start(t)
		until(t, fast, id, 1)
		n, ok, err := slow.Next(t.Context(), over)
		for early := n.Cursor; err == nil && !ok; { // it is sent after the other one
			if n, ok, err = slow.Next(t.Context(), over); ok && early.Compare(n.Cursor) >= 0 {
				t.Fatalf("the cursor was %s before the update of %s", early, n.Cursor)
			}
		}
		if err != nil || len(n.Runs) == 0 {
			t.Fatalf("got %+v, %v; want the run", n, err)
		}
	}
	if n, ok, err := slow.Next(t.Context(), over); ok || err != nil || n.Cursor.Compare(slow.Begin().Cursor) <= 0 {
		t.Errorf("without events: got %+v, %v, %v; want a later cursor than %s", n, ok, err, slow.Begin())
	}
}

// TestBlockedViewersReadAnew: while an open transaction of anybody in the cluster holds up more than one read returns,
// viewers are sent a reset.
func TestBlockedViewersReadAnew(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	id := f.start(t)
	open, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := open.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	const more = 1001
	if err := pg.InTx(t.Context(), f.pool, func(tx pgx.Tx) error { return add(t.Context(), tx, id, more) }); err != nil {
		t.Fatal(err)
	}
	v := f.join(t, Wants{Runs: all})
	f.start(t) // this event comes behind those that are read
	for !next(t, v).Reset {
	}
}
