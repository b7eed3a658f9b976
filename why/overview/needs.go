package overview

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/why"
)

// counted are the runs of a project by need.
type counted struct {
	counts map[why.Need]store.RunCount
	at     time.Time
}

// Needs counts the project's runs by what they need as [why.CountNeeds] does, and returns the time at which that was
// read, up to 5 s ago. The caller must not change the counts.
func (r *Reader) Needs(ctx context.Context, project entities.Project) (map[why.Need]store.RunCount, time.Time, error) {
	c, err := r.needs.Get(ctx, project, func() (counted, error) {
		at := r.now()
		counts, err := why.CountNeeds(ctx, r.pool.Pool, project)
		return counted{counts, at}, err
	})
	return c.counts, c.at, err
}
