package rest

import (
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// messageJSON is the JSON form of a message in the queue. Clients that may not see payloads do not get the last error,
// which may quote the function. Only the operator sees the addresses in it, which are those of the server's network.
type messageJSON struct {
	ID            string         `json:"id"`
	Topic         string         `json:"topic"`
	DeploymentID  string         `json:"deploymentId"`
	RunID         entities.RunID `json:"runId,omitempty"`
	Work          message.Work   `json:"work,omitempty"`
	Subject       string         `json:"subject,omitempty"`
	State         queue.State    `json:"state"`
	DeliveryCount int            `json:"deliveryCount"`
	LastError     string         `json:"lastError,omitempty"`
	CreatedAt     timestamp      `json:"createdAt"`
	DueAt         timestamp      `json:"dueAt"`
	ParkedAt      *timestamp     `json:"parkedAt,omitempty"`
}

func (r *request) messageJSON(e queue.Entry) messageJSON {
	v := messageJSON{
		e.ID, e.Topic, e.DeploymentID, e.RunID, e.Work, e.Subject, e.State, e.DeliveryCount, e.LastError,
		timestamp(e.CreatedAt), timestamp(e.DueAt), optionalTime(e.ParkedAt),
	}
	if r.payloads() == read.WithoutPayloads {
		v.LastError = ""
	}
	if !auth.IdentityOf(r).Operator() {
		v.LastError = egress.Redact(v.LastError)
	}
	return v
}

// listMessages lists messages, optionally by state or run.
func (s *Server) listMessages(c echo.Context) error {
	r := s.request(c)
	page := r.page(oldestFirst)
	f := queue.Filter{State: queue.State(c.QueryParam("state")), RunID: entities.RunID(c.QueryParam("runId"))}
	switch f.State {
	case "", queue.StateWaiting, queue.StateLeased, queue.StateParked:
	default:
		r.fail(badParam("state", "%q is not waiting, leased or parked", f.State))
	}
	return answerPage(r, r.messageJSON, func() ([]queue.Entry, string, error) {
		return s.Queue.Messages(r.ctx(), r.project(), f, page)
	})
}

func (s *Server) getMessage(c echo.Context) error {
	r := s.request(c)
	return answerByID(r, "message ID", r.messageJSON, s.Queue.Message)
}

// retryMessage makes a failed message due now.
func (s *Server) retryMessage(c echo.Context) error {
	r := s.request(c)
	return answerByID(r, "message ID", r.messageJSON, s.Queue.Retry)
}

func (s *Server) discardMessage(c echo.Context) error {
	return deleteByID(s.request(c), "id", "message ID", s.Queue.Discard)
}
