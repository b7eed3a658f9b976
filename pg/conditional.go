package pg

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities/atrest"
)

// Conditional is a compare-and-set on a run: all its writes in one statement, which applies as a whole or not at all.
// It applies if the run is unchanged since it was read and if everything else it requires holds. The run is unchanged
// if its log is as long as it was (last_seq), because all rows of a run are the fold of its log (I2). So a decision
// that was made from cached rows is as good as one that was made under the lock.
//
// The write of the run's row, set by [Conditional.About], carries the conditions. Every other write depends on it:
//
//	WITH run AS (
//		UPDATE runs SET last_seq = $2, … WHERE id = $1
//			AND id = (SELECT id FROM runs WHERE id = $1 AND last_seq = $3 FOR NO KEY UPDATE SKIP LOCKED)
//			AND NOT EXISTS (SELECT FROM steps WHERE run_id = $4 AND id = $5) -- If of the insertion below
//		RETURNING id
//	), write_0 AS (
//		INSERT INTO steps (…) SELECT $4::text, $5::text, … WHERE true AND EXISTS (SELECT FROM run)
//	)
//	SELECT true FROM run
//
// The statement returns a row if and only if it applied. It never waits for the run's row: SKIP LOCKED makes it not
// apply when another transaction has locked the run, and the caller then falls back to a transaction that waits.
//
// All parts of a statement see the tables as they were before it. So no two writes may be about the same row.
//
// As a [Statement] of a group it does not wait for the row of its run, and does not fail the others when it does not
// apply.
type Conditional struct {
	run    Write // the write of the run's row; its first argument is the run's ID
	writes []Write
	// required holds conditions without a write.
	required []Write
	// locked says that a condition needs the run locked by a statement before this one.
	locked bool
	// earlier are executed before the statement, in its transaction.
	earlier []Write
	// underLock are what [Conditional.UnderLock] adds.
	underLock []func(*pgx.Batch)
	// applied says whether the last execution has applied.
	applied bool
}

// About sets the write of the run's row, on which all other writes depend: they apply only if it changes the row. Its
// first argument must be the run's ID.
func (c *Conditional) About(w Write) { c.run = w }

// Require adds a condition on the tables as they are before the writes. A condition on rows that can change while the
// log stays as long as it is must lock the rows it finds (FOR SHARE, for example): Postgres then checks it against
// their newest version instead of the statement's snapshot.
func (c *Conditional) Require(condition string, args ...any) {
	c.required = append(c.required, Write{If: condition, Args: args})
}

// RequireLocked is [Conditional.Require] for the absence of rows that others insert under a shared lock on the run,
// without adding to its log; see RequireNoOpenChild in package store. Rows that are not there cannot be locked. So a
// statement of its own locks the run first. The statement that writes comes after it and has a newer snapshot, which
// sees all rows inserted until then, and the lock keeps further ones out until the commit.
func (c *Conditional) RequireLocked(condition string, args ...any) {
	c.locked = true
	c.Require(condition, args...)
}

// Earlier adds a statement that is executed before the others, in the same transaction. It must wait for no lock. What
// it locks is locked when the conditions are checked, and their snapshot is newer: they see what those committed who
// had the lock before. A setting that ends with the transaction can tell them whether it obtained the lock.
func (c *Conditional) Earlier(sql string, args ...any) {
	c.earlier = append(c.earlier, Write{SQL: sql, Args: args})
}

// UnderLock adds what only a transaction can do that holds the lock on the run: [Conditional.QueueLocked] has it queued
// after the writes.
func (c *Conditional) UnderLock(queue func(*pgx.Batch)) { c.underLock = append(c.underLock, queue) }

// NeedsLock reports whether [Conditional.UnderLock] has added something: then the statement must not be executed by
// itself.
func (c *Conditional) NeedsLock() bool { return len(c.underLock) > 0 }

// Add implements [Writer].
func (c *Conditional) Add(w Write) { c.writes = append(c.writes, w) }

// Order implements [Statement].
func (c *Conditional) Order() LockOrder { return LockOrder{LockRun, fmt.Sprint(c.run.Args[0])} }

// Size implements [Statement].
func (c *Conditional) Size() int {
	n := 0
	for _, w := range c.writes {
		n += sizeOf(w.Args)
	}
	return n + sizeOf(c.run.Args)
}

// sizeOf returns how many bytes of payloads arguments have: of texts, byte strings and lists of these.
func sizeOf(args []any) (n int) {
	for _, arg := range args {
		switch v := arg.(type) {
		case []byte:
			n += len(v)
		case string:
			n += len(v)
		case [][]byte:
			for _, item := range v {
				n += len(item)
			}
		case atrest.Payload:
			n += len(v.Bytes)
		case []atrest.Payload:
			for _, item := range v {
				n += len(item.Bytes)
			}
		case []string:
			for _, item := range v {
				n += len(item)
			}
		}
	}
	return n
}

// Execute implements [Statement].
func (c *Conditional) Execute(ctx context.Context, pool *pgxpool.Pool) error {
	if c.locked || len(c.earlier) > 0 {
		var b pgx.Batch
		c.Queue(&b)
		return Wrap(pool.SendBatch(ctx, &b).Close(), "write")
	}
	sql, args := c.statement() // cheaper than a batch of one
	rows, err := pool.Query(ctx, sql, args...)
	if err == nil {
		err = c.read(rows)
	}
	return Wrap(err, "write")
}

// Queue implements [Statement]; all that it queues must be sent in one transaction. That the statement does not apply
// means that the run has changed, that another transaction has locked it, or that a requirement does not hold. This is
// not an error, and the transaction can go on.
func (c *Conditional) Queue(b *pgx.Batch) {
	for _, w := range c.earlier {
		b.Queue(w.SQL, w.Args...)
	}
	if c.locked {
		// The setting, which ends with the transaction, tells the next statement whether the lock was obtained.
		b.Queue(`
			SELECT set_config('stepwell.locked', id, true)
			FROM (SELECT id FROM runs WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED) AS locked`, c.run.Args[0])
	}
	sql, args := c.statement()
	b.Queue(sql, args...).Query(c.read)
}

// read reads the result, which has no row if the statement did not apply, and otherwise one for each row of the write
// that may have several.
func (c *Conditional) read(rows pgx.Rows) error {
	into, each := []any{&c.applied}, func() {}
	for _, w := range c.writes {
		into = append(into, w.Into...)
		if w.Each != nil {
			each = w.Each
		}
	}
	c.applied = false
	codec := CodecOf(rows)
	_, err := pgx.ForEachRow(rows, into, func() error { each(); return nil })
	for _, w := range c.writes {
		if w.Opens != nil && c.applied && err == nil {
			err = Open(codec, w.Opens)
		}
	}
	return err //nolint:wrapcheck // Execute wraps it
}

// QueueLocked queues the writes as single statements, for a transaction that holds the lock on the run and has checked
// what they depend on. Nobody else can change that, so they need no condition: requirements are left out. A conflict on
// the run's row is an error of the transaction. The run's row is not written if nothing is [Conditional.About] it.
//
// It exists because Postgres would have to plan one statement anew for each combination of writes, while single ones
// are prepared once per connection.
func (c *Conditional) QueueLocked(b *pgx.Batch) {
	run := c.run
	run.Rest = "" // without ON CONFLICT DO NOTHING
	w := Batch{b}
	if run.SQL != "" {
		w.Add(run)
	}
	for _, write := range c.writes {
		w.Add(write)
	}
	for _, queue := range c.underLock {
		queue(b)
	}
}

// statement renders the SQL that is shown with [Conditional], and its arguments.
func (c *Conditional) statement() (string, []any) {
	size, number := c.extent()
	args := append(make([]any, 0, number), c.run.Args...)
	var sql strings.Builder
	sql.Grow(size)
	sql.WriteString(`WITH run AS (` + c.run.SQL)
	if c.locked {
		sql.WriteString(` AND current_setting('stepwell.locked', true) = $1`)
	}
	for _, r := range c.required {
		sql.WriteString(` AND ` + renumberParameters(r.If, len(args)))
		args = append(args, r.Args...)
	}
	before := len(args)
	for _, w := range c.writes {
		if w.If != "" {
			sql.WriteString(` AND ` + renumberParameters(w.If, len(args)))
		}
		args = append(args, w.Args...)
	}
	sql.WriteString(c.run.Rest + ` RETURNING id)`)
	returned, from := "", ""
	for i, w := range c.writes {
		name := `write_` + strconv.Itoa(i)
		sql.WriteString(`, ` + name + ` AS (`)
		sql.WriteString(renumberParameters(w.SQL, before))
		sql.WriteString(` AND EXISTS (SELECT FROM run)`)
		sql.WriteString(renumberParameters(w.Rest, before))
		if w.Returning != "" {
			sql.WriteString(` RETURNING ` + renumberParameters(w.Returning, before))
			returned += `, ` + name + `.*`
			from += `, ` + name
		}
		sql.WriteByte(')')
		before += len(w.Args)
	}
	sql.WriteString(` SELECT true` + returned + ` FROM run` + from)
	return sql.String(), args
}

// extent returns about how many bytes the statement has, and how many arguments.
func (c *Conditional) extent() (size, arguments int) {
	const around = 64 // what is written around a part, and the longer numbers of its parameters
	size, arguments = around+len(c.run.SQL)+len(c.run.Rest), len(c.run.Args)
	for _, parts := range [][]Write{c.required, c.writes} {
		for _, w := range parts {
			size += around + len(w.SQL) + len(w.Rest) + len(w.Returning) + len(w.If)
			arguments += len(w.Args)
		}
	}
	return size, arguments
}

// renumbered caches the results of [renumberParameters]. It needs no bound: SQL contains no values, so there are only
// as many entries as pairs of a write and a number of parameters before it.
var renumbered sync.Map // of offsetSQL to string

// offsetSQL is SQL, and how many parameters precede its own.
type offsetSQL struct {
	sql    string
	offset int
}

// renumberParameters returns the SQL with offset added to the number of each parameter, so that $1 becomes $(offset+1).
// A $ without a number, such as one in a pattern, stays as it is.
func renumberParameters(sql string, offset int) string {
	key := offsetSQL{sql, offset}
	if made, ok := renumbered.Load(key); ok {
		return made.(string)
	}
	made, _ := renumbered.LoadOrStore(key, renumber(sql, offset))
	return made.(string)
}

func renumber(sql string, offset int) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(sql, "$")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		b.WriteByte('$')
		sql = strings.TrimLeft(after, "0123456789")
		if number, err := strconv.Atoi(after[:len(after)-len(sql)]); err == nil {
			b.WriteString(strconv.Itoa(number + offset))
		}
	}
}
