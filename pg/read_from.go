package pg

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// readsFrom is the key of the pool that reads instead of others.
type readsFrom struct{}

// ReadFrom returns a context in which every [Pool] reads from the given one: its method Query and those that are made
// of it, and Run and Snapshot. It is for work that only reads, all of it from the same copy of the database. The given
// pool must be unable to write.
func ReadFrom(ctx context.Context, pool *pgxpool.Pool) context.Context {
	return context.WithValue(ctx, readsFrom{}, pool)
}

// in returns the pool for what is read in the context.
func (p Pool) in(ctx context.Context) Pool {
	if other, ok := ctx.Value(readsFrom{}).(*pgxpool.Pool); ok {
		return Pool{other}
	}
	return p
}
