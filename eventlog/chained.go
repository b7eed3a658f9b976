package eventlog

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
)

// chained is a chain as a member of a group. It does not wait for the row of its run, nor fail because others do not
// write.
type chained struct {
	*entities.Chain

	run     entities.RunID
	written bool
}

// execute is [entities.Chain.Execute], as a member of the group.
func (g *Group) execute(ctx context.Context, id entities.RunID, c *entities.Chain) (bool, error) {
	m := &chained{Chain: c, run: id}
	if err := g.Do(ctx, m); err != nil {
		return false, err
	}
	return m.written, nil
}

// Rank implements [Member].
func (m *chained) Rank() Rank { return Rank{OfRun, string(m.run)} }

// Execute implements [Member].
func (m *chained) Execute(ctx context.Context, pool *pgxpool.Pool) (err error) {
	m.written, err = m.Chain.Execute(ctx, pool)
	return err
}

// Queue implements [Member].
func (m *chained) Queue(b *pgx.Batch) { m.Chain.Queue(b, &m.written) }
