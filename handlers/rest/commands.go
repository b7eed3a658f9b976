package rest

import (
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// commandRun executes commands that a function sends before it answers its invocation.
func (s *Server) commandRun(c echo.Context) error {
	r := s.request(c)
	id := r.runID()
	invocation := c.Request().Header.Get(contract.HeaderInvocation)
	if invocation == "" {
		r.fail(entities.Invalid("the header %s is missing: send the name of the invocation", contract.HeaderInvocation))
	}
	body := r.rawBody()
	if len(body) > contract.MaxAnswer {
		r.fail(entities.Invalid("the commands are %d bytes; the limit is %d", len(body), contract.MaxAnswer))
	}
	return answerNothing(r, func() error {
		_, err := s.Runs.Command(r.ctx(), r.project(), id, invocation, body)
		return err
	})
}
