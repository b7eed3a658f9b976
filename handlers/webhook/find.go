package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

const (
	// lookups limits the concurrent lookups of tokens that were not found lately, and with them the connections to the
	// database that strangers can occupy.
	lookups = 8
	// lookupTimeout limits the wait for one.
	lookupTimeout = 5 * time.Second
)

// target is the webhook that a request is for: that of a hook and its run, or of a trigger.
type target struct {
	project entities.Project
	token   string
	hook    entities.Hook
	run     entities.Run
	trigger *trigger.Trigger
}

// identity identifies the webhook for ever, so that requests to another one have other IDs.
func (t target) identity() string {
	if t.trigger != nil {
		return string(t.trigger.ID)
	}
	return fmt.Sprintf("%q %q", t.hook.RunID, t.hook.ID)
}

const targetKey = "stepwell.webhook"

func targetOf(c echo.Context) target { return c.Get(targetKey).(target) }

// ProjectOf returns the project of a request to a webhook that exists.
func ProjectOf(c echo.Context) string { return string(targetOf(c).project) }

// resolve looks up the webhook, and rejects requests beyond the rates. It comes before everything that costs more than
// the lookup: the body of a request for no webhook is not read. All such requests take the same path, so that responses
// do not reveal which tokens existed.
func (s *Server) resolve(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		project, token, err := addressOf(c)
		if err != nil {
			return ErrNotFound
		}
		from, now := newSender(project, token, c.RealIP()), s.Log.Now()
		known, err := s.limiter.before(from, now)
		if err != nil {
			return err
		}
		found, err := s.lookUp(c.Request().Context(), project, token, known)
		if errors.Is(err, ErrNotFound) {
			s.limiter.missed(from, now)
			err = s.orWrongCell(c.Request().Context(), project, err)
		}
		if err != nil {
			return err
		}
		if err := s.limiter.found(from, known, now); err != nil {
			return err
		}
		c.Set(targetKey, found)
		return next(c)
	}
}

// orWrongCell returns the error of a webhook that was not found, or, if the cell does not have the project at all, that
// the request belongs elsewhere: the proxy's map is old, or the project has never existed.
func (s *Server) orWrongCell(ctx context.Context, project entities.Project, missing error) error {
	if s.Cell == "" {
		return missing
	}
	exists, err := admin.ProjectExists(ctx, s.Reader, project) // which knows where projects have moved
	if err == nil && !exists {
		err = &entities.WrongCellError{What: "project " + string(project), Here: s.Cell}
	}
	if err != nil {
		return err
	}
	return missing
}

// lookUp finds a webhook. Webhooks that are not known wait for a slot, so that they do not delay the others.
func (s *Server) lookUp(ctx context.Context, project entities.Project, token string, known bool) (target, error) {
	if !known {
		waiting, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
		if err := s.lookups.Acquire(waiting, 1); err != nil {
			return target{}, tooMany(time.Second)
		}
		defer s.lookups.Release(1)
	}
	return s.find(ctx, project, token, s.Log.Now())
}

// find returns the webhook and its run or trigger. It fails with [ErrNotFound].
func (s *Server) find(ctx context.Context, project entities.Project, token string, at time.Time) (target, error) {
	found := target{project: project, token: token}
	var err error
	found.hook, err = store.HookByToken(ctx, s.Reader, project, token, at)
	if err == nil && !found.hook.IsWebhook {
		err = ErrNotFound
	}
	if errors.Is(err, entities.ErrHookNotFound) {
		t, err := trigger.ByToken(ctx, s.Reader, project, token)
		found.trigger = &t
		return found, notFound(err)
	}
	if err != nil {
		return target{}, notFound(err)
	}
	found.run, err = store.RunByID(ctx, s.Reader, found.hook.Project, found.hook.RunID)
	if err == nil && found.run.Status.Ended() {
		err = ErrNotFound
	}
	return found, notFound(err)
}
