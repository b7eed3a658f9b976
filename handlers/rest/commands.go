package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// commandRun carries out commands of a function before it has answered.
func (s *Server) commandRun(c echo.Context) error {
	id, err := runParam(c)
	if err != nil {
		return err
	}
	invocation := c.Request().Header.Get(contract.HeaderInvocation)
	if invocation == "" {
		return entities.Invalid("the header %s is missing: it names the invocation that gives the commands",
			contract.HeaderInvocation)
	}
	body, err := bodyOf(c)
	if err != nil {
		return err
	}
	if len(body) > contract.MaxAnswer {
		return entities.Invalid("the commands are %d bytes; the limit is %d", len(body), contract.MaxAnswer)
	}
	_, err = s.Runs.Command(c.Request().Context(), auth.Project(c), id, invocation, body)
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
