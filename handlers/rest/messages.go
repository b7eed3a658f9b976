package rest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue"
)

// messagePage is how many messages a list has unless the request says.
const messagePage = 100

// message is the JSON form of a message that the queue has.
type message struct {
	ID            string         `json:"id"`
	Topic         string         `json:"topic"`
	DeploymentID  string         `json:"deploymentId"`
	RunID         entities.RunID `json:"runId,omitempty"`
	State         queue.State    `json:"state"`
	DeliveryCount int            `json:"deliveryCount"`
	LastError     string         `json:"lastError,omitempty"`
	CreatedAt     time.Time      `json:"createdAt"`
	DueAt         time.Time      `json:"dueAt"`
	ParkedAt      *time.Time     `json:"parkedAt,omitempty"`
}

// listMessages answers with the messages in a state, from the one behind the cursor on.
func (s *Server) listMessages(c echo.Context) error {
	p := entities.Page{Limit: messagePage, Cursor: c.QueryParam("cursor")}
	if limit := c.QueryParam("limit"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > entities.MaxPage {
			return entities.Invalid("limit %q is not a number from 1 to %d", limit, entities.MaxPage)
		}
		p.Limit = n
	}
	list, next, err := s.Queue.Messages(c.Request().Context(), auth.Project(c), queue.State(c.QueryParam("state")), p)
	if err != nil {
		return err
	}
	body := struct {
		Data   []message `json:"data"`
		Cursor string    `json:"cursor,omitempty"`
	}{Data: make([]message, len(list)), Cursor: next}
	for i, e := range list {
		body.Data[i] = message(e)
	}
	return c.JSON(http.StatusOK, body)
}

// retryMessage has a message that failed delivered now.
func (s *Server) retryMessage(c echo.Context) error {
	id, err := idParam(c, "message ID")
	if err != nil {
		return err
	}
	e, err := s.Queue.Retry(c.Request().Context(), auth.Project(c), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, message(e))
}

func (s *Server) discardMessage(c echo.Context) error {
	id, err := idParam(c, "message ID")
	if err != nil {
		return err
	}
	if err := s.Queue.Discard(c.Request().Context(), auth.Project(c), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
