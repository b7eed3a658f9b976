package rest

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// Where a hook stands.
const (
	hookActive   = "active"
	hookRetained = "retained"
	hookDisposed = "disposed"
	hookConflict = "conflict"
)

// hook is the JSON form of a hook. Metadata comes only with a single hook. Who may not see payloads does not get the
// token and the condition either: the one lets its holder resume the run, the other may quote what it works on.
type hook struct {
	ID               entities.HookID `json:"id"`
	RunID            entities.RunID  `json:"runId"`
	Token            string          `json:"token,omitempty"`
	Status           string          `json:"status"`
	Webhook          bool            `json:"webhook"`
	Signal           string          `json:"signal,omitempty"`
	Condition        string          `json:"condition,omitempty"`
	CreatedAt        timestamp       `json:"createdAt"`
	ReceivedAt       *timestamp      `json:"receivedAt,omitempty"`
	DisposedAt       *timestamp      `json:"disposedAt,omitempty"`
	RetainedUntil    *timestamp      `json:"retainedUntil,omitempty"`
	ConflictingRunID entities.RunID  `json:"conflictingRunId,omitempty"`

	Metadata         json.RawMessage `json:"metadata,omitempty"`
	MetadataEncoding string          `json:"metadataEncoding,omitempty"`
}

// newHook is the form of a hook that is there.
func newHook(h entities.Hook) hook {
	v := hook{
		ID: h.ID, RunID: h.RunID, Token: h.Token, Status: hookActive, Webhook: h.IsWebhook, Signal: h.Signal,
		Condition: h.Condition, CreatedAt: timestamp(h.CreatedAt), RetainedUntil: optionalTime(h.RetainUntil),
	}
	if h.ExpiresAt != nil {
		v.Status = hookRetained
	}
	return v
}

// newPastHook is the form of a hook that is or was there, or lost the contest for its token.
func newPastHook(h read.HookHistory) hook {
	v := hook{
		ID: h.ID, RunID: h.RunID, Token: h.Data.Token, Status: hookActive,
		Webhook: h.Data.IsWebhook != nil && *h.Data.IsWebhook, Signal: h.Data.Signal, Condition: h.Data.Condition,
		CreatedAt: timestamp(h.CreatedAt), ReceivedAt: optionalTime(h.ReceivedAt), DisposedAt: optionalTime(h.DisposedAt),
		RetainedUntil: optionalTime(h.Data.TokenRetentionUntil), ConflictingRunID: h.Data.ConflictingRunID,
	}
	switch {
	case h.Type == entities.EventHookConflict:
		v.Status = hookConflict
	case h.DisposedAt != nil:
		v.Status = hookDisposed
	case h.RunEndedAt != nil:
		v.Status = hookRetained
	}
	return v
}

// to is what whoever asks may see of the hook.
func (v hook) to(c echo.Context) hook {
	if !auth.Of(c).SeesPayloads() {
		v.Token, v.Condition = "", ""
	}
	return v
}

// listHooks answers with the hooks that there are now.
func (s *Server) listHooks(c echo.Context) error {
	p, err := page(c, oldestFirst)
	if err != nil {
		return err
	}
	hooks, next, err := store.ListHooks(c.Request().Context(), s.Reader, auth.Project(c), "", s.Log.Now(), p)
	if err != nil {
		return err
	}
	return answerList(c, hooks, next, func(h entities.Hook) hook { return newHook(h).to(c) })
}

// listRunHooks answers with all hooks that a run ever had.
func (s *Server) listRunHooks(c echo.Context) error {
	p, err := page(c, oldestFirst)
	if err != nil {
		return err
	}
	r, err := s.theRun(c)
	if err != nil {
		return err
	}
	hooks, next, err := s.Log.HookHistories(c.Request().Context(), r.Project, r.ID, p)
	if err != nil {
		return err
	}
	return answerList(c, hooks, next, func(h read.HookHistory) hook { return newPastHook(h).to(c) })
}

func (s *Server) getHook(c echo.Context) error {
	r, err := s.theRun(c)
	if err != nil {
		return err
	}
	id, err := pathParam(c, "hookId", "hook ID")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	h, err := s.Log.HookHistory(ctx, r.Project, r.ID, entities.HookID(id))
	if err != nil {
		return err
	}
	created := read.Position{RunID: r.ID, Seq: h.Seq}
	v := newPastHook(h).to(c)
	if !auth.Of(c).SeesPayloads() {
		return c.JSON(http.StatusOK, v)
	}
	events, err := s.Log.EventsAt(ctx, []read.Position{created}, read.WithPayloads)
	if err != nil {
		return err
	}
	v.Metadata, v.MetadataEncoding = decode(events[created])
	return c.JSON(http.StatusOK, v)
}
