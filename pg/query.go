package pg

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
)

// Querier executes a statement that returns rows. Pools, connections and transactions implement it.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Args collects the arguments of a statement that is put together from parts.
type Args []any

// Add appends an argument and returns its placeholder.
func (a *Args) Add(v any) string {
	*a = append(*a, v)
	return "$" + strconv.Itoa(len(*a))
}

// CollectAll collects the rows of a query, and opens the payloads that they have (package atrest). It takes the results
// of Query as they are: CollectAll[T](q.Query(…)).
func CollectAll[T any](rows pgx.Rows, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return collect[T](rows)
}

// CollectOne collects the only row of a query, and fails with the error missing if the query has no row. It takes the
// results of Query as they are.
func CollectOne[T any](rows pgx.Rows, err, missing error) (T, error) {
	if err != nil {
		var zero T
		return zero, err
	}
	codec := CodecOf(rows)
	item, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
	if errors.Is(err, pgx.ErrNoRows) {
		return item, missing
	}
	if row, ok := any(&item).(atrest.Row); ok && err == nil {
		err = Open(codec, row)
	}
	return item, err
}

// CollectColumn collects the rows of a query for one column. It takes the results of Query as they are.
func CollectColumn[T any](rows pgx.Rows, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// CollectValue returns the only value of the only row of a query. It takes the results of Query as they are.
func CollectValue[T any](rows pgx.Rows, err error) (T, error) {
	if err != nil {
		var zero T
		return zero, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
}

// Wrap returns the error with what failed, made from the format, before it; nil if there is no error.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// LoadInto queues a query for at most one row and makes *into point to it. Without a row, *into stays as it is.
func LoadInto[T any](b *pgx.Batch, into **T, sql string, args ...any) {
	LoadEach(b, func(item T) { *into = &item }, sql, args...)
}

// LoadUnopened is [LoadInto] for a row with payloads, which the function that it returns opens. That is called once the
// connection is given back: payloads outside of the database are read slowly.
func LoadUnopened[T any, P interface {
	*T
	atrest.Row
}](b *pgx.Batch, into *P, sql string, args ...any) (open func() error) {
	var codec atrest.Codec
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		codec = CodecOf(rows)
		items, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
		for i := range items {
			*into = &items[i]
		}
		return err
	})
	return func() error {
		var o atrest.Opener
		if *into != nil {
			(*into).Payloads(&o)
		}
		return o.Open(codec) //nolint:wrapcheck // its errors say what failed
	}
}

// LoadEach queues a query and calls take with each of its rows.
func LoadEach[T any](b *pgx.Batch, take func(T), sql string, args ...any) {
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		items, err := collect[T](rows)
		for _, item := range items {
			take(item)
		}
		return err
	})
}

// LoadOf is [LoadEach] for those rows of a run that have one of the IDs. The SQL takes the run's ID as $1 and ends with
// the name of the column that is compared with the IDs.
//
// A single ID, which is the usual case, is compared with =.
func LoadOf[T, ID any](b *pgx.Batch, take func(T), sql string, runID entities.RunID, ids []ID) {
	if len(ids) == 1 {
		LoadEach(b, take, sql+` = $2`, runID, ids[0])
		return
	}
	LoadEach(b, take, `SELECT found.* FROM unnest($2::text[]) AS n (id), LATERAL (`+sql+OneByOne+`) AS found`, runID, ids)
}

// OneByOne compares the ID of an entity with n.id, at the end of a subquery that is to find each by itself: with = ANY
// or a join, Postgres may read all entities of the run. The order has it use the index on the ID, even if it made the
// plan while there were no entities, and other indexes looked as good.
const OneByOne = ` BETWEEN n.id AND n.id ORDER BY id LIMIT 1`

// QueueOne queues a statement that fails unless it changes exactly one row; what names it in the error.
func QueueOne(b *pgx.Batch, what, sql string, args ...any) { queueRows(b, what, 1, sql, args...) }

// queueRows queues a statement that fails unless it changes as many rows as wanted.
func queueRows(b *pgx.Batch, what string, want int, sql string, args ...any) {
	b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		if n := tag.RowsAffected(); n != int64(want) {
			return fmt.Errorf("%s: %d rows changed, want %d", what, n, want)
		}
		return nil
	})
}
