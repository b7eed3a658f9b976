package why

import (
	"context"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

// StartKind is a kind of reason why a schedule, or a collection, has started no run.
type StartKind string

// The kinds, ordered by how much they need a person.
const (
	// StartParked: deciding ticks, or starting the run, failed so often that it is not tried again until somebody retries
	// it. Without a message, the work is missing.
	StartParked StartKind = "parked"
	// StartFails: it failed, and is tried again.
	StartFails StartKind = "task_fails"
	// StartPaused: somebody paused the schedule.
	StartPaused StartKind = "paused"
	// StartRefused: the run could not be started.
	StartRefused StartKind = "refused"
	// StartSkips: the last run has not ended, and ticks are skipped meanwhile.
	StartSkips StartKind = "overlap"
	// StartWaits: a tick waits for the end of the last run.
	StartWaits StartKind = "waiting"
	// StartFills: the backfill waits for the end of its last run.
	StartFills StartKind = "backfill"
	// StartOver: the schedule has no further tick.
	StartOver StartKind = "no_tick"
	// StartDue: the run starts as soon as a server gets to it.
	StartDue StartKind = "due"
	// StartCollects: further starts are awaited.
	StartCollects StartKind = "collecting"
)

// StartReason is one reason why no run has started.
type StartReason struct {
	Kind StartKind
	// Text says it in a sentence, with what ends it.
	Text string
	// Since is when it began, and At when it ends, or is tried again, by itself; nil if that is unknown.
	Since, At *time.Time
	// RunID is the run whose end it needs, and MessageID the work in the queue.
	RunID     entities.RunID
	MessageID string
}

// startReasons are reasons in their order.
type startReasons []StartReason

func (l *startReasons) add(r StartReason, format string, args ...any) {
	r.Text = fmt.Sprintf(format, args...)
	*l = append(*l, r)
}

// TaskState is the state of work in the queue that belongs to no run.
type TaskState struct {
	ID        string
	DueAt     time.Time
	ParkedAt  *time.Time
	LastError string
}

// readTask reads the state of work that belongs to no run; nil if there is none.
func readTask(
	ctx context.Context, q pg.Querier, project entities.Project, work message.Work, subject string,
) (*TaskState, error) {
	list, err := pg.CollectAll[TaskState](q.Query(ctx, `
		SELECT id, due_at, parked_at, last_error FROM messages
		WHERE run_id = '' AND work = $1 AND work <> '' AND subject = $2 AND project = $3`, work, subject, project))
	if err != nil || len(list) == 0 {
		return nil, pg.Wrap(err, "read work %s of %s", work, subject)
	}
	return &list[0], nil
}

// reasons returns why the work, which does something, has not done it.
func (s *TaskState) reasons(doing string) (list startReasons) {
	switch {
	case s == nil:
	case s.ParkedAt != nil:
		list.add(StartReason{Kind: StartParked, Since: s.ParkedAt, MessageID: s.ID},
			"%s failed too often: retry message %s", doing, s.ID)
	case s.LastError != "":
		list.add(StartReason{Kind: StartFails, At: &s.DueAt, MessageID: s.ID},
			"%s failed, and is tried again by itself", doing)
	}
	return list
}
