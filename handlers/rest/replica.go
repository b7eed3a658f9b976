package rest

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

// mayBeLate is a route whose answer may lack what was written a moment ago: a list, or statistics. It reads from the
// replica, and from the primary if that does not answer, or refuses. What its client may do was read from the primary.
func mayBeLate(handle handler) handler { return inTurn(handle, handle) }

// onceEnded is a route about a run that reads from the replica if the run has ended there: then nothing of it changes
// any more. Functions are answered from the primary at once, because the runs of calls have not ended.
func onceEnded(handle handler) handler {
	late := inTurn(func(s *Server, r *request) error {
		id := r.runID()
		if r.err != nil {
			return r.err
		}
		run, err := store.RunByID(r.ctx(), s.Reader, r.project(), id)
		if err == nil && !run.Status.Ended() {
			err = errNotEnded
		}
		if err != nil {
			return err
		}
		return handle(s, r)
	}, handle)
	return func(s *Server, r *request) error {
		if auth.IdentityOf(r).Call != nil {
			return handle(s, r)
		}
		return late(s, r)
	}
}

// errNotEnded is the error of a read from the replica that is for the primary.
var errNotEnded = errors.New("the run has not ended in the replica")

// inTurn lets there read from the replica, and then here from the primary if there is no replica, or its answer would
// be an error.
func inTurn(there, here handler) handler {
	return func(s *Server, r *request) error {
		if s.Replica == nil {
			return here(s, r)
		}
		original, again := r.Request(), *r
		answered := s.Replica.Read(r.ctx(), func(ctx context.Context, lag time.Duration) error {
			r.SetRequest(original.WithContext(ctx))
			r.Response().Header().Set(incoming.ReplicaLag, strconv.FormatFloat(lag.Seconds(), 'f', 1, 64))
			return there(s, r)
		})
		r.SetRequest(original)
		if answered || r.Response().Committed {
			return nil
		}
		r.Response().Header().Del(incoming.ReplicaLag)
		return here(s, &again)
	}
}
