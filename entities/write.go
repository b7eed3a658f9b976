package entities

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
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
	if w.What == "" {
		b.Queue(w.SQL+w.Rest, w.Args...)
		return
	}
	oneRow(b.Batch, w.What, w.SQL+w.Rest, w.Args...)
}

// Chain is writes that are one statement, and happen all or not at all: they do if the run is as it was believed to be.
// It is if its log is as long, for its rows are the fold of its log. So what was decided from belief is as good as what
// was decided under the lock. All writes see the tables as they were before: no two may be about one row.
type Chain struct {
	run    Write
	writes []Write
}

// NewChain begins a chain with the write that makes a run that is like before one that is like after. Before is nil
// when there is to be no run of this ID.
func NewChain(before, after *Run) *Chain {
	if before == nil {
		w := insertRun(after)
		w.Rest = ` ON CONFLICT DO NOTHING`
		return &Chain{run: w}
	}
	w := updateRun(after)
	w.SQL += ` AND id = (SELECT id FROM runs WHERE id = $1 AND last_seq = ` + (*arguments)(&w.Args).add(before.LastSeq) +
		` FOR NO KEY UPDATE SKIP LOCKED)`
	return &Chain{run: w}
}

// Add implements [Writer].
func (c *Chain) Add(w Write) { c.writes = append(c.writes, w) }

// Execute executes the chain and reports whether it wrote: false means that the run is not as it was believed to be, or
// that somebody has locked it.
func (c *Chain) Execute(ctx context.Context, q Querier) (bool, error) {
	sql, args := c.statement()
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return false, fmt.Errorf("write: %w", err)
	}
	written, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	if err != nil {
		return false, fmt.Errorf("write: %w", err)
	}
	return written, nil
}

// Queue is [Chain.Execute] as a part of a batch.
func (c *Chain) Queue(b *pgx.Batch, written *bool) {
	sql, args := c.statement()
	b.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(written) })
}

// statement is the chain as SQL. The write of the run comes first, as all others ask whether it has happened.
func (c *Chain) statement() (string, []any) {
	args := c.run.Args
	var writes strings.Builder
	conditions := ""
	for i, w := range c.writes {
		fmt.Fprintf(&writes, `, write_%d AS (%s AND EXISTS (SELECT FROM run)%s)`, i, shift(w.SQL, len(args)), w.Rest)
		if w.If != "" {
			conditions += ` AND ` + shift(w.If, len(args))
		}
		args = append(args, w.Args...)
	}
	return `WITH run AS (` + c.run.SQL + conditions + c.run.Rest + ` RETURNING id)` + writes.String() +
		` SELECT EXISTS (SELECT FROM run)`, args
}
