package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
)

// inboxMessage is the body of a request that sends a message to an inbox.
type inboxMessage struct {
	// ID makes the message count once in the inbox; empty for none.
	ID      string          `json:"id"`
	Payload json.RawMessage `json:"payload"`
}

func (m inboxMessage) validate() error {
	if m.Payload == nil {
		return entities.Invalid("the payload is missing")
	}
	if m.ID == "" {
		return nil
	}
	return inbox.ValidateMessageID(m.ID)
}

// request returns the request that sends the message to an inbox.
func (m inboxMessage) request(name string) eventlog.Request {
	r := eventlog.Request{
		Type: entities.EventHookReceived, CorrelationID: string(inbox.HookID(name)), SpecVersion: entities.SpecDriven,
		Payload: m.Payload, Data: entities.EventData{MessageID: m.ID, Via: webhook.ViaAPI},
	}
	if m.ID != "" {
		r.Data.ResumeID, r.Data.ResumeDigest = inbox.ResumeID(name, m.ID), incoming.Digest(m.Payload)
	}
	return r
}

// sendMessage sends a message to an inbox of a run, and waits for the run's answer if the client prefers that.
func (s *Server) sendMessage(r *request) error {
	var body inboxMessage
	name := r.pathText("name", "name of the inbox")
	r.fail(inParam("name", inbox.ValidateName(name)))
	r.body(&body)
	r.fail(body.validate())
	wait := min(incoming.PreferredWait(r.Request()), maxWait)
	if wait > 0 && body.ID == "" {
		r.fail(badField("id", "it is missing: an answer is for a message with an ID"))
	}
	run := r.run()
	if r.err != nil {
		return r.err
	}
	if run.Driver != entities.DriverServer {
		return fmt.Errorf("run %s: %w: its client continues it", run.ID, inbox.ErrNotFound)
	}
	event := body.request(name)
	event.RunID = run.ID
	result, err := s.Log.Send(r.ctx(), r.project(), event)
	if errors.Is(err, entities.ErrHookNotFound) {
		return s.inboxNotFound(r, run.ID, err)
	}
	if err != nil {
		return err
	}
	sent := api.SentMessage{Seq: result.Event.Seq, Repeated: result.Repeated}
	if result.Run.ID != run.ID {
		sent.RunID = string(result.Run.ID)
	}
	if wait > 0 {
		if sent.Answer, err = s.awaitAnswer(r, wait, result.Run.ID, name, body.ID); err != nil {
			return err
		}
	}
	return r.JSON(http.StatusOK, sent)
}

// awaitAnswer waits until the run, or one that goes on with its work, has answered the message. It returns no answer if
// that takes longer than wait, and fails with [inbox.ErrUnanswered] if none will come.
func (s *Server) awaitAnswer(
	r *request, wait time.Duration, id entities.RunID, name, message string,
) (answer api.Answer, err error) {
	incoming.Waits(r)
	waiting, stop := s.waiting(r, wait)
	defer stop()
	r.Response().Header().Set("Preference-Applied", "wait")
	step := inbox.ReplyID(inbox.ResumeID(name, message))
	reply, err := s.Log.WaitForReply(r.ctx(), waiting, r.project(), id, step)
	if err == nil && reply.Ended && reply.Seq == 0 {
		err = fmt.Errorf("run %s has ended: %w to message %q", reply.RunID, inbox.ErrUnanswered, message)
	}
	if err != nil || reply.Seq == 0 {
		return answer, err
	}
	at := read.Position{RunID: reply.RunID, Seq: reply.Seq}
	events, err := s.Log.EventsAt(r.ctx(), []read.Position{at}, read.WithPayloads)
	if err != nil {
		return answer, err
	}
	var given inbox.Answer
	if err := json.Unmarshal(events[at].Payload, &given); err != nil {
		return answer, fmt.Errorf("decode the answer at %d of run %s: %w", reply.Seq, reply.RunID, err)
	}
	answer = api.Answer{RunID: string(reply.RunID), Seq: reply.Seq, Output: given.Output}
	if given.Error != nil {
		answer.Error = newFailureJSON("", &entities.Event{Payload: given.Error})
	}
	return answer, nil
}

// inboxNotFound returns a more precise error if the hook of an inbox is missing.
func (s *Server) inboxNotFound(r *request, id entities.RunID, notFound error) error {
	err := s.hookNotFound(r, id, notFound)
	if !errors.Is(err, entities.ErrHookNotFound) {
		return err
	}
	missing, _ := errors.AsType[*entities.TransitionError](err)
	name, _ := inbox.Name(entities.HookID(missing.ID))
	return fmt.Errorf("run %s: %w: it has not opened %q, or has closed it", id, inbox.ErrNotFound, name)
}

// inboxesOf returns the names of the inboxes with which the run was started. They were opened right after its first
// event.
func (s *Server) inboxesOf(r *request, run entities.Run) ([]string, error) {
	first, err := s.Log.Events(r.ctx(), run.Project, run.ID, pg.Page{Limit: 1 + inbox.MaxInboxes}, read.WithoutPayloads)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range first.Events {
		if e.Type == entities.EventRunCreated {
			continue
		}
		name, ok := inbox.Name(entities.HookID(e.CorrelationID))
		if e.Type != entities.EventHookCreated || !ok {
			break
		}
		names = append(names, name)
	}
	return names, nil
}
