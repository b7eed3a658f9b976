package rest

import (
	"context"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

func newPauseJSON(p hold.Pause) api.Pause {
	return api.Pause{
		Kind: api.PauseKind(p.Kind), Name: p.Name, Note: p.Note, PausedBy: p.PausedBy, PausedAt: timestamp(p.PausedAt),
	}
}

// pauseSubject returns what the path says is paused.
func (r *request) pauseSubject() hold.Subject {
	s := hold.Subject{Kind: hold.Kind(r.pathID("kind", "kind")), Name: r.pathID("name", "name")}
	r.fail(s.Kind.Check())
	return s
}

func (s *Server) listPauses(r *request) error {
	return answerAll(r, newPauseJSON, func(ctx context.Context, p entities.Project) ([]hold.Pause, error) {
		return hold.List(ctx, s.Reader, p)
	})
}

// putPause pauses a run, a workflow or a deployment, or changes the note of a pause.
func (s *Server) putPause(r *request) error {
	var body api.PutPauseBody
	subject := r.pauseSubject()
	r.optionalBody(&body)
	return answerAs(r, newPauseJSON, func() (hold.Pause, error) {
		return s.Queue.Pause(r.ctx(), r.project(), subject, body.Note)
	})
}

func (s *Server) removePause(r *request) error {
	subject := r.pauseSubject()
	return answerNothing(r, func() error { return s.Queue.EndPause(r.ctx(), r.project(), subject) })
}
