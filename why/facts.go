package why

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/concurrency"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

const (
	// MaxParts is how many open steps, hooks and waits of a run are read, each.
	MaxParts = 50
	// MaxBacklog limits [Reason.Backlog]: at the limit, there are that many or more.
	MaxBacklog = 1000
)

// Facts are what an explanation follows from.
type Facts struct {
	Run entities.Run
	// Now is the time of the snapshot.
	Now   time.Time
	Watch cluster.Watch
	// Messages are those of the run itself; those of its steps are with the steps.
	Messages []Message
	Steps    []Step
	Hooks    []HookFact
	Waits    []WaitFact
	// Limits are the slots that the run and its steps wait for.
	Limits []LimitFact
	// Open counts the steps, hooks and waits that are open, whether or not they are in the lists. If the run's function
	// has said which steps it awaits, the others do not count.
	Open Parts
	// Backlog is as in [Reason].
	Backlog int
	// PausedAt is set while the project is paused.
	PausedAt *time.Time
}

// Message is a message of the queue.
type Message struct {
	ID              string
	DeploymentID    string
	Work            message.Work
	Subject         string
	Lease           string
	Holder, Host    string
	Ticketed        bool // it ever had a ticket, so its first delay is over
	DeliveryCount   int
	DisconnectCount int
	ExcusedCount    int
	UnreachedCount  int
	LastError       string
	Blocked         *message.Blocked
	FirstFailedAt   *time.Time
	CreatedAt       time.Time
	DueAt           time.Time
	ParkedAt        *time.Time
	// Registered says that the deployment is, and UnhealthySince since when its probes fail; nil if they do not.
	Registered     bool
	UnhealthySince *time.Time
	// AwaitsSince is set if the message waits until its deployment may be called. Of MaxCalls, UnderWay are under way, and
	// Ahead messages are before it.
	AwaitsSince               *time.Time
	MaxCalls, UnderWay, Ahead int
}

// Step is an open step.
type Step struct {
	ID         entities.StepID
	Name       string
	Status     entities.StepStatus
	Attempt    int
	ResultSeq  int64
	CreatedAt  time.Time
	UpdatedAt  time.Time
	RetryAfter *time.Time
	// Spec is set if the server executes the step.
	Spec *entities.StepSpec
	// ErrorCode is that of the last attempt.
	ErrorCode string
	Total     int

	// Message is the step's message, and ChildStatus the status of the child run that it stands for.
	Message     *Message           `db:"-"`
	ChildStatus entities.RunStatus `db:"-"`
}

// HookFact is an open hook.
type HookFact struct {
	ID                  entities.HookID
	IsWebhook, IsSystem bool
	Signal, Condition   string
	// IsApproval reports whether it accepts only votes. Votes is how many it has.
	IsApproval bool
	Votes      int
	CreatedAt  time.Time
	Total      int
}

// WaitFact is an open wait.
type WaitFact struct {
	ID        entities.WaitID
	ResumeAt  *time.Time
	CreatedAt time.Time
	Total     int
}

// Of explains a run of the project. It fails with [entities.ErrRunNotFound].
func Of(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, id entities.RunID,
) (Explanation, error) {
	var f Facts
	err := pg.NewPool(pool).Snapshot(ctx, func(tx pgx.Tx) (err error) {
		f, err = read(ctx, tx, project, id)
		return err
	})
	if err != nil {
		return Explanation{}, fmt.Errorf("explain run %s: %w", id, err)
	}
	return Explain(f), nil
}

// read reads the facts: the run, its parts, the limits that it waits for, and the messages and children of its steps.
func read(ctx context.Context, tx pgx.Tx, project entities.Project, id entities.RunID) (f Facts, err error) {
	var run *entities.Run
	var b pgx.Batch
	store.LoadRun(&b, project, id, &run)
	f.loadMessages(&b, project, id)
	cluster.LoadWatch(&b, id, &f.Watch)
	if err := pg.SendQueued(ctx, tx, &b); err != nil {
		return Facts{}, err
	}
	if run == nil {
		return Facts{}, entities.ErrRunNotFound
	}
	f.Run = *run
	if run.Status.Ended() {
		return f, nil
	}
	f.loadParts(&b)
	if err := pg.SendQueued(ctx, tx, &b); err != nil {
		return Facts{}, err
	}
	if err := f.readLimits(ctx, tx); err != nil {
		return Facts{}, err
	}
	f.loadStepWork(&b)
	return f, pg.SendQueued(ctx, tx, &b)
}

// messageColumns are those of a [Message] m.
var messageColumns = `m.id, m.deployment_id, m.work, m.subject, m.lease, m.holder,
	coalesce((SELECT host FROM processes p WHERE p.id = m.holder), '') AS host, m.ticket > 0 AS ticketed, m.delivery_count,
	m.disconnect_count, m.excused_count, m.unreached_count, m.last_error, m.blocked,
	m.first_failed_at, m.created_at, m.due_at, m.parked_at,
	EXISTS (SELECT FROM deployments d WHERE d.project = m.project AND d.id = m.deployment_id) AS registered,
	(SELECT unhealthy_since FROM deployments d WHERE d.project = m.project AND d.id = m.deployment_id) AS unhealthy_since,
	m.awaits_since,` + concurrency.Awaited

var (
	// workOfRunSQL selects the work about run $1 itself, at most $2. What has no subject comes first: one piece of each
	// kind, such as the invocation. There is a lookback for each hook; those that are parked or failed come before others.
	// messages_work_key is a partial index on the work.
	workOfRunSQL = `SELECT ` + messageColumns + ` FROM messages m
		WHERE m.run_id = $1 AND m.work = ANY ('{run,deadline,cancel,end,lookback}') AND m.work <> ''
		ORDER BY m.subject <> '', m.parked_at, m.last_error = '', m.id LIMIT $2`
	// messagesOfAppSQL selects the messages for the app that continues run $1 of project $2, at most $3: first those that
	// are parked, then those that failed.
	messagesOfAppSQL = `SELECT ` + messageColumns + ` FROM messages m
		WHERE m.run_id = $1 AND m.project = $2 AND m.work = ''
			AND m.deployment_id = (SELECT deployment_id FROM runs WHERE ` + store.OfRun + `)
		ORDER BY m.parked_at, m.last_error = '', m.due_at LIMIT $3`
	// backlogSQL counts the due messages of project $1, at most $2, and reads since when it is paused.
	backlogSQL = `SELECT now(), (SELECT count(*) FROM (
		SELECT FROM messages
		WHERE project = $1 AND begins_run IN (false, true) AND parked_at IS NULL AND due_at <= now() LIMIT $2) AS due),
		(SELECT paused_at FROM projects WHERE name = $1)`
)

// loadMessages queues reads of the run's messages and of the time.
func (f *Facts) loadMessages(b *pgx.Batch, project entities.Project, id entities.RunID) {
	add := func(m Message) { f.Messages = append(f.Messages, m) }
	pg.LoadEach(b, add, workOfRunSQL, id, 2*MaxParts)
	pg.LoadEach(b, add, messagesOfAppSQL, id, project, MaxParts)
	b.Queue(backlogSQL, project, MaxBacklog).QueryRow(func(row pgx.Row) error {
		return row.Scan(&f.Now, &f.Backlog, &f.PausedAt)
	})
}

const (
	// openStepsSQL selects the open steps of run $1, at most $3, and counts all; if $2 is not NULL, only those with these
	// IDs. Steps that are tried again come first. The subqueries are looked up by both columns of their index, while a
	// join that was planned when there were few events would read the whole log.
	openStepsSQL = `
		SELECT s.id, s.name, s.status, s.attempt, s.result_seq, s.created_at, s.updated_at, s.retry_after, s.total,
			(SELECT e.data->'step' FROM events e WHERE e.run_id = $1 AND e.seq = s.created_seq) AS spec,
			coalesce((SELECT e.data->>'errorCode' FROM events e WHERE e.run_id = $1 AND e.seq = s.result_seq), '') AS error_code
		FROM (
			SELECT id, name, status, attempt, created_seq, result_seq, created_at, updated_at, retry_after,
				count(*) OVER () AS total
			FROM steps
			WHERE run_id = $1 AND completed_at IS NULL AND ($2::text[] IS NULL OR id = ANY ($2))
			ORDER BY retry_after, created_seq LIMIT $3) AS s
		ORDER BY s.retry_after, s.created_seq`
	openHooksSQL = `
		SELECT h.id, h.is_webhook, h.is_system, h.signal, h.condition, h.created_at, h.total, e.is_approval,
			CASE WHEN e.is_approval THEN (
				SELECT count(*) FROM events v WHERE v.run_id = $1 AND v.correlation_id = h.id AND v.type = 'hook_received'
			) ELSE 0 END AS votes
		FROM (
			SELECT id, is_webhook, is_system, signal, condition, created_seq, created_at, count(*) OVER () AS total
			FROM hooks WHERE run_id = $1 ORDER BY created_seq LIMIT $2) AS h, LATERAL (
			SELECT coalesce(data -> 'webhook' ->> 'verify', '') = '` + webhook.Vote + `' AS is_approval
			FROM events WHERE run_id = $1 AND seq = h.created_seq) AS e
		ORDER BY h.created_seq`
	openWaitsSQL = `
		SELECT id, resume_at, created_at, count(*) OVER () AS total
		FROM waits WHERE run_id = $1 AND status = 'waiting' ORDER BY resume_at, id LIMIT $2`
)

// loadParts queues reads of the run's open steps, hooks and waits.
func (f *Facts) loadParts(b *pgx.Batch) {
	pg.LoadEach(b, func(s Step) { f.Steps, f.Open.Steps = append(f.Steps, s), s.Total },
		openStepsSQL, f.Run.ID, f.awaitedSteps(), MaxParts)
	pg.LoadEach(b, func(h HookFact) { f.Hooks, f.Open.Hooks = append(f.Hooks, h), h.Total },
		openHooksSQL, f.Run.ID, MaxParts)
	pg.LoadEach(b, func(w WaitFact) { f.Waits, f.Open.Waits = append(f.Waits, w), w.Total },
		openWaitsSQL, f.Run.ID, MaxParts)
}

var (
	// workOfStepsSQL selects the messages of the steps $2 of run $1.
	workOfStepsSQL = `SELECT ` + messageColumns + ` FROM messages m
		WHERE m.run_id = $1 AND m.work = ANY ('{step,report}') AND m.work <> '' AND m.subject = ANY ($2)`
	statusesSQL = `SELECT id, status FROM runs WHERE id = ANY ($1)`
)

// loadStepWork queues reads of the messages and the children of the steps.
func (f *Facts) loadStepWork(b *pgx.Batch) {
	if len(f.Steps) == 0 {
		return
	}
	ids, children := make([]entities.StepID, len(f.Steps)), []entities.RunID{}
	byID, byChild := map[string]*Step{}, map[entities.RunID]*Step{}
	for i := range f.Steps {
		s := &f.Steps[i]
		ids[i], byID[string(s.ID)] = s.ID, s
		if id := s.childID(); id != "" {
			children, byChild[id] = append(children, id), s
		}
	}
	pg.LoadEach(b, func(m Message) {
		m.DueAt = f.dueAt(m)
		byID[m.Subject].Message = &m
	}, workOfStepsSQL, f.Run.ID, ids)
	type child struct {
		ID     entities.RunID
		Status entities.RunStatus
	}
	pg.LoadEach(b, func(c child) { byChild[c.ID].ChildStatus = c.Status }, statusesSQL, children)
}

// dueAt returns when a step's message is due. If it waits for slots, that is when it may have them.
func (f *Facts) dueAt(m Message) time.Time {
	for _, l := range f.Limits {
		if l.MessageID == m.ID {
			return *cmp.Or(l.NotBefore, &l.CreatedAt)
		}
	}
	return m.DueAt
}

// childID returns the child run that the step stands for; empty if it is none.
func (s Step) childID() entities.RunID {
	if s.Spec == nil {
		return ""
	}
	return s.Spec.ChildID
}
