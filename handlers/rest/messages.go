package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue"
)

// message is the JSON form of a message that the queue has.
type message struct {
	ID            string         `json:"id"`
	Topic         string         `json:"topic"`
	DeploymentID  string         `json:"deploymentId"`
	RunID         entities.RunID `json:"runId,omitempty"`
	Work          entities.Work  `json:"work,omitempty"`
	Subject       string         `json:"subject,omitempty"`
	State         queue.State    `json:"state"`
	DeliveryCount int            `json:"deliveryCount"`
	LastError     string         `json:"lastError,omitempty"`
	CreatedAt     timestamp      `json:"createdAt"`
	DueAt         timestamp      `json:"dueAt"`
	ParkedAt      *timestamp     `json:"parkedAt,omitempty"`
}

func newMessage(e queue.Entry) message {
	return message{
		e.ID, e.Topic, e.DeploymentID, e.RunID, e.Work, e.Subject, e.State, e.DeliveryCount, e.LastError,
		timestamp(e.CreatedAt), timestamp(e.DueAt), optionalTime(e.ParkedAt),
	}
}

// to is what whoever asks may see of the message: its last error may have the function's words.
func (m message) to(c echo.Context) message {
	if !auth.Of(c).SeesPayloads() {
		m.LastError = ""
	}
	return m
}

// listMessages answers with the messages in a state, or of a run.
func (s *Server) listMessages(c echo.Context) error {
	p, err := page(c, oldestFirst)
	if err != nil {
		return err
	}
	switch queue.State(c.QueryParam("state")) {
	case "", queue.StateWaiting, queue.StateLeased, queue.StateParked:
	default:
		return badParam("state", "%q is none of waiting, leased and parked", c.QueryParam("state"))
	}
	f := queue.Filter{State: queue.State(c.QueryParam("state")), RunID: entities.RunID(c.QueryParam("runId"))}
	entries, next, err := s.Queue.Messages(c.Request().Context(), auth.Project(c), f, p)
	if err != nil {
		return err
	}
	return answerList(c, entries, next, func(e queue.Entry) message { return newMessage(e).to(c) })
}

func (s *Server) getMessage(c echo.Context) error {
	id, err := pathParam(c, "id", "message ID")
	if err != nil {
		return err
	}
	e, err := s.Queue.Message(c.Request().Context(), auth.Project(c), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newMessage(e).to(c))
}

// retryMessage has a message that failed delivered now.
func (s *Server) retryMessage(c echo.Context) error {
	id, err := pathParam(c, "id", "message ID")
	if err != nil {
		return err
	}
	e, err := s.Queue.Retry(c.Request().Context(), auth.Project(c), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newMessage(e))
}

func (s *Server) discardMessage(c echo.Context) error {
	id, err := pathParam(c, "id", "message ID")
	if err != nil {
		return err
	}
	if err := s.Queue.Discard(c.Request().Context(), auth.Project(c), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
