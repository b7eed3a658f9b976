package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/flow/condition"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/trigger/triggers"
)

// Engine continues runs that are driven by the server. It calls their functions and applies the commands they answer
// with.
type Engine struct {
	pool       *pgxpool.Pool
	queue      *queue.Queue
	log        *eventlog.Log
	conditions *condition.Conditions
	triggers   *triggers.Triggers
	callKey    *callKey
	// hooksURL is the beginning of the URL of every webhook; empty if the server does not know its public address.
	hooksURL string
	// cell is the cell of the server; empty for none.
	cell    entities.Cell
	kept    keptRuns
	flows   *registry.Registry
	secrets *admin.Secrets
	// remembering limits which signals are stored for runs that will listen.
	remembering *remembering
	// lateAnswers is [lateAnswers], or another time in tests.
	lateAnswers time.Duration
	shortWaits  *shortWaits
	// follows says what follows from new events in runs of flows.
	follows eventlog.Follow
}

// New makes an engine for the queue and the log of one database.
func New(q *queue.Queue, log *eventlog.Log) *Engine {
	now := func() time.Time { return log.Now() }
	conditions := condition.New(now)
	e := &Engine{
		pool: q.Pool(), queue: q, log: log, conditions: conditions, triggers: triggers.New(q, log, conditions),
		callKey: newCallKey(pg.NewPool(q.Pool()), now), kept: newKeptRuns(), flows: registry.New(q.Pool(), now),
		secrets:     admin.NewSecrets(q.Pool(), now),
		remembering: &remembering{}, lateAnswers: lateAnswers,
	}
	e.follows, e.shortWaits = e.decideInline, newShortWaits(now, e.wake)
	log.NoteBuilds(e.flows.Build)
	return e
}

// Triggers returns what starts runs because of events. It shares the limits on conditions with the engine.
func (e *Engine) Triggers() *triggers.Triggers { return e.triggers }

// hooksPath is the path of webhooks on the server.
const hooksPath = "/hooks/"

// WithPublicURL tells the engine the address at which the internet reaches the server; empty if it is unknown.
func (e *Engine) WithPublicURL(address string) *Engine {
	known := *e
	if known.hooksURL = ""; address != "" {
		known.hooksURL = strings.TrimSuffix(address, "/") + hooksPath
	}
	return &known
}

// InCell tells the engine the cell of the server, which the tokens of calls name.
func (e *Engine) InCell(c entities.Cell) *Engine {
	known := *e
	known.cell = c
	return &known
}

// Handlers returns the handler for each kind of work, for [queue.WorkerOptions]. Only one engine of a log may have
// handlers.
func (e *Engine) Handlers() map[message.Work]queue.Handler {
	e.log.MeasureAfter(e.kept.seq)
	e.log.FollowStarts(e.follows)
	signals := newSignalDispatch(e)
	return map[message.Work]queue.Handler{
		message.WorkRun:      e.invoke,
		message.WorkStep:     e.executeStep,
		message.WorkDeadline: e.enforceDeadline,
		message.WorkCancel:   e.cancel,
		message.WorkReport:   e.report,
		message.WorkEnd:      e.endChildren,
		message.WorkSignal:   signals.dispatch,
		message.WorkEmit:     e.emit,
		message.WorkLookBack: signals.replay,
		message.WorkTrigger:  e.triggers.Handle,
	}
}

// answer applies the commands that end an invocation, and starts or schedules the next one. The run is as the function
// got to know it.
func (e *Engine) answer(ctx context.Context, d queue.Delivery, run entities.Run, body []byte) error {
	var plan contract.Plan
	err := e.queue.Processors().Use(ctx, int64(len(body)), func() (err error) {
		plan, err = e.planner(ctx, run).Plan(body)
		return err
	})
	if err != nil {
		return err
	}
	end := &invocationEnd{
		Delivery: d, reservation: e.queue.Reserve(d.Project, d.DeploymentID),
		known: max(d.Known, cmp.Or(plan.Seen, run.LastSeq)), shortWaits: e.shortWaits,
	}
	plan.Know(end.known)
	if plan.Await != nil {
		end.awaiting = &eventlog.Awaiting{Condition: *plan.Await, Known: end.known, Called: run.LastSeq}
	}
	if plan.Seen > 0 {
		end.by = &queue.Copy{Knows: plan.Seen}
	}
	_, err = e.log.AppendAll(ctx, d.Project, d.RunID, plan.Requests, eventlog.AppendOptions{
		With: end, Streams: plan.Responses, Open: plan.Open, Seen: plan.Seen, Await: end.awaiting,
	})
	if errors.Is(err, ErrNothingLeft) {
		err = ErrNothingLeft // drop what wraps it: the answer is at fault, not the database
	}
	if err == nil { // before the next invocation starts
		e.kept.answered(d, plan.Keep, e.log.Now())
	}
	end.afterCommit(e.queue, err)
	return plan.Explain(err)
}

// checkLease returns a guard that fails the transaction unless the lease on the work is valid.
func checkLease(d queue.Delivery) func(*pgx.Batch) func([]eventlog.Request) error {
	return func(b *pgx.Batch) func([]eventlog.Request) error {
		guard := d.Guard(b)
		return func([]eventlog.Request) error { return guard.Check() }
	}
}

// planner returns the planner for commands of the run's function.
func (e *Engine) planner(ctx context.Context, run entities.Run) contract.Planner {
	return contract.Planner{
		Run: run, Now: e.log.Now(),
		Deployment: func(workflow, id string) (string, error) { return e.startOn(ctx, run.Project, workflow, id) },
		Condition:  func(text string) error { return e.conditions.Check(ctx, run.Project, text) },
	}
}

// startOn returns the deployment for a run that a run starts. It fails with a [contract.StartRefused] if none will ever
// do. An app that is not registered yet may be, and the run waits for it; a version or an alias of a flow is not
// awaited.
func (e *Engine) startOn(ctx context.Context, project entities.Project, workflow, id string) (string, error) {
	d, err := e.queue.StartDeployment(ctx, project, workflow, id)
	code := ""
	switch {
	case errors.Is(err, message.ErrDeploymentRetired):
		code = "flow_retired"
	case errors.Is(err, message.ErrStepsOnly):
		code = "deployment_steps_only"
	case errors.Is(err, message.ErrIsCatalog):
		code = "workflow_is_catalog"
	case errors.Is(err, entities.ErrInvalid):
		code = "flow_mismatch"
	case id != "" && errors.Is(err, message.ErrDeploymentNotFound):
		name, alias, ok := strings.Cut(id, "@")
		if !ok {
			return id, nil
		}
		_, unknown := e.flows.Versions(ctx, project, name)
		if errors.Is(unknown, registry.ErrNotFound) {
			return id, nil
		}
		if unknown != nil {
			return "", unknown
		}
		code, err = "alias_not_found", fmt.Errorf("the flow %s has no version or alias %s", name, alias)
	}
	if code != "" {
		err = contract.StartRefused{Message: err.Error(), Code: code}
	}
	return d.ID, err
}

// ErrNothingLeft refuses an answer after which its run could never move again.
const ErrNothingLeft = queue.PublicError(`the run would wait for nothing: ` +
	`answer with a step, a wait, a hook or a child to wait for, or with "complete" or "fail"`)

// recordStart records the start of an invocation: that the run has started, and which of its waits are over. It returns
// the run, and the size in bytes of the log that the call carries. An inline start was recorded by the transaction that
// leased the work.
func (e *Engine) recordStart(ctx context.Context, d queue.Delivery) (run entities.Run, size int64, err error) {
	if !d.HasStarted() {
		err = e.appendStart(ctx, &d)
	}
	if err != nil {
		return entities.Run{}, 0, err
	}
	return *d.Inline.Run, d.Inline.Size, nil
}

// invocationStart is an invocation whose start is recorded.
type invocationStart struct {
	*queue.Delivery
	eventlog.UnderLock

	guard *queue.LeaseGuard
}

// Lock checks the lease.
func (s *invocationStart) Lock(b *pgx.Batch) func([]eventlog.Request) error {
	s.guard = s.Delivery.Guard(b)
	return func([]eventlog.Request) error { return s.guard.Check() }
}

// StartNext starts this invocation.
func (s *invocationStart) StartNext(*pgx.Batch, bool) func() *eventlog.InlineStart {
	s.ClaimedAt = s.guard.At
	return s.InlineStart
}

// appendStart records the start of an invocation in a transaction of its own.
func (e *Engine) appendStart(ctx context.Context, d *queue.Delivery) error {
	started := eventlog.Request{Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven, Once: true}
	_, err := e.log.AppendAll(ctx, d.Project, d.RunID, []eventlog.Request{started},
		eventlog.AppendOptions{With: &invocationStart{Delivery: d}})
	if err == nil && !d.HasStarted() { // nothing was started: the run is not driven by the server
		err = fmt.Errorf("run %s: %w", d.RunID, entities.ErrRunEnded)
	}
	return err
}
