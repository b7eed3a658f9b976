package pg

import (
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities/atrest"
)

// Write is one statement that writes rows of a run as part of an append. It comes in parts, so that a [Conditional]
// can add conditions to it and number its parameters anew.
type Write struct {
	// What names the write in the error that it causes unless it changes Rows rows, or one if that is 0, such as
	// "insert step". A write without a name may change any number of rows.
	What string
	Rows int
	// SQL is the statement up to and including its WHERE clause: an INSERT is therefore written as
	// INSERT … SELECT … WHERE true. Parameters need a type, by a cast or by the column that they are compared with or
	// assigned to. Parameters for a column of a domain need a cast: they would otherwise be of the domain, which the
	// driver does not know.
	SQL string
	// Rest is the part that follows the WHERE clause, such as ON CONFLICT.
	Rest string
	Args []any
	// Returning lists expressions on the row written, each with a name; their values are scanned into Into. Both are empty
	// if the caller needs no values. If the write may write several rows, Each is called after each is scanned; of the
	// writes of a [Conditional], one may have it.
	Returning string
	Into      []any
	Each      func()
	// Opens has the payloads that are scanned into Into; nil if there are none.
	Opens atrest.Row
	// If is a condition on the tables as they are before any write; it uses the write's own parameters. Without it the
	// write would be wrong, as with a step that exists already. Only a [Conditional] checks it: under the lock of the
	// run, the decision was made from the same rows. Empty for none.
	If string
}

// Writer collects writes: a [Batch] or a [Conditional].
type Writer interface {
	Add(w Write)
}

// Batch queues each write as a statement of its own. The transaction that sends it must hold the lock on the run's row.
type Batch struct{ *pgx.Batch }

// Add implements [Writer].
func (b Batch) Add(w Write) {
	switch {
	case w.Each != nil:
		b.Queue(w.SQL+w.Rest+` RETURNING `+w.Returning, w.Args...).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, w.Into, func() error { w.Each(); return nil })
			return Wrap(err, "%s", w.What)
		})
	case w.Returning != "":
		b.Queue(w.SQL+w.Rest+` RETURNING `+w.Returning, w.Args...).Query(func(rows pgx.Rows) error {
			codec := CodecOf(rows)
			_, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (any, error) {
				return nil, row.Scan(w.Into...)
			})
			if err == nil && w.Opens != nil {
				err = Open(codec, w.Opens)
			}
			return Wrap(err, "%s", w.What)
		})
	case w.What == "":
		b.Queue(w.SQL+w.Rest, w.Args...)
	default:
		queueRows(b.Batch, w.What, max(1, w.Rows), w.SQL+w.Rest, w.Args...)
	}
}
