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
	CreatedAt     api.Time       `json:"createdAt"`
	DueAt         api.Time       `json:"dueAt"`
	ParkedAt      api.Time       `json:"parkedAt,omitzero"`
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

// countJSON is a number up to which messages were counted.
type countJSON struct {
	Count int  `json:"count"`
	More  bool `json:"more"`
}

// countsJSON are the numbers of messages by state.
type countsJSON struct {
	Parked    countJSON `json:"parked"`
	Retrying  countJSON `json:"retrying"`
	Leased    countJSON `json:"leased"`
	Due       countJSON `json:"due"`
	Delayed   countJSON `json:"delayed"`
	OldestDue api.Time  `json:"oldestDue,omitzero"`
}

func newCountsJSON(c queue.Counts) countsJSON {
	return countsJSON{
		countJSON(c.Parked), countJSON(c.Retrying), countJSON(c.Leased), countJSON(c.Due), countJSON(c.Delayed),
		optionalTime(c.OldestDue),
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

// changeResult is the answer to a request to retry or discard many messages.
type changeResult struct {
	Matched    int      `json:"matched"`
	Changed    int      `json:"changed"`
	MessageIDs []string `json:"messageIds"`
	More       bool     `json:"more"`
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
	return answer(r, func() (v changeResult, err error) {
		ids, more := body.MessageIDs, false
		if ids == nil {
			ids, more, err = s.findMessages(r, f, body.Limit)
		}
		if err == nil && !body.DryRun && len(ids) > 0 {
			v.Changed, err = m.do(r.ctx(), r.project(), f, ids)
		}
		v.Matched, v.More, v.MessageIDs = len(ids), more, append([]string{}, ids...)
		return v, err
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
