package eventlog

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestInTxRetries(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err   error
		tries int
	}{
		"none":                      {nil, 1},
		"a deadlock":                {&pgconn.PgError{Code: "40P01"}, 5},
		"a serialization failure":   {&pgconn.PgError{Code: "40001"}, 5},
		"a deadlock, wrapped":       {fmt.Errorf("write run: %w", &pgconn.PgError{Code: "40P01"}), 5},
		"a lost race for a run":     {&pgconn.PgError{Code: "23505", ConstraintName: "runs_pkey"}, 5},
		"another duplicate":         {&pgconn.PgError{Code: "23505", ConstraintName: "steps_pkey"}, 1},
		"a check":                   {&pgconn.PgError{Code: "23514"}, 1},
		"an error of the caller":    {entities.ErrConflict, 1},
		"a context that has ended":  {context.Canceled, 1},
		"an error of the transport": {errors.New("connection reset"), 1},
	}
	pool := newFixture(t).pool
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			err := pg.InTx(t.Context(), pool, func(pgx.Tx) error {
				tries++
				return test.err
			})
			if !errors.Is(err, test.err) || tries != test.tries {
				t.Errorf("got error %v after %d tries, want %v after %d", err, tries, test.err, test.tries)
			}
		})
	}
}

func TestInTxRollsBack(t *testing.T) {
	t.Parallel()
	pool := newFixture(t).pool
	if _, err := pool.Exec(t.Context(), `CREATE TABLE notes (note text)`); err != nil {
		t.Fatal(err)
	}
	note := func(ctx context.Context, tx pgx.Tx, text string) {
		t.Helper()
		if _, err := tx.Exec(ctx, `INSERT INTO notes VALUES ($1)`, text); err != nil {
			t.Error(err)
		}
	}
	t.Run("on an error", func(t *testing.T) {
		err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			note(t.Context(), tx, "error")
			return errBroken
		})
		if !errors.Is(err, errBroken) {
			t.Errorf("got error %v, want that of the function", err)
		}
	})
	t.Run("on a panic", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			note(t.Context(), tx, "panic")
			panic("oh")
		})
	})
	t.Run("when the caller has cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := pg.InTx(ctx, pool, func(tx pgx.Tx) error {
			note(ctx, tx, "gone")
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want that of the context", err)
		}
	})
	t.Run("after each failed try", func(t *testing.T) {
		tries := 0
		if err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			tries++
			note(t.Context(), tx, fmt.Sprint("try ", tries))
			if tries < 3 {
				return &pgconn.PgError{Code: "40P01"}
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	rows, _ := pool.Query(t.Context(), `SELECT note FROM notes`)
	notes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"try 3"}, notes); diff != "" {
		t.Errorf("committed rows differ (-want +got):\n%s", diff)
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were not released", n)
	}
}

func TestCancelledInTxKeepsConnection(t *testing.T) {
	t.Parallel()
	pool := newFixture(t).pool
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := pool.Stat().NewConnsCount()
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		err := pg.InTx(ctx, pool, func(pgx.Tx) error {
			cancel()
			return errBroken
		})
		if !errors.Is(err, errBroken) {
			t.Errorf("got error %v, want that of the function", err)
		}
	}
	if got := pool.Stat().NewConnsCount() - before; got != 0 {
		t.Errorf("%d connections were opened anew", got)
	}
}

func TestDeadlockIsRetried(t *testing.T) {
	t.Parallel()
	pool := newFixture(t).pool
	if _, err := pool.Exec(t.Context(), `SELECT 1 AS n INTO locks; INSERT INTO locks VALUES (2)`); err != nil {
		t.Fatal(err)
	}
	lock := func(tx pgx.Tx, n int) error {
		_, err := tx.Exec(t.Context(), `SELECT FROM locks WHERE n = $1 FOR UPDATE`, n)
		return err
	}
	holding := []chan struct{}{make(chan struct{}), make(chan struct{})}
	tries := make([]int, 2)
	errs := make(chan error, 2)
	for i := range 2 {
		go func() {
			errs <- pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				tries[i]++
				if err := lock(tx, i+1); err != nil {
					return err
				}
				if tries[i] == 1 { // both hold their first lock before either waits for its second
					close(holding[i])
					<-holding[1-i]
				}
				return lock(tx, 2-i)
			})
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := tries[0] + tries[1]; got < 3 {
		t.Errorf("%d tries, want 3 or more: one of the two was rolled back", got)
	}
}

func TestAppendIsRetried(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deadlock := &pgconn.PgError{Code: "40P01"}
	t.Run("after a deadlock in the queue", func(t *testing.T) {
		t.Parallel()
		id := f.run(t)
		calls, committed := 0, 0
		log := f.with(queueFunc(func(context.Context, pgx.Tx, *pgx.Batch, []message.Message) (func(error), error) {
			if calls++; calls < 3 {
				return nil, deadlock
			}
			return func(error) { committed++ }, nil
		}))
		r := onRun(id, "run_started")
		r.Messages = messages
		if _, err := log.Append(t.Context(), home, r); err != nil {
			t.Fatal(err)
		}
		if calls != 3 || committed != 1 {
			t.Errorf("the queue was called %d times and notified of the commit %d times, want 3 and 1", calls, committed)
		}
		if diff := cmp.Diff([]entities.EventType{"run_created", "run_started"}, f.types(t, id)); diff != "" {
			t.Errorf("log differs (-want +got):\n%s", diff)
		}
	})
	t.Run("and finds a repeat", func(t *testing.T) {
		t.Parallel()
		id := f.run(t)
		log := f.with(queueFunc(func(_ context.Context, tx pgx.Tx, _ *pgx.Batch, _ []message.Message) (func(error), error) {
			// Another client is faster: release the run for it.
			if err := tx.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
			f.must(t, onRun(id, "run_started"))
			return nil, deadlock
		}))
		r := onRun(id, "run_started")
		r.Messages = messages
		result, err := log.Append(t.Context(), home, r)
		if err != nil || !result.Repeated || result.Run.Status != entities.RunRunning {
			t.Errorf("got %+v and error %v, want a running run and nothing appended", result, err)
		}
	})
	t.Run("but not forever", func(t *testing.T) {
		t.Parallel()
		id := f.run(t)
		log := f.with(queueFunc(func(context.Context, pgx.Tx, *pgx.Batch, []message.Message) (func(error), error) {
			return nil, deadlock
		}))
		r := onRun(id, "run_started")
		r.Messages = messages
		if _, err := log.Append(t.Context(), home, r); !errors.Is(err, deadlock) {
			t.Errorf("got error %v, want the deadlock", err)
		}
		if got := len(f.events(t, id)); got != 1 {
			t.Errorf("the log has %d events, want 1", got)
		}
	})
}

func TestCancelledAppendWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Append(ctx, home, onRun(id, "run_started")); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want that of the context", err)
	}
	if got := len(f.events(t, id)); got != 1 {
		t.Errorf("the log has %d events, want 1", got)
	}
}
