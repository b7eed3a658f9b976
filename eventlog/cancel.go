package eventlog

import (
	"context"
	"errors"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
)

// Cancel ends a run by an event that is as the request says, but for its type and version, and reports whether it
// was this one that ended it. A run that has ended otherwise is returned as it is. It fails with
// [entities.ErrRunNotFound], and with [entities.ErrInvalid] as [Log.Append] does.
func (l *Log) Cancel(ctx context.Context, project entities.Project, r Request) (entities.Run, bool, error) {
	run, err := store.RunByID(ctx, l.pool, project, r.RunID)
	if err != nil || run.Status.Ended() {
		return run, false, err
	}
	r.Type, r.SpecVersion = entities.EventRunCancelled, run.SpecVersion
	appended, err := l.Append(ctx, project, r)
	if err == nil && appended.Run.EndSeq == appended.Event.Seq {
		return appended.Run, true, nil
	}
	if err != nil && !errors.Is(err, entities.ErrConflict) {
		return run, false, err
	}
	run, err = store.RunByID(ctx, l.pool, project, r.RunID) // it has just ended
	return run, false, err
}
