package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Write is a statement that writes rows of a run as part of an append.
type Write struct {
	// What it does, for the error when it does not change exactly one row; empty if it may change any number.
	What string
	// SQL ends in a condition, so that others can be added to it; Rest is what comes after all of them. Parameters have
	// types, or get them from columns; those for a column of a domain have types, or they would be of the domain, which
	// the driver does not know.
	SQL  string
	Rest string
	Args []any
	// Returning are expressions on the one row that it writes, with names, and Into where their values go; empty if
	// nobody wants to know.
	Returning string
	Into      []any
	// If is a condition on the tables as they are before, with the same parameters, without which the write would be
	// wrong; empty for none.
	If string
}

// Writer takes writes: a [Batch] or a [Chain].
type Writer interface {
	Add(w Write)
}

// Batch executes writes one after the other, under the lock of their run.
type Batch struct{ *pgx.Batch }

// Add implements [Writer].
func (b Batch) Add(w Write) {
	switch {
	case w.Returning != "":
		b.Queue(w.SQL+w.Rest+` RETURNING `+w.Returning, w.Args...).QueryRow(func(row pgx.Row) error {
			if err := row.Scan(w.Into...); err != nil {
				return fmt.Errorf("%s: %w", w.What, err)
			}
			return nil
		})
	case w.What == "":
		b.Queue(w.SQL+w.Rest, w.Args...)
	default:
		QueueOne(b.Batch, w.What, w.SQL+w.Rest, w.Args...)
	}
}

// Chain is writes that are one statement, and happen all or not at all: they do if the run is as it was believed to be,
// and whatever else they require is so. The run is if its log is as long, for its rows are the fold of its log. So what
// was decided from belief is as good as what was decided under the lock. All writes see the tables as they were before:
// no two may be about one row.
type Conditional struct {
	run    Write // whose first argument is the run's ID
	writes []Write
	// required are conditions alone.
	required []Write
	// held says that some of them are for the holder of the run.
	locked bool
}

// About sets the write of the run's row, on which all others depend: nothing else is written unless it changes the row.
// Its first argument is the run's ID.
func (c *Conditional) About(w Write) { c.run = w }

// Require adds a condition on the tables as they are before, without which nothing is written. Of rows that others may
// change without the log growing, it is to lock those that it finds: then it is asked of them as they are by now.
func (c *Conditional) Require(condition string, args ...any) {
	c.required = append(c.required, Write{If: condition, Args: args})
}

// RequireHeld is [Chain.Require] for rows that others add while they hold the run, though the log does not grow. The
// run is locked by a statement of its own before: so the condition sees all that were added, and nobody adds any more.
func (c *Conditional) RequireLocked(condition string, args ...any) {
	c.locked = true
	c.Require(condition, args...)
}

// Add implements [Writer].
func (c *Conditional) Add(w Write) { c.writes = append(c.writes, w) }

// Execute executes the chain as a transaction of its own, and reports whether it wrote; see [Chain.Queue].
func (c *Conditional) Execute(ctx context.Context, pool *pgxpool.Pool) (written bool, err error) {
	if c.locked {
		var b pgx.Batch
		c.Queue(&b, &written)
		err = pool.SendBatch(ctx, &b).Close()
	} else { // which takes less for one statement
		sql, args := c.statement()
		err = pool.QueryRow(ctx, sql, args...).Scan(c.into(&written)...)
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("write: %w", err)
	}
	return written, nil
}

// Queue queues the chain, whose statements must be of one transaction, and tells whether it wrote: false means that the
// run is not as it was believed to be, that somebody has locked it, or that something else which is required is not so.
func (c *Conditional) Queue(b *pgx.Batch, written *bool) {
	if c.locked {
		b.Queue(`
			SELECT set_config('stepwell.held', id, true)
			FROM (SELECT id FROM runs WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED) AS held`, c.run.Args[0])
	}
	sql, args := c.statement()
	b.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
		*written = false
		err := row.Scan(c.into(written)...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
}

// QueueLocked queues the writes one by one, for a transaction that holds the lock on the run: nobody else can change what
// the statement depends on. It must have no requirements. A conflict on the run's row is an error of the transaction.
//
// One statement for all writes would be planned anew for each combination of them; single ones are prepared once.
func (c *Conditional) QueueLocked(b *pgx.Batch) {
	run := c.run
	run.Rest = ""
	w := Batch{b}
	w.Add(run)
	for _, write := range c.writes {
		w.Add(write)
	}
}

// into is where the row goes that the statement returns if it wrote.
func (c *Conditional) into(written *bool) []any {
	into := []any{written}
	for _, w := range c.writes {
		into = append(into, w.Into...)
	}
	return into
}

// statement is the chain as SQL. The write of the run comes first, as all others ask whether it has happened.
func (c *Conditional) statement() (string, []any) {
	args := c.run.Args
	var writes, returned strings.Builder
	conditions, from := "", ""
	if c.locked {
		conditions = ` AND current_setting('stepwell.held', true) = $1`
	}
	for _, r := range c.required {
		conditions += ` AND ` + renumberParameters(r.If, len(args))
		args = append(args, r.Args...)
	}
	for i, w := range c.writes {
		fmt.Fprintf(&writes, `, write_%d AS (%s AND EXISTS (SELECT FROM run)%s`, i, renumberParameters(w.SQL, len(args)),
			renumberParameters(w.Rest, len(args)))
		if w.Returning != "" {
			writes.WriteString(` RETURNING ` + renumberParameters(w.Returning, len(args)))
			fmt.Fprintf(&returned, `, write_%d.*`, i)
			from += fmt.Sprintf(`, write_%d`, i)
		}
		writes.WriteByte(')')
		if w.If != "" {
			conditions += ` AND ` + renumberParameters(w.If, len(args))
		}
		args = append(args, w.Args...)
	}
	return `WITH run AS (` + c.run.SQL + conditions + c.run.Rest + ` RETURNING id)` + writes.String() +
		` SELECT true` + returned.String() + ` FROM run` + from, args
}
