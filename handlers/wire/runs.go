package wire

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// Page sizes when the client names none (§2.4).
const (
	runPage  = 20
	stepPage = 20
	hookPage = 100
)

// listRuns is endpoint 5.
func (s *Server) listRuns(c echo.Context) error {
	p, err := page(c, runPage, "desc")
	if err != nil {
		return err
	}
	with, err := payloads(c)
	if err != nil {
		return err
	}
	name, err := query(c, "workflowName")
	if err != nil {
		return err
	}
	status, err := query(c, "status")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	filter := entities.RunFilter{WorkflowName: name, Status: entities.RunStatus(status)}
	runs, next, err := entities.ListRuns(ctx, s.Reader, auth.Project(c), filter, p)
	if err != nil {
		return err
	}
	list, err := s.withEvents(ctx, runs, with)
	if err != nil {
		return err
	}
	return answer(c, newListing(list, next))
}

// getRun is endpoint 6.
func (s *Server) getRun(c echo.Context) error {
	id, err := runParam(c)
	if err != nil {
		return err
	}
	with, err := payloads(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	r, err := entities.RunByID(ctx, s.Reader, auth.Project(c), id)
	if err != nil {
		return err
	}
	list, err := s.withEvents(ctx, []entities.Run{r}, with)
	if err != nil {
		return err
	}
	return answer(c, list[0])
}

// withEvents makes the wire form of runs. Execution context and payloads are in their first events, and,
// wanted only with payloads, outputs and errors in their last.
func (s *Server) withEvents(ctx context.Context, runs []entities.Run, with eventlog.Payloads) ([]run, error) {
	at := make([]eventlog.Position, 0, 2*len(runs))
	for _, r := range runs {
		at = append(at, eventlog.Position{RunID: r.ID, Seq: 1})
		if with == eventlog.WithPayloads && r.EndSeq > 0 {
			at = append(at, eventlog.Position{RunID: r.ID, Seq: r.EndSeq})
		}
	}
	events, err := s.Log.EventsAt(ctx, at, with)
	if err != nil {
		return nil, err
	}
	list := make([]run, len(runs))
	for i, r := range runs {
		list[i], err = newRun(r, eventAt(events, r.ID, 1), eventAt(events, r.ID, r.EndSeq))
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func eventAt(events map[eventlog.Position]entities.Event, id entities.RunID, seq int64) *entities.Event {
	if e, ok := events[eventlog.Position{RunID: id, Seq: seq}]; ok {
		return &e
	}
	return nil
}

// listSteps is endpoint 7.
func (s *Server) listSteps(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	p, err := page(c, stepPage, "desc")
	if err != nil {
		return err
	}
	with, err := payloads(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	steps, next, err := entities.ListSteps(ctx, s.Reader, auth.Project(c), runID, p)
	if err != nil {
		return err
	}
	list, err := s.withResults(ctx, steps, with)
	if err != nil {
		return err
	}
	return answer(c, newListing(list, next))
}

// getStep is endpoint 8, with or without the run's ID.
func (s *Server) getStep(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	id, err := param(c, "stepId")
	if err != nil {
		return err
	}
	with, err := payloads(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	st, err := entities.StepByID(ctx, s.Reader, auth.Project(c), runID, entities.StepID(id))
	if err != nil {
		return err
	}
	list, err := s.withResults(ctx, []entities.Step{st}, with)
	if err != nil {
		return err
	}
	return answer(c, list[0])
}

// withResults makes the wire form of steps. Their payloads are in the events that created them and that
// brought their results.
func (s *Server) withResults(ctx context.Context, steps []entities.Step, with eventlog.Payloads) ([]step, error) {
	var at []eventlog.Position
	if with == eventlog.WithPayloads {
		for _, st := range steps {
			at = append(at, eventlog.Position{RunID: st.RunID, Seq: st.CreatedSeq})
			if st.ResultSeq > 0 {
				at = append(at, eventlog.Position{RunID: st.RunID, Seq: st.ResultSeq})
			}
		}
	}
	events, err := s.Log.EventsAt(ctx, at, with)
	if err != nil {
		return nil, err
	}
	list := make([]step, len(steps))
	for i, st := range steps {
		list[i], err = newStep(st, eventAt(events, st.RunID, st.CreatedSeq), eventAt(events, st.RunID, st.ResultSeq))
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// listHooks is endpoint 9.
func (s *Server) listHooks(c echo.Context) error {
	runID, err := query(c, "runId")
	if err != nil {
		return err
	}
	p, err := page(c, hookPage, "asc")
	if err != nil {
		return err
	}
	with, err := payloads(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	hooks, next, err := entities.ListHooks(ctx, s.Reader, auth.Project(c), entities.RunID(runID), p)
	if err != nil {
		return err
	}
	list, err := s.withMetadata(ctx, hooks, with)
	if err != nil {
		return err
	}
	return answer(c, newListing(list, next))
}

// getHook is endpoint 10.
func (s *Server) getHook(c echo.Context) error {
	id, err := param(c, "hookId")
	if err != nil {
		return err
	}
	h, err := entities.HookByID(c.Request().Context(), s.Reader, auth.Project(c), entities.HookID(id))
	if err != nil {
		return err
	}
	return s.answerHook(c, h)
}

// getHookByToken is endpoint 11.
func (s *Server) getHookByToken(c echo.Context) error {
	token, err := query(c, "token")
	if err != nil {
		return err
	}
	h, err := entities.HookByToken(c.Request().Context(), s.Reader, auth.Project(c), token)
	if err != nil {
		return err
	}
	return s.answerHook(c, h)
}

// answerHook answers with a hook and its metadata, by which a webhook knows how to respond (§7).
func (s *Server) answerHook(c echo.Context, h entities.Hook) error {
	list, err := s.withMetadata(c.Request().Context(), []entities.Hook{h}, eventlog.WithPayloads)
	if err != nil {
		return err
	}
	return answer(c, list[0])
}

func (s *Server) withMetadata(ctx context.Context, hooks []entities.Hook, with eventlog.Payloads) ([]hook, error) {
	var at []eventlog.Position
	if with == eventlog.WithPayloads {
		for _, h := range hooks {
			at = append(at, eventlog.Position{RunID: h.RunID, Seq: h.CreatedSeq})
		}
	}
	events, err := s.Log.EventsAt(ctx, at, with)
	if err != nil {
		return nil, err
	}
	list := make([]hook, len(hooks))
	for i, h := range hooks {
		list[i] = newHook(h, eventAt(events, h.RunID, h.CreatedSeq))
	}
	return list, nil
}
