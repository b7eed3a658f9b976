package rest

import (
	"context"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// awaitRun answers when the run has ended, or the last one of those as which it goes on. On timeout, it answers with
// the unfinished run, or with the collection of a run that has not started.
func (s *Server) awaitRun(r *request) error {
	id, timeout := r.runID(), r.duration("timeout", defaultWait, maxWait)
	await := s.awaitLast
	if !r.flag("follow", true) {
		await = s.awaitEnd
	}
	if r.err != nil {
		return r.err
	}
	waiting, stop := s.waiting(r, timeout)
	defer stop()
	run, err := await(r, waiting, id)
	if err != nil {
		return r.answerPending(err)
	}
	return s.answerRun(r, run)
}

// awaitLast is [Server.awaitEnd] for the last one of the runs as which the run goes on.
func (s *Server) awaitLast(r *request, deadline context.Context, id entities.RunID) (entities.Run, error) {
	run, err := s.awaitEnd(r, deadline, id)
	return s.followEnd(r, deadline, run, err)
}

// followEnd waits for the end of the last one of the runs as which a run goes on that has ended.
func (s *Server) followEnd(
	r *request, deadline context.Context, run entities.Run, err error,
) (entities.Run, error) {
	for err == nil && run.ContinuedAs != "" {
		last, failed := store.InChain(r.ctx(), s.Reader, r.project(), run.ID, "")
		if failed != nil || last == run.ID { // the next one was deleted
			return run, failed
		}
		run, err = s.Log.WaitForEnd(r.ctx(), deadline, r.project(), last)
	}
	return run, err
}
