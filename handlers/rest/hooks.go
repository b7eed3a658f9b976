package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/stepwell-dev/stepwell/contract/approval"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/payload"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/queue/continuation"
)

// Statuses of a hook.
const (
	hookActive   = "active"
	hookRetained = "retained"
	hookDisposed = "disposed"
	hookConflict = "conflict"
)

// hookJSON encodes an open hook.
func (r *request) hookJSON(h store.OpenHook) api.Hook {
	v := api.Hook{
		ID: string(h.ID), RunID: string(h.RunID), Workflow: h.WorkflowName, Token: h.Token, Status: hookActive,
		Webhook: h.IsWebhook,
		Signal:  h.Signal, Condition: h.Condition, CreatedAt: timestamp(h.CreatedAt),
		RetainedUntil: optionalTime(h.RetainUntil),
	}
	if h.ExpiresAt != nil {
		v.Status = hookRetained
	}
	return r.redactHook(v)
}

// hookHistoryJSON encodes a hook from the log: it may be open or disposed, or have lost its token to another hook.
func (r *request) hookHistoryJSON(h read.HookHistory) api.Hook {
	v := api.Hook{
		ID: string(h.ID), RunID: string(h.RunID), Token: h.Data.Token, Status: hookActive,
		Webhook: h.Data.IsWebhook != nil && *h.Data.IsWebhook, Signal: h.Data.Signal, Condition: h.Data.Condition,
		CreatedAt: timestamp(h.CreatedAt), ReceivedAt: optionalTime(h.ReceivedAt), DisposedAt: optionalTime(h.DisposedAt),
		RetainedUntil: optionalTime(h.Data.TokenRetentionUntil), ConflictingRunID: string(h.Data.ConflictingRunID),
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

// redactHook removes what clients do not get that may not see payloads: the token, which would let them resume the run,
// and the condition, which may quote payloads.
func (r *request) redactHook(v api.Hook) api.Hook {
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
	encode := func(w store.OpenWait) api.Wait {
		return api.Wait{
			ID: string(w.ID), RunID: string(w.RunID), Workflow: w.WorkflowName, Status: string(w.Status),
			ResumeAt: optionalTime(w.ResumeAt), CreatedAt: timestamp(w.CreatedAt),
		}
	}
	return answerPage(r, encode, func() ([]store.OpenWait, string, error) {
		return store.OpenWaits(r.ctx(), s.Reader, r.project(), r.QueryParam("workflow"), page)
	})
}

// listRunHooks lists all hooks that a run ever had.
func (s *Server) listRunHooks(r *request) error {
	page, run := r.page(oldestFirst), r.run()
	var decided map[entities.HookID]api.Outcome
	encode := func(h read.HookHistory) api.Hook {
		v := r.hookHistoryJSON(h)
		v.Outcome = decided[h.ID]
		return v
	}
	return answerPage(r, encode, func() (hooks []read.HookHistory, next string, err error) {
		if hooks, next, err = s.Log.HookHistories(r.ctx(), run.Project, run.ID, page); err == nil {
			decided, err = s.historyOutcomes(r, run.ID, hooks)
		}
		return hooks, next, err
	})
}

func (s *Server) getHook(r *request) error {
	run, id := r.run(), entities.HookID(r.pathID("hookId", "hook ID"))
	return answer(r, func() (v api.Hook, err error) {
		h, err := s.Log.HookHistory(r.ctx(), run.Project, run.ID, id)
		if err != nil {
			return v, err
		}
		v = r.hookHistoryJSON(h)
		decided, err := s.historyOutcomes(r, run.ID, []read.HookHistory{h})
		if err != nil {
			return v, err
		}
		v.Outcome = decided[id]
		if r.payloads() == read.WithoutPayloads {
			return v, nil
		}
		created := read.Position{RunID: run.ID, Seq: h.Seq}
		events, err := s.Log.EventsAt(r.ctx(), []read.Position{created}, read.WithPayloads)
		if err != nil {
			return v, err
		}
		return decodeFor(r, func() api.Hook {
			v.Metadata, v.MetadataEncoding = payloadJSON(events[created])
			v.Question, v.Schema = asked(v.Metadata)
			return v
		})
	})
}

// asked returns the question in the metadata of a hook, and the JSON Schema of its payloads; empty if it has none.
func asked(metadata json.RawMessage) (question string, schema json.RawMessage) {
	var fields struct{ Question, Schema json.RawMessage }
	if json.Unmarshal(metadata, &fields) != nil {
		return "", nil
	}
	_ = json.Unmarshal(fields.Question, &question) // what is no text is none
	if bytes.HasPrefix(fields.Schema, []byte("{")) {
		schema = fields.Schema
	}
	return question, schema
}

// resumeRequest is the body of a request that resumes a hook.
type resumeRequest struct {
	Payload json.RawMessage `json:"payload"`
	// ResumeID makes the request idempotent.
	ResumeID string `json:"resumeId"`
	// Unverified resumes a hook that requires signed requests. It needs the role admin.
	Unverified bool `json:"unverified"`
}

// resumeByToken resumes the hook that has the token.
func (s *Server) resumeByToken(r *request) error {
	token := r.pathText("token", "hook token")
	r.fail(entities.ValidateToken(token))
	if r.err != nil {
		return r.err
	}
	h, err := store.HookByToken(r.ctx(), s.Reader, r.project(), token, s.Log.Now())
	if err != nil {
		return err
	}
	run, err := store.RunByID(r.ctx(), s.Reader, r.project(), h.RunID)
	if err != nil {
		return err
	}
	return s.resume(r, run, h.ID)
}

// resumeHook resumes a run's hook.
func (s *Server) resumeHook(r *request) error {
	id, run := r.pathID("hookId", "hook ID"), r.run()
	if r.err != nil {
		return r.err
	}
	return s.resume(r, run, entities.HookID(id))
}

// resume appends the payload in the body to the run's log. The message that continues the run is written in the same
// transaction: by the log for runs that the server drives, and from the request for runs of the Workflow SDK.
func (s *Server) resume(r *request, run entities.Run, id entities.HookID) error {
	body := s.resumption(r, run)
	if r.err != nil {
		return r.err
	}
	if run.Driver == entities.DriverClient {
		if err := s.rejectWebhook(r, run, id); err != nil {
			return err
		}
	}
	settings, err := s.approvalOf(r, run, id)
	if err != nil {
		return err
	}
	event, err := hookReceived(run, id, body)
	if settings != nil {
		event, err = s.vote(r, event, *settings)
	}
	if err != nil {
		return err
	}
	result, err := s.Log.Append(r.ctx(), run.Project, event)
	switch {
	case errors.Is(err, entities.ErrHookNotFound) && settings != nil:
		return s.hookNotFound(r, run.ID, approval.ErrOver)
	case errors.Is(err, entities.ErrHookNotFound):
		return s.hookNotFound(r, run.ID, err)
	case errors.Is(err, entities.ErrConflict) && settings != nil:
		return settings.Voted()
	case err != nil:
		return err
	}
	return r.JSON(http.StatusOK, api.ResumedHook{
		RunID: string(run.ID), HookID: string(id), Seq: result.Event.Seq, EventID: string(result.Event.ID()),
		Repeated: result.Repeated,
	})
}

// resumption reads and checks the body of a request that resumes a hook of the run.
func (s *Server) resumption(r *request, run entities.Run) (body resumeRequest) {
	r.body(&body)
	if body.Payload == nil {
		r.fail(badField("payload", "it is missing"))
	}
	r.fail(checkNameField("resumeId", body.ResumeID))
	if strings.HasPrefix(body.ResumeID, votePrefix) {
		r.fail(badField("resumeId", "the prefix "+votePrefix+" is reserved for votes"))
	}
	if body.Unverified {
		r.fail(auth.IdentityOf(r).Check(auth.Admin))
	}
	if r.err == nil {
		r.fail(s.Runs.CheckPayload(r.ctx(), run.Project, run.DeploymentID, body.Payload))
	}
	return body
}

// approvalOf returns the settings of a hook that is an approval; nil for any other one.
func (s *Server) approvalOf(r *request, run entities.Run, id entities.HookID) (*approval.Settings, error) {
	if run.Driver != entities.DriverServer {
		return nil, nil //nolint:nilnil // the Workflow SDK has none
	}
	h, err := s.Log.HookHistory(r.ctx(), run.Project, run.ID, id)
	if errors.Is(err, entities.ErrHookNotFound) || err == nil && !approval.IsToken(h.Data.Token) {
		return nil, nil //nolint:nilnil // it is none, and the log says so if it does not exist
	}
	if err != nil {
		return nil, err
	}
	created := read.Position{RunID: run.ID, Seq: h.Seq}
	events, err := s.Log.EventsAt(r.ctx(), []read.Position{created}, read.WithPayloads)
	var metadata approval.Metadata
	if err == nil && json.Unmarshal(events[created].Payload, &metadata) != nil {
		metadata.Approval = nil
	}
	return metadata.Approval, err
}

// votePrefix begins the resume IDs of votes.
const votePrefix = "vote:"

// vote makes the event that resumes a hook a vote: with its payload as the log has votes, once for each name and hook,
// or for each key and hook. The log knows resume IDs by the run, and no hook ID has a NUL.
func (s *Server) vote(
	r *request, event eventlog.Request, settings approval.Settings,
) (eventlog.Request, error) {
	var ballot approval.Ballot
	if err := strictjson.Decode(event.Payload, &ballot); err != nil {
		return event, inField("payload", err)
	}
	var v approval.Vote
	err := s.Runs.WithProcessor(r.ctx(), r.project(), func() (err error) {
		v, err = settings.Vote(ballot, string(auth.IdentityOf(r).Actor), r.ctx().Err)
		return err
	})
	if err != nil {
		return event, inField("payload", err)
	}
	event.Payload, err = json.Marshal(v)
	event.Data.Verified = webhook.Vote
	event.Data.ResumeID = votePrefix + incoming.Digest([]byte(event.CorrelationID+"\x00"+settings.Once(v)))
	event.Data.ResumeDigest = incoming.Digest(event.Payload)
	return event, err
}

// hookNotFound returns a more precise error if the hook is missing because its run has ended.
func (s *Server) hookNotFound(r *request, id entities.RunID, notFound error) error {
	run, err := store.RunByID(r.ctx(), s.Reader, r.project(), id)
	if err != nil {
		return err
	}
	if run.Status.Ended() {
		return runEnded(run, entities.EventHookReceived)
	}
	return notFound
}

// rejectWebhook fails for webhooks of Workflow SDK runs: they expect an HTTP request, which only the app can encode.
func (s *Server) rejectWebhook(r *request, run entities.Run, id entities.HookID) error {
	h, err := s.Log.HookHistory(r.ctx(), run.Project, run.ID, id)
	if err != nil {
		return err
	}
	if h.Data.IsWebhook != nil && *h.Data.IsWebhook {
		return entities.Invalid(
			"hook %s is a webhook of a Workflow SDK app: send the request to /hooks/ and its token", id)
	}
	return nil
}

// hookReceived returns the event that resumes the hook, with the payload in the encoding that the run's functions read.
func hookReceived(r entities.Run, id entities.HookID, body resumeRequest) (eventlog.Request, error) {
	event := eventlog.Request{
		RunID: r.ID, Type: entities.EventHookReceived, CorrelationID: string(id), SpecVersion: r.SpecVersion,
		Payload: body.Payload, Unverified: body.Unverified,
		Data: entities.EventData{ResumeID: body.ResumeID, Via: webhook.ViaAPI},
	}
	if body.ResumeID != "" {
		event.Data.ResumeDigest = incoming.Digest(body.Payload)
	}
	if r.Driver == entities.DriverServer {
		return event, nil
	}
	wake, err := continuation.Of(r)
	if err != nil {
		return event, err
	}
	event.Messages = []message.Message{wake}
	event.Payload, err = payload.Devalue(body.Payload)
	return event, err
}
