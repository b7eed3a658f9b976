package rest

import (
	"cmp"
	"context"
	"slices"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// messageJSON encodes a message in the queue. Clients that may not see payloads do not get the last error, which may
// quote the function. Only the operator sees the addresses in it, which are those of the server's network.
func (r *request) messageJSON(e queue.Entry) api.Message {
	v := api.Message{
		ID: e.ID, Topic: e.Topic, DeploymentID: e.DeploymentID, RunID: string(e.RunID), Work: string(e.Work),
		Subject: e.Subject, State: string(e.State), DeliveryCount: int64(e.DeliveryCount), LastError: e.LastError,
		CreatedAt: timestamp(e.CreatedAt), DueAt: timestamp(e.DueAt), ParkedAt: optionalTime(e.ParkedAt),
	}
	if r.payloads() == read.WithoutPayloads {
		v.LastError = ""
	}
	if !auth.IdentityOf(r).Operator() {
		v.LastError = egress.Redact(v.LastError)
	}
	return v
}

// messageFilter returns the filter that the parameters describe.
func (r *request) messageFilter() queue.Filter {
	f := queue.Filter{
		State: queue.State(r.QueryParam("state")), RunID: entities.RunID(r.QueryParam("runId")),
		DeploymentID: r.QueryParam("deployment"), Work: message.Work(r.QueryParam("work")),
	}
	r.fail(inParam("state", f.CheckState()))
	f.ErrorContains, f.Redacted = r.errorText(r.QueryParam("errorContains"))
	return f
}

// errorText returns the text to look for in errors, and whether the client sees them redacted. It fails if the client
// may not see errors.
func (r *request) errorText(text string) (string, bool) {
	identity := auth.IdentityOf(r)
	if text != "" {
		r.fail(identity.Check(auth.Read))
	}
	return text, !identity.Operator()
}

// listMessages lists the messages that match.
func (s *Server) listMessages(r *request) error {
	page, f := r.page(oldestFirst), r.messageFilter()
	return answerPage(r, r.messageJSON, func() ([]queue.Entry, string, error) {
		return s.Queue.Messages(r.ctx(), r.project(), f, page)
	})
}

func newCountJSON(n queue.Number) api.Count { return api.Count{Count: int64(n.Count), More: n.More} }

func newCountsJSON(c queue.Counts) api.MessageCounts {
	return api.MessageCounts{
		Parked: newCountJSON(c.Parked), Retrying: newCountJSON(c.Retrying), Leased: newCountJSON(c.Leased),
		Due: newCountJSON(c.Due), Delayed: newCountJSON(c.Delayed), OldestDue: optionalTime(c.OldestDue),
	}
}

// countMessages answers with the numbers of messages by state.
func (s *Server) countMessages(r *request) error {
	return answerAs(r, newCountsJSON, func() (queue.Counts, error) { return s.Queue.Counts(r.ctx(), r.project()) })
}

// changeRequest selects the messages to retry or discard: by conditions, or by their IDs.
type changeRequest struct {
	State         queue.State    `json:"state"`
	RunID         entities.RunID `json:"runId"`
	Deployment    string         `json:"deployment"`
	Work          message.Work   `json:"work"`
	ErrorContains string         `json:"errorContains"`
	MessageIDs    []string       `json:"messageIds"`
	DryRun        bool           `json:"dryRun"`
	Limit         int            `json:"limit"`
}

// validate checks the fields. Only the given states are possible.
func (b changeRequest) validate(states []queue.State) error {
	if !slices.Contains(states, b.State) {
		return badField("state", "%q is none of %q", b.State, states)
	}
	if err := validateBulkLimit(b.Limit); err != nil {
		return err
	}
	for field, id := range map[string]string{
		"runId": string(b.RunID), "deployment": b.Deployment, "work": string(b.Work),
	} {
		if err := checkIDField(field, id); err != nil {
			return err
		}
	}
	return cmp.Or(checkNameField("errorContains", b.ErrorContains), b.validateIDs())
}

// validateIDs checks the IDs, and that nothing but the state is there beside them: searching the errors of chosen
// messages could reveal the part of an error that the client does not see.
func (b changeRequest) validateIDs() error {
	if b.MessageIDs == nil {
		return nil
	}
	conditions := b.RunID != "" || b.Deployment != "" || b.Work != "" || b.ErrorContains != ""
	if n := len(b.MessageIDs); conditions || b.DryRun || b.Limit != maxBulk || n > maxBulk {
		return badField("messageIds", "want up to %d IDs, and beside them only the state", maxBulk)
	}
	for _, id := range b.MessageIDs {
		if err := entities.ValidateID("message ID", id); err != nil {
			return inField("messageIds", err)
		}
	}
	return nil
}

// messageChange is what a request does with many messages.
type messageChange struct {
	do func(context.Context, entities.Project, queue.Filter, []string) (int, error)
	// notDue leaves out what is delivered anyway.
	notDue bool
	// states are possible; the first one is the default.
	states []queue.State
}

// retryMessages makes all matching messages due now that failed, so that a repeat goes on with others.
func (s *Server) retryMessages(r *request) error {
	return s.changeMessages(r, messageChange{s.Queue.RetryAll, true, []queue.State{
		queue.StateParked, queue.StateRetrying,
	}})
}

// discardMessages deletes all matching messages.
func (s *Server) discardMessages(r *request) error {
	return s.changeMessages(r, messageChange{s.Queue.DiscardAll, false, []queue.State{
		queue.StateParked, queue.StateRetrying, queue.StateDue, queue.StateDelayed,
	}})
}

// changeMessages finds the messages that match and, unless it is a dry run, changes them in one transaction.
func (s *Server) changeMessages(r *request, m messageChange) error {
	body := changeRequest{State: m.states[0], Limit: maxBulk}
	r.optionalBody(&body)
	r.fail(body.validate(m.states))
	f := queue.Filter{
		State: body.State, RunID: body.RunID, DeploymentID: body.Deployment, Work: body.Work, NotDue: m.notDue,
	}
	f.ErrorContains, f.Redacted = r.errorText(body.ErrorContains)
	return answer(r, func() (v api.ChangedMessages, err error) {
		ids, more, changed := body.MessageIDs, false, 0
		if ids == nil {
			ids, more, err = s.findMessages(r, f, body.Limit)
		}
		if err == nil && !body.DryRun && len(ids) > 0 {
			changed, err = m.do(r.ctx(), r.project(), f, ids)
		}
		return api.ChangedMessages{
			Matched: int64(len(ids)), Changed: int64(changed), More: more, MessageIds: append([]string{}, ids...),
		}, err
	})
}

// findMessages returns the IDs of up to limit messages that match, and whether there may be more.
func (s *Server) findMessages(r *request, f queue.Filter, limit int) (ids []string, more bool, err error) {
	page := pg.Page{}
	for range maxBulkPages {
		page.Limit = limit - len(ids)
		entries, next, err := s.Queue.Messages(r.ctx(), r.project(), f, page)
		if err != nil {
			return nil, false, err
		}
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
		if page.Cursor = next; next == "" || len(ids) >= limit {
			break
		}
	}
	return ids, page.Cursor != "", nil
}

func (s *Server) getMessage(r *request) error {
	return answerOne(r, r.pathID("id", "message ID"), r.messageJSON, s.Queue.Message)
}

// retryMessage makes a failed message due now.
func (s *Server) retryMessage(r *request) error {
	return answerOne(r, r.pathID("id", "message ID"), r.messageJSON, s.Queue.Retry)
}

func (s *Server) discardMessage(r *request) error {
	return deleteOne(r, r.pathID("id", "message ID"), s.Queue.Discard)
}
