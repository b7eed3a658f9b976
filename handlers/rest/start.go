package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/continuation"
)

const (
	// latest names the deployment that new runs of a workflow go to.
	latest = "latest"

	onConflictReject = "reject"
	onConflictJoin   = "join"

	// maxSpan limits how far ahead a run may start, how long it may take, and other durations in requests.
	maxSpan = 10 * 365 * 24 * time.Hour
)

// startRequest is the body of a request that starts a run.
type startRequest struct {
	Workflow       string            `json:"workflow"`
	Input          json.RawMessage   `json:"input,omitempty"`
	Deployment     string            `json:"deployment"`
	IdempotencyKey string            `json:"idempotencyKey"`
	Key            string            `json:"key"`
	OnConflict     string            `json:"onConflict"`
	Attributes     map[string]string `json:"attributes"`
	Delay          string            `json:"delay"`
	StartAt        api.Instant       `json:"startAt"`
	Timeout        string            `json:"timeout"`
	Parent         entities.RunID    `json:"parent"`
	// TimeoutGrace is omitted if it is empty, so that requests without it keep the digest that they had before.
	TimeoutGrace string `json:"timeoutGrace,omitempty"`
	// Inbox lists the inboxes with which the run starts, and Send messages to them. They are left out of the digest of a
	//  request without them, as in servers that did not know them.
	Inbox []string       `json:"inbox,omitempty"`
	Send  []firstMessage `json:"send,omitempty"`
	// Debounce or Batch makes one run of several starts. Only one of them may be there.
	Debounce *api.Debounce `json:"debounce,omitempty"`
	Batch    *api.Batch    `json:"batch,omitempty"`
	// Limits are those that the run needs slots of, and Priority is by how much it goes before others that wait.
	Limits   []entities.LimitUse `json:"limits,omitempty"`
	Priority string              `json:"priority,omitempty"`
	catalogStart
}

// event returns the event that starts the run, without its deployment.
func (b startRequest) event(now time.Time) (eventlog.Request, error) {
	content, err := json.Marshal(b)
	if err != nil {
		return eventlog.Request{}, err
	}
	e := eventlog.NewRun(now, b.Input, entities.EventData{
		WorkflowName: b.Workflow, Attributes: b.Attributes, UniqueKey: b.Key, IdempotencyKey: b.IdempotencyKey,
		ParentID: b.Parent, RequestDigest: incoming.Digest(content),
	})
	if err := b.validate(); err != nil {
		return e, err
	}
	if e.Data.StartAt, err = b.startAt(now); err != nil {
		return e, err
	}
	if e.Data.Deadline, err = b.deadline(now, e.Data.StartAt); err != nil {
		return e, err
	}
	uses, priority, err := limitsOf(b.Limits, b.Priority)
	if err != nil {
		return e, err
	}
	e.Data.Limits, e.Data.PriorityMS = uses, priority.Milliseconds()
	e.Data.TimeoutGraceMS, err = b.timeoutGrace()
	return e, err
}

// validate checks what the log would also reject, so that the error can name the field.
func (b startRequest) validate() error {
	if err := cmp.Or(
		checkIDField("parent", string(b.Parent)),
		inField("attributes", entities.ValidateAttributes(b.Attributes, false)),
		checkNameField("key", b.Key),
		checkNameField("idempotencyKey", b.IdempotencyKey),
		b.validateInboxes(),
	); err != nil {
		return err
	}
	switch {
	case b.OnConflict == onConflictJoin && b.Key == "":
		return badField("onConflict", "without a key there can be no conflict")
	case b.OnConflict != "" && b.OnConflict != onConflictReject && b.OnConflict != onConflictJoin:
		return badField("onConflict", "%q is neither %s nor %s", b.OnConflict, onConflictReject, onConflictJoin)
	}
	return nil
}

// startAt returns when the run starts; nil for immediately.
func (b startRequest) startAt(now time.Time) (*time.Time, error) {
	if at := b.StartAt.Time; !at.IsZero() {
		if b.Delay != "" {
			return nil, badField("delay", "there is a startAt as well: give one of them")
		}
		if at.After(now.Add(maxSpan)) {
			return nil, badField("startAt", "%s is more than %s ahead", at.Format(time.RFC3339), maxSpan)
		}
		return &at, nil
	}
	if b.Delay == "" {
		return nil, nil
	}
	delay, err := durationField("delay", b.Delay, maxSpan)
	return new(now.Add(delay)), err
}

// deadline returns when the run fails if it has not ended; nil for never. The timeout counts from the run's start.
func (b startRequest) deadline(now time.Time, startAt *time.Time) (*time.Time, error) {
	if b.Timeout == "" {
		return nil, nil
	}
	timeout, err := durationField("timeout", b.Timeout, maxSpan)
	if err == nil && timeout < time.Millisecond {
		err = badField("timeout", "%q is less than 1ms", b.Timeout)
	}
	if startAt != nil && startAt.After(now) {
		now = *startAt
	}
	return new(now.Add(timeout)), err
}

// limitsOf returns the limits of a run, and its priority.
func limitsOf(uses []entities.LimitUse, text string) ([]entities.LimitUse, time.Duration, error) {
	var priority time.Duration
	if text != "" {
		var err error
		if priority, err = time.ParseDuration(text); err != nil {
			return nil, 0, badField("priority", "%q is not a duration such as 10m or -1h", text)
		}
	}
	return uses, priority, inField("limits", limit.ValidateUses(uses, priority))
}

// timeoutGrace returns how many milliseconds the run may take to end by itself after its timeout.
func (b startRequest) timeoutGrace() (int64, error) {
	if b.TimeoutGrace != "" && b.Timeout == "" {
		return 0, badField("timeoutGrace", "there is no timeout: give both")
	}
	grace, err := durationField("timeoutGrace", b.TimeoutGrace, maxSpan)
	return grace.Milliseconds(), err
}

type runIDKey struct{}

// WithRunID has a request of the server itself start a run with this ID, which it has promised.
func WithRunID(ctx context.Context, id entities.RunID) context.Context {
	return context.WithValue(ctx, runIDKey{}, id)
}

// startRun starts a run that the server drives.
func (s *Server) startRun(r *request) error {
	var body startRequest
	if r.body(&body); r.err != nil {
		return r.err
	}
	if err := body.planned(); err != nil {
		return err
	}
	if body.isCollected() {
		return s.collectStart(r, body)
	}
	var event eventlog.Request
	err := r.processors.Use(r.ctx(), int64(len(body.Input)), func() (err error) {
		event, err = body.event(s.Log.Now())
		return err
	})
	if err != nil {
		return err
	}
	if id, ok := r.ctx().Value(runIDKey{}).(entities.RunID); ok {
		event.RunID = id
	}
	messages := body.sent()
	ending := s.ending(r, event.RunID)
	defer ending.Close()
	for {
		run, joined, err := s.Log.JoinedBefore(r.ctx(), r.project(), event, messages)
		if err != nil {
			return err
		}
		if joined {
			return s.answerStarted(r, ending, run, event, false)
		}
		deployment, err := s.deploymentOf(r, body, event)
		if err != nil {
			return err
		}
		run, created, err := s.start(r, r.project(), event, deployment, append(opened(body.Inbox), messages...)...)
		if taken, ok := errors.AsType[*entities.KeyTakenError](err); ok && body.OnConflict == onConflictJoin {
			run, err = s.join(r, taken.RunID, messages)
			if errors.Is(err, entities.ErrRunEnded) {
				continue // its key is free now
			}
		}
		if err != nil {
			return err
		}
		return s.answerStarted(r, ending, run, event, created)
	}
}

// ending returns what waits for the end of a run that the request starts; nil if the client does not prefer that.
func (s *Server) ending(r *request, id entities.RunID) *read.Ending {
	if incoming.PreferredWait(r.Request()) == 0 {
		return nil
	}
	return s.Log.Ending(r.project(), id)
}

// answerEnd answers with the run of a start when it has ended, or has taken too long for the client or the server.
func (s *Server) answerEnd(r *request, ending *read.Ending, run entities.Run, created bool) (err error) {
	incoming.Waits(r)
	waiting, stop := s.waiting(r, min(incoming.PreferredWait(r.Request()), maxWait))
	defer stop()
	r.Response().Header().Set("Preference-Applied", "wait")
	if !created {
		if run, err = s.awaitLast(r, waiting, run.ID); err != nil {
			return err
		}
		return s.answerRun(r, run)
	}
	ending.Notified(waiting)
	run, err = ending.Wait(r.ctx(), waiting)
	if run, err = s.followEnd(r, waiting, run, err); err != nil {
		return err
	}
	return s.answerNewRun(r, run)
}

// join sends the messages to a run that is under way, all or none, and returns the run. It fails with
// [entities.ErrRunEnded] if there are messages and the run has ended.
func (s *Server) join(r *request, id entities.RunID, messages []eventlog.Request) (entities.Run, error) {
	if len(messages) > 0 {
		_, err := s.Log.AppendAll(r.ctx(), r.project(), id, messages, eventlog.AppendOptions{})
		if errors.Is(err, entities.ErrHookNotFound) {
			err = s.inboxNotFound(r, id, err)
		}
		if err != nil {
			return entities.Run{}, err
		}
	}
	return store.RunByID(r.ctx(), s.Reader, r.project(), id)
}

// answerStarted answers with a run that this request has created with the event, or an earlier one: at its end, if that
// is waited for. What the request has created need not be read.
func (s *Server) answerStarted(
	r *request, ending *read.Ending, run entities.Run, event eventlog.Request, created bool,
) error {
	switch {
	case ending != nil:
		return s.answerEnd(r, ending, run, created)
	case !created:
		return s.answerRun(r, run)
	}
	first := entities.Event{Payload: event.Payload, Extra: event.Extra, Data: event.Data}
	r.setCreatedAt(runPath(run.ID))
	return answer(r, func() (api.Run, error) {
		return decodeFor(r, func() api.Run {
			return newRunDetail(run, map[read.Position]entities.Event{{RunID: run.ID, Seq: 1}: first}, r.payloads())
		})
	})
}

// start starts a run on a deployment, and appends the other events to it. If the deployment cannot have it, an earlier,
// identical request may have started the run: the deployment may be gone by now.
func (s *Server) start(
	r *request, project entities.Project, event eventlog.Request, deployment string, then ...eventlog.Request,
) (entities.Run, bool, error) {
	still, err := s.addDeployment(r, project, &event, deployment, len(then) > 0)
	switch {
	case err != nil:
	case still == nil:
		return s.Log.Start(r.ctx(), project, event, then...)
	default:
		run, created, err := s.Log.StartWith(r.ctx(), project, event, eventlog.AppendOptions{With: still}, then...)
		if errors.Is(err, queue.ErrDeploymentChanged) {
			return s.start(r, project, event, deployment, then...)
		}
		return run, created, err
	}
	run, ok, before := s.Log.StartedBefore(r.ctx(), project, event)
	if ok || before != nil {
		err = before
	}
	return run, false, err
}

// addDeployment resolves the deployment of a start, and adds it to the event. The start must be made with the
// companion, unless that is nil.
func (s *Server) addDeployment(
	r *request, project entities.Project, event *eventlog.Request, deployment string, hasInboxes bool,
) (still eventlog.Companion, err error) {
	d, still, err := s.resolveDeployment(r, project, event.Data, deployment)
	if err == nil && hasInboxes && strings.HasPrefix(d.URL, contract.FlowScheme) {
		err = badField("inbox", "%s is a flow, and flows have no inboxes: give it hooks, and resume these", d.ID)
	}
	if err == nil {
		err = s.checkInput(r, project, d, event.Payload)
	}
	if err != nil && still != nil { // what is remembered may be gone or retired by now, which the client must know first
		_, gone := s.Queue.StartDeployment(r.ctx(), project, event.Data.WorkflowName, d.ID)
		err = cmp.Or(gone, err)
	}
	if err != nil {
		return nil, err
	}
	event.Data.DeploymentID, event.OfApp = d.ID, !strings.HasPrefix(d.URL, contract.FlowScheme)
	event.Messages, err = firstMessages(*event, project)
	return still, err
}

// resolveDeployment resolves the deployment that a request to start a run names. It may be remembered: see
// [queue.Queue.StartRemembered]. That of a child is read, because its start has another companion.
func (s *Server) resolveDeployment(
	r *request, project entities.Project, run entities.EventData, name string,
) (d queue.Deployment, still eventlog.Companion, err error) {
	if err := entities.ValidateWorkflowName("workflow", run.WorkflowName); err != nil {
		return d, nil, inField("workflow", err)
	}
	if name == latest {
		name = ""
	}
	if err := checkIDField("deployment", name); err != nil {
		return d, nil, err
	}
	if run.ParentID == "" {
		return s.Queue.StartRemembered(r.ctx(), project, run.WorkflowName, name)
	}
	d, err = s.Queue.StartDeployment(r.ctx(), project, run.WorkflowName, name)
	return d, nil, err
}

// checkInput fails with [flow.ErrPayloadTooLarge] if a deployment is a flow that could not read the input, and with
// [schema.ErrViolations] if it is one whose schema the input does not fit.
func (s *Server) checkInput(r *request, project entities.Project, d queue.Deployment, input json.RawMessage) error {
	if !strings.HasPrefix(d.URL, contract.FlowScheme) {
		return nil
	}
	err := flow.CheckSize(input)
	var p *flow.Program
	if err == nil {
		p, err = s.Flows.Program(r.ctx(), project, d.ID)
	}
	if err == nil && p.Input != nil {
		err = s.Runs.WithProcessor(r.ctx(), project, func() error { return p.CheckInput(input, r.ctx().Err) })
	}
	if err != nil {
		return fmt.Errorf("the input of flow %s: %w", d.ID, err)
	}
	return nil
}

// firstMessages returns the message that makes a client begin a new run. The server needs none for runs it drives.
func firstMessages(event eventlog.Request, project entities.Project) ([]message.Message, error) {
	if event.Data.Driver != entities.DriverClient {
		return nil, nil
	}
	m, err := continuation.Of(entities.Run{
		ID: event.RunID, Project: project, DeploymentID: event.Data.DeploymentID, WorkflowName: event.Data.WorkflowName,
		SpecVersion: event.SpecVersion,
	})
	m.BeginsRun = true
	return []message.Message{m}, err
}

// rerunRun starts a run with the workflow, input and attributes that another run was started with.
func (s *Server) rerunRun(r *request) error {
	var body api.RerunRunBody
	r.optionalBody(&body)
	original := r.run()
	if r.err != nil {
		return r.err
	}
	started, err := s.rerun(r, original, body)
	if err != nil {
		return err
	}
	return s.answerStarted(r, nil, started.run, started.event, started.created)
}

// startedRun is a run with the event that started it, unless an earlier request has created it.
type startedRun struct {
	run     entities.Run
	event   eventlog.Request
	created bool
}

// rerun starts a copy of a run.
func (s *Server) rerun(r *request, original entities.Run, body api.RerunRunBody) (started startedRun, err error) {
	var inboxes []string
	if started.event, inboxes, err = s.copyOf(r, original, body); err != nil {
		return started, err
	}
	started.run, started.created, err = s.start(
		r, original.Project, started.event, cmp.Or(body.Deployment, original.DeploymentID), opened(inboxes)...)
	return started, err
}

// copyOf returns the event that starts a copy of a run, without its deployment, and the inboxes with which it starts.
func (s *Server) copyOf(
	r *request, original entities.Run, body api.RerunRunBody,
) (event eventlog.Request, inboxes []string, err error) {
	if err = checkPlace(body, original); err != nil {
		return event, nil, err
	}
	if event, err = s.rerunEvent(r, original, body); err != nil {
		return event, nil, err
	}
	if body.Deployment != "" {
		event.Data.Build = ""
	}
	if isFork(body) {
		event, err = s.keep(r, original, body, event)
	} else {
		inboxes, err = s.inboxesOf(r, original)
	}
	return event, inboxes, err
}

// rerunEvent returns the event that starts a run like the original, without its deployment.
func (s *Server) rerunEvent(r *request, original entities.Run, body api.RerunRunBody) (eventlog.Request, error) {
	at := read.Position{RunID: original.ID, Seq: 1}
	events, err := s.Log.EventsAt(r.ctx(), []read.Position{at}, read.WithPayloads)
	if err != nil {
		return eventlog.Request{}, err
	}
	first, ok := events[at]
	if !ok { // retention deleted the run meanwhile
		return eventlog.Request{}, entities.ErrRunNotFound
	}
	if atrest.IsUnreadable(first.Payload) {
		return eventlog.Request{}, atrest.ErrShredded
	}
	now := s.Log.Now()
	event := eventlog.Request{
		RunID: entities.NewRunID(now), Type: entities.EventRunCreated, SpecVersion: original.SpecVersion,
		Payload: first.Payload, Extra: first.Extra, RerunOf: original.ID,
		Data: entities.EventData{
			Driver: original.Driver, WorkflowName: original.WorkflowName, Attributes: first.Data.Attributes,
			AllowReserved: first.Data.AllowReserved, UniqueKey: original.UniqueKey, IdempotencyKey: body.IdempotencyKey,
			RequestDigest: incoming.Digest([]byte("rerun " + string(original.ID) + " " + body.Deployment + placeOf(body))),
			Limits:        first.Data.Limits, PriorityMS: first.Data.PriorityMS, Build: first.Data.Build,
		},
	}
	if original.Deadline != nil {
		start := original.CreatedAt
		if first.Data.StartAt != nil && first.Data.StartAt.After(start) {
			start = *first.Data.StartAt
		}
		event.Data.Deadline = new(now.Add(original.Deadline.Sub(start)))
		event.Data.TimeoutGraceMS = first.Data.TimeoutGraceMS
	}
	return event, nil
}
