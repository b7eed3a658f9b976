package why

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/collection"
)

// CollectionFacts are what an explanation of a collection depends on.
type CollectionFacts struct {
	Collection collection.Collection
	// Work is the collection's work in the queue; nil if there is none.
	Work *TaskState
}

// ReadCollection reads the facts about the collection of a run. It fails with [collection.ErrNotFound].
func ReadCollection(
	ctx context.Context, q pg.Querier, project entities.Project, id entities.RunID,
) (f CollectionFacts, err error) {
	if f.Collection, err = collection.ByID(ctx, q, project, id); err != nil {
		return f, err
	}
	f.Work, err = readTask(ctx, q, project, message.WorkCollection, string(id))
	return f, err
}

// lateAfter is how long a run has been due when work that was not found is missing: before, the run may just start.
const lateAfter = time.Minute

// ExplainCollection returns why the run of a collection has not started at the time. It is pure.
func ExplainCollection(f CollectionFacts, now time.Time) []StartReason {
	c, w := f.Collection, f.Work
	list := w.reasons("starting its run")
	switch {
	case w == nil && now.Sub(c.DueAt) > lateAfter:
		list.add(StartReason{Kind: StartParked, Since: &c.DueAt},
			"the work that starts its run is missing: flush or drop it; the next start for it makes it anew")
	case w != nil && len(list) == 0 && c.Refusal != "":
		list.add(StartReason{Kind: StartRefused, Since: &c.DueAt, At: &w.DueAt, MessageID: w.ID},
			"its run could not be started: %s; it is tried again by itself", c.Refusal)
	}
	switch {
	case c.DueAt.After(now):
		list.add(StartReason{Kind: StartCollects, Since: &c.FirstAt, At: &c.DueAt},
			"it collects starts until %s, %d so far: wait, or flush it", c.DueAt.UTC().Format(time.RFC3339), c.Count)
	case len(list) == 0:
		list.add(StartReason{Kind: StartDue, Since: &c.DueAt}, "its run is due, and starts as soon as a server gets to it")
	}
	return list
}
