package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/payload"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue/continuation"
)

// resumption is what to resume a hook with.
type resumption struct {
	Payload json.RawMessage `json:"payload"`
	// ResumeID names it, so that it is recorded once however often it is sent.
	ResumeID string `json:"resumeId"`
}

// resumed is what became of a resumption.
type resumed struct {
	RunID   entities.RunID   `json:"runId"`
	HookID  entities.HookID  `json:"hookId"`
	Seq     int64            `json:"seq"`
	EventID entities.EventID `json:"eventId"`
	// Repeated says that the log had it already.
	Repeated bool `json:"repeated"`
}

// resumeByToken resumes the hook that has the token.
func (s *Server) resumeByToken(c echo.Context) error {
	token, err := pathText(c, "token", "hook token")
	if err != nil {
		return err
	}
	if err := entities.ValidateToken(token); err != nil {
		return err
	}
	ctx, project := c.Request().Context(), auth.Project(c)
	h, err := entities.HookByToken(ctx, s.Reader, project, token, s.Log.Now())
	if err != nil {
		return err
	}
	r, err := entities.RunByID(ctx, s.Reader, project, h.RunID)
	if err != nil {
		return err
	}
	return s.resume(c, r, h.ID)
}

// resumeHook resumes a run's hook.
func (s *Server) resumeHook(c echo.Context) error {
	id, err := pathParam(c, "hookId", "hook ID")
	if err != nil {
		return err
	}
	r, err := s.theRun(c)
	if err != nil {
		return err
	}
	return s.resume(c, r, entities.HookID(id))
}

// resume appends what the body says. What makes the run go on is sent in the same transaction: by the log, if the
// server continues the run, or else with the request.
func (s *Server) resume(c echo.Context, r entities.Run, id entities.HookID) error {
	var body resumption
	if err := readBody(c, &body); err != nil {
		return err
	}
	if body.Payload == nil {
		return badField("payload", "it is missing")
	}
	if body.ResumeID != "" {
		if err := entities.ValidateName("resumeId", body.ResumeID); err != nil {
			return badField("resumeId", "%v", err)
		}
	}
	if r.Driver == entities.DriverClient {
		if err := s.takesPayloads(c, r, id); err != nil {
			return err
		}
	}
	request, err := resumptionOf(r, id, body)
	if err != nil {
		return err
	}
	result, err := s.Log.Append(c.Request().Context(), r.Project, request)
	if errors.Is(err, entities.ErrHookNotFound) {
		return s.unlessEnded(c, r.ID, err)
	}
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, resumed{r.ID, id, result.Event.Seq, result.Event.ID(), result.Repeated})
}

// unlessEnded is the error, or that the run has ended: with it go its hooks.
func (s *Server) unlessEnded(c echo.Context, id entities.RunID, otherwise error) error {
	r, err := entities.RunByID(c.Request().Context(), s.Reader, auth.Project(c), id)
	if err != nil {
		return err
	}
	if r.Status.Ended() {
		return ended(r, entities.EventHookReceived)
	}
	return otherwise
}

// takesPayloads refuses hooks of clients that are webhooks: their functions read requests, which only the app makes.
func (s *Server) takesPayloads(c echo.Context, r entities.Run, id entities.HookID) error {
	h, err := s.Log.HookHistory(c.Request().Context(), r.Project, r.ID, id)
	if err != nil {
		return err
	}
	if h.Data.IsWebhook != nil && *h.Data.IsWebhook {
		return entities.Invalid(
			"hook %s is a webhook of an app of the Workflow SDK: send the request to /hooks and its token", id)
	}
	return nil
}

// resumptionOf is the request to the log, in the form that the run's functions read.
func resumptionOf(r entities.Run, id entities.HookID, body resumption) (eventlog.Request, error) {
	request := eventlog.Request{
		RunID: r.ID, Type: entities.EventHookReceived, CorrelationID: string(id), SpecVersion: r.SpecVersion,
		Payload: body.Payload, Data: entities.EventData{ResumeID: body.ResumeID},
	}
	if body.ResumeID != "" {
		sum := sha256.Sum256(body.Payload)
		request.Data.ResumeDigest = hex.EncodeToString(sum[:])
	}
	if r.Driver == entities.DriverServer {
		return request, nil
	}
	message, err := continuation.Of(r)
	if err != nil {
		return request, err
	}
	request.Messages = []entities.Message{message}
	request.Payload, err = payload.Devalue(body.Payload)
	return request, err
}
