package rest

import (
	"encoding/json"
	"net/http"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue/engine"
)

// Statuses of a hook.
const (
	hookActive   = "active"
	hookRetained = "retained"
	hookDisposed = "disposed"
	hookConflict = "conflict"
)

// hookJSON is the JSON form of a hook. Only a single hook has its metadata. Clients that may not see payloads get
// neither the token, which would let them resume the run, nor the condition, which may quote payloads.
type hookJSON struct {
	ID               entities.HookID `json:"id"`
	RunID            entities.RunID  `json:"runId"`
	Workflow         string          `json:"workflow,omitempty"`
	Token            string          `json:"token,omitempty"`
	Status           string          `json:"status"`
	Webhook          bool            `json:"webhook"`
	Verify           string          `json:"verify,omitempty"`
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

// hookJSON encodes an open hook.
func (r *request) hookJSON(h store.OpenHook) hookJSON {
	v := hookJSON{
		ID: h.ID, RunID: h.RunID, Workflow: h.WorkflowName, Token: h.Token, Status: hookActive, Webhook: h.IsWebhook,
		Signal: h.Signal, Condition: h.Condition, CreatedAt: timestamp(h.CreatedAt),
		RetainedUntil: optionalTime(h.RetainUntil),
	}
	if h.ExpiresAt != nil {
		v.Status = hookRetained
	}
	return r.redactHook(v)
}

// hookHistoryJSON encodes a hook from the log: it may be open or disposed, or have lost its token to another hook.
func (r *request) hookHistoryJSON(h read.HookHistory) hookJSON {
	v := hookJSON{
		ID: h.ID, RunID: h.RunID, Token: h.Data.Token, Status: hookActive,
		Webhook: h.Data.IsWebhook != nil && *h.Data.IsWebhook, Signal: h.Data.Signal, Condition: h.Data.Condition,
		CreatedAt: timestamp(h.CreatedAt), ReceivedAt: optionalTime(h.ReceivedAt), DisposedAt: optionalTime(h.DisposedAt),
		RetainedUntil: optionalTime(h.Data.TokenRetentionUntil), ConflictingRunID: h.Data.ConflictingRunID,
	}
	if h.Data.Webhook != nil {
		v.Verify = h.Data.Webhook.Verify
	}
	switch {
	case h.Type == entities.EventHookConflict:
		v.Status = hookConflict
	case h.DisposedAt != nil:
		v.Status = hookDisposed
	case h.RunEndedAt != nil:
		v.Status = hookRetained
	}
	return r.redactHook(v)
}

func (r *request) redactHook(v hookJSON) hookJSON {
	if r.payloads() == read.WithoutPayloads {
		v.Token, v.Condition = "", ""
	}
	return v
}

// listHooks lists the open hooks of all runs.
func (s *Server) listHooks(r *request) error {
	page, now := r.page(oldestFirst), s.Log.Now()
	f := store.HookFilter{WorkflowName: r.QueryParam("workflow"), TokenPrefix: r.QueryParam("tokenPrefix")}
	if f.TokenPrefix != "" {
		r.fail(auth.IdentityOf(r).Check(auth.Read))
	}
	if age := r.duration("olderThan", 0, maxSpan); age > 0 {
		f.CreatedUntil = now.Add(-age)
	}
	return answerPage(r, r.hookJSON, func() ([]store.OpenHook, string, error) {
		return store.OpenHooks(r.ctx(), s.Reader, r.project(), f, now, page)
	})
}

// listOpenWaits lists the waits of all runs that are not over, by the time at which they end.
func (s *Server) listOpenWaits(r *request) error {
	page := r.page(oldestFirst)
	encode := func(w store.OpenWait) waitJSON {
		return waitJSON{
			ID: w.ID, RunID: w.RunID, Workflow: w.WorkflowName, Status: w.Status, ResumeAt: optionalTime(w.ResumeAt),
			CreatedAt: timestamp(w.CreatedAt),
		}
	}
	return answerPage(r, encode, func() ([]store.OpenWait, string, error) {
		return store.OpenWaits(r.ctx(), s.Reader, r.project(), r.QueryParam("workflow"), page)
	})
}

// listRunHooks lists all hooks that a run ever had.
func (s *Server) listRunHooks(r *request) error {
	page, run := r.page(oldestFirst), r.run()
	return answerPage(r, r.hookHistoryJSON, func() ([]read.HookHistory, string, error) {
		return s.Log.HookHistories(r.ctx(), run.Project, run.ID, page)
	})
}

func (s *Server) getHook(r *request) error {
	run, id := r.run(), entities.HookID(r.pathID("hookId", "hook ID"))
	return answer(r, func() (v hookJSON, err error) {
		h, err := s.Log.HookHistory(r.ctx(), run.Project, run.ID, id)
		if err != nil {
			return v, err
		}
		v = r.hookHistoryJSON(h)
		if r.payloads() == read.WithoutPayloads {
			return v, nil
		}
		created := read.Position{RunID: run.ID, Seq: h.Seq}
		events, err := s.Log.EventsAt(r.ctx(), []read.Position{created}, read.WithPayloads)
		if err != nil {
			return v, err
		}
		return decodeFor(r, func() hookJSON {
			v.Metadata, v.MetadataEncoding = payloadJSON(events[created])
			return v
		})
	})
}

type signalJSON struct {
	ID   store.SignalID `json:"id"`
	Name string         `json:"name"`
	// Key is the ID that the sender gave the signal.
	Key       string    `json:"key,omitempty"`
	CreatedAt timestamp `json:"createdAt"`
	KeepUntil timestamp `json:"keepUntil"`
}

func newSignalJSON(s store.Signal) signalJSON {
	return signalJSON{s.ID, s.Name, s.Key, timestamp(s.CreatedAt), timestamp(s.KeepUntil)}
}

// listedSignalJSON adds the data, unless it is too long for a list.
type listedSignalJSON struct {
	signalJSON

	Data      json.RawMessage `json:"data,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
}

func newListedSignalJSON(s store.Signal) listedSignalJSON {
	return listedSignalJSON{newSignalJSON(s), s.Data, s.Data == nil}
}

// postSignal records a signal. It answers before hooks are resumed.
func (s *Server) postSignal(r *request) error {
	var body struct {
		ID      string          `json:"id"`
		Data    json.RawMessage `json:"data"`
		KeepFor string          `json:"keepFor"`
	}
	name := r.pathText("name", "signal name")
	r.body(&body)
	keep, err := durationField("keepFor", body.KeepFor, engine.MaxKeep)
	r.fail(err)
	if r.err != nil {
		return r.err
	}
	signal := store.Signal{Project: r.project(), Name: name, Key: body.ID, Data: body.Data}
	if body.Data == nil {
		signal.Data = []byte("null")
	}
	stored, _, err := s.Runs.PostSignal(r.ctx(), signal, keep)
	if err != nil {
		return err
	}
	return r.JSON(http.StatusAccepted, newSignalJSON(stored))
}

// listSignals lists the stored signals, optionally by name.
func (s *Server) listSignals(r *request) error {
	page := r.page(oldestFirst)
	query := func() ([]store.Signal, string, error) {
		return s.Runs.Signals(r.ctx(), r.project(), r.QueryParam("name"), page)
	}
	if r.payloads() == read.WithoutPayloads {
		return answerPage(r, newSignalJSON, query)
	}
	return answerPage(r, newListedSignalJSON, query)
}
