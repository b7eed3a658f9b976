package eventlog

import (
	"context"
	"errors"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

// Cancel ends a run with a run_cancelled, which has the fields of the request except for its type and version. It
// returns the run, and reports whether this call ended it; a run that has already ended is not an error. It fails with
// [entities.ErrRunNotFound], and with [entities.ErrInvalid] as [Log.Append] does.
func (l *Log) Cancel(ctx context.Context, project entities.Project, r Request) (entities.Run, bool, error) {
	run, err := store.RunByID(ctx, pg.NewPool(l.pool), project, r.RunID)
	if err != nil {
		return run, false, err
	}
	if run.Status.Ended() {
		return run, false, l.whenDurable(ctx, nil)
	}
	r.Type, r.SpecVersion = entities.EventRunCancelled, run.SpecVersion
	appended, err := l.Append(ctx, project, r)
	if err == nil && appended.Run.EndSeq == appended.Event.Seq {
		return appended.Run, true, nil
	}
	if err != nil && !errors.Is(err, entities.ErrConflict) {
		return run, false, err
	}
	run, err = store.RunByID(ctx, pg.NewPool(l.pool), project, r.RunID) // the run has ended meanwhile
	return run, false, err
}
