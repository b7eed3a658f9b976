package why

import (
	"context"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/collection"
)

// CollectionKind is a kind of reason why the run of a collection has not started.
type CollectionKind string

// The kinds, ordered by how much they need a person.
const (
	// CollectionParked: starting the run failed so often that it is not tried again until somebody retries it. Without a
	// message, the work is missing.
	CollectionParked CollectionKind = "parked"
	// CollectionFails: starting the run failed, and is tried again.
	CollectionFails CollectionKind = "task_fails"
	// CollectionRefused: the run may not start now. It is tried again.
	CollectionRefused CollectionKind = "refused"
	// CollectionDue: the run starts as soon as a server gets to it.
	CollectionDue CollectionKind = "due"
	// CollectionOpen: further starts are awaited.
	CollectionOpen CollectionKind = "collecting"
)

// CollectionReason is one reason why the run of a collection has not started.
type CollectionReason struct {
	Kind CollectionKind
	// Text says it in a sentence, with what ends it.
	Text string
	// Since is when it began, and At when it ends, or is tried again, by itself; nil if that is unknown.
	Since, At *time.Time
	// MessageID is the collection's work in the queue.
	MessageID string
}

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
func ExplainCollection(f CollectionFacts, now time.Time) []CollectionReason {
	var list []CollectionReason
	add := func(r CollectionReason, format string, args ...any) {
		r.Text = fmt.Sprintf(format, args...)
		list = append(list, r)
	}
	c, w := f.Collection, f.Work
	switch {
	case w == nil && now.Sub(c.DueAt) > lateAfter:
		add(CollectionReason{Kind: CollectionParked, Since: &c.DueAt},
			"the work that starts its run is missing: flush or drop it; the next start for it makes it anew")
	case w != nil && w.ParkedAt != nil:
		add(CollectionReason{Kind: CollectionParked, Since: w.ParkedAt, MessageID: w.ID},
			"starting its run failed too often: retry message %s", w.ID)
	case w != nil && w.LastError != "":
		add(CollectionReason{Kind: CollectionFails, At: &w.DueAt, MessageID: w.ID},
			"starting its run failed, and is tried again by itself")
	case c.Refusal != "" && w != nil:
		add(CollectionReason{Kind: CollectionRefused, Since: &c.DueAt, At: &w.DueAt, MessageID: w.ID},
			"its run could not be started: %s; it is tried again by itself", c.Refusal)
	}
	switch {
	case c.DueAt.After(now):
		add(CollectionReason{Kind: CollectionOpen, Since: &c.FirstAt, At: &c.DueAt},
			"it collects starts until %s, %d so far: wait, or flush it", c.DueAt.UTC().Format(time.RFC3339), c.Count)
	case len(list) == 0:
		add(CollectionReason{Kind: CollectionDue, Since: &c.DueAt},
			"its run is due, and starts as soon as a server gets to it")
	}
	return list
}
