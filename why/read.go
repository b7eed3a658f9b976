package why

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/concurrency"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

// Of explains a run of the project. It fails with [entities.ErrRunNotFound].
func Of(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, id entities.RunID,
) (Explanation, error) {
	found, err := explain(ctx, pool, project, []entities.RunID{id}, wholly)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain run %s: %w", id, err)
	}
	e, ok := found[id]
	if !ok {
		return e, fmt.Errorf("explain run %s: %w", id, entities.ErrRunNotFound)
	}
	return e, nil
}

// OfMany explains those of the runs that the project has, as lists show them: with as many statements as [Of], however
// many they are. The first reason is that of [Of] as long as it follows from the first few parts of the run; of a run
// with more it is a true one. Numbers of those that wait or hold slots are missing.
func OfMany(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, ids []entities.RunID,
) (map[entities.RunID]Explanation, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := explain(ctx, pool, project, ids, briefly)
	return found, pg.Wrap(err, "explain runs")
}

// explain explains runs as they are in one snapshot.
func explain(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, ids []entities.RunID, to extent,
) (map[entities.RunID]Explanation, error) {
	var f *findings
	err := pg.NewPool(pool).Snapshot(ctx, func(tx pgx.Tx) (err error) {
		f, err = read(ctx, tx, project, ids, to)
		return err
	})
	if err != nil {
		return nil, err
	}
	explained := map[entities.RunID]Explanation{}
	for id, facts := range f.of {
		explained[id] = Explain(*facts)
	}
	return explained, nil
}

// extent is how much is read about each run.
type extent struct {
	// parts is how many open steps, hooks and waits are read, each. Open steps are looked for among the lastSteps.
	parts, lastSteps int
	// backlog, ahead and waiting are how far those are counted that are due, that are before a message at its deployment,
	// and that wait for a slot; holders is how many holders of slots are read.
	backlog, ahead, waiting, holders int
}

var (
	wholly = extent{
		parts: MaxParts, lastSteps: math.MaxInt32, backlog: MaxBacklog, ahead: MaxBacklog, waiting: 10_000,
		holders: maxHolders,
	}
	briefly = extent{parts: 10, lastSteps: 1000}
)

// findings are the facts about runs of a project while they are read.
type findings struct {
	extent

	project entities.Project
	of      map[entities.RunID]*Facts
	// open are the runs that have not ended; ids and deployments are theirs.
	open             []*Facts
	ids, deployments []string
}

// read reads the facts: the runs, their parts, the limits that they wait for, and the messages and children of steps.
func read(
	ctx context.Context, tx pgx.Tx, project entities.Project, ids []entities.RunID, to extent,
) (*findings, error) {
	runs, err := store.RunsByID(ctx, tx, project, ids)
	if err != nil {
		return nil, err
	}
	f := &findings{extent: to, project: project, of: map[entities.RunID]*Facts{}}
	for _, r := range runs {
		facts := &Facts{Run: r}
		f.of[r.ID] = facts
		if !r.Status.Ended() {
			f.open = append(f.open, facts)
			f.ids, f.deployments = append(f.ids, string(r.ID)), append(f.deployments, r.DeploymentID)
		}
	}
	var b pgx.Batch
	f.loadClock(&b)
	if len(f.open) > 0 {
		f.loadPauses(&b)
		f.loadMessages(&b)
		cluster.LoadWatches(&b, f.ids, func(id entities.RunID) *cluster.Watch { return &f.of[id].Watch })
		f.loadParts(&b)
	}
	if err := pg.SendQueued(ctx, tx, &b); err != nil || len(f.open) == 0 {
		return f, err
	}
	if err := f.readLimits(ctx, tx); err != nil {
		return nil, err
	}
	f.loadStepWork(&b)
	return f, pg.SendQueued(ctx, tx, &b)
}

// clockSQL reads the time, counts the due messages of project $1, at most $2, and reads since when it is paused.
const clockSQL = `SELECT now(), (SELECT count(*) FROM (
		SELECT FROM messages
		WHERE project = $1 AND begins_run IN (false, true) AND parked_at IS NULL AND due_at <= now() LIMIT $2) AS due),
		(SELECT paused_at FROM projects WHERE name = $1)`

// loadClock queues a read of what is the same for all runs of the project.
func (f *findings) loadClock(b *pgx.Batch) {
	b.Queue(clockSQL, f.project, f.backlog).QueryRow(func(row pgx.Row) error {
		var same Facts
		err := row.Scan(&same.Now, &same.Backlog, &same.PausedAt)
		for _, facts := range f.of {
			facts.Now, facts.Backlog, facts.PausedAt = same.Now, same.Backlog, same.PausedAt
		}
		return err
	})
}

// loadPauses queues a read of the pauses of the project, which are the same for all runs.
func (f *findings) loadPauses(b *pgx.Batch) {
	pauses := map[hold.Subject]hold.Pause{}
	hold.Load(b, f.project, func(p hold.Pause) { pauses[p.Subject] = p })
	for _, facts := range f.open {
		facts.Pauses = pauses
	}
}

// messageColumns are those of a [Message] m. The parameter $1 is up to what those are counted that are before it.
var messageColumns = `m.run_id, m.id, m.deployment_id, m.work, m.subject, m.lease, m.holder,
		coalesce((SELECT host FROM processes p WHERE p.id = m.holder), '') AS host, m.ticket > 0 AS ticketed,
		m.delivery_count, m.disconnect_count, m.excused_count, m.unreached_count, m.last_error, m.blocked,
		m.first_failed_at, m.created_at, m.due_at, m.parked_at, m.held_by,
		EXISTS (SELECT FROM deployments d WHERE d.project = m.project AND d.id = m.deployment_id) AS registered,
		(SELECT unhealthy_since FROM deployments d
			WHERE d.project = m.project AND d.id = m.deployment_id) AS unhealthy_since,
		m.awaits_since,` + concurrency.Awaited

// Each of the statements finds the rows of one run after the other, by an index, up to a number for each: Postgres
// cannot turn a LATERAL part with a LIMIT into a join that reads a whole table.
var (
	// workOfRunsSQL selects the work about the runs $2 themselves, at most $3 for each. What has no subject comes first:
	// one piece of each kind, such as the invocation. There is a lookback for each hook; those that are parked or failed
	// come before others. messages_work_key is a partial index on the work.
	workOfRunsSQL = `SELECT m.* FROM unnest($2::text[]) AS r (id), LATERAL (
		SELECT ` + messageColumns + ` FROM messages m
		WHERE m.run_id = r.id AND m.work = ANY ('{run,deadline,cancel,end,lookback}') AND m.work <> ''
		ORDER BY m.subject <> '', m.parked_at, m.last_error = '', m.id LIMIT $3) AS m`
	// messagesOfAppsSQL selects the messages for the apps that continue the runs $2, which have the deployments $3, of
	// project $4, at most $5 for each run: first those that are parked, then those that failed.
	messagesOfAppsSQL = `SELECT m.* FROM unnest($2::text[], $3::text[]) AS r (id, deployment_id), LATERAL (
		SELECT ` + messageColumns + ` FROM messages m
		WHERE m.run_id = r.id AND m.project = $4 AND m.work = '' AND m.deployment_id = r.deployment_id
		ORDER BY m.parked_at, m.last_error = '', m.due_at LIMIT $5) AS m`
)

// loadMessages queues reads of the messages about the runs themselves.
func (f *findings) loadMessages(b *pgx.Batch) {
	add := func(m Message) { f.of[m.RunID].Messages = append(f.of[m.RunID].Messages, m) }
	pg.LoadEach(b, add, workOfRunsSQL, f.ahead, f.ids, 2*f.parts)
	pg.LoadEach(b, add, messagesOfAppsSQL, f.ahead, f.ids, f.deployments, f.project, f.parts)
}

const (
	// openStepsSQL selects the open steps of the runs $1, at most $3 for each, among the last $4 steps, and counts them.
	// If the run's element of $2 is not NULL, only those that are keys of it count. Steps that are tried again come first.
	// The subqueries are looked up by both columns of their index, while a join that was planned when there were few
	// events would read the whole log.
	openStepsSQL = `
		SELECT r.id AS run_id, s.id, s.name, s.status, s.attempt, s.result_seq, s.created_at, s.updated_at, s.retry_after,
			s.total,
			(SELECT e.data->'step' FROM events e WHERE e.run_id = r.id AND e.seq = s.created_seq) AS spec,
			coalesce((SELECT e.data->>'errorCode' FROM events e
				WHERE e.run_id = r.id AND e.seq = s.result_seq), '') AS error_code
		FROM unnest($1::text[], $2::jsonb[]) WITH ORDINALITY AS r (id, awaited, n), LATERAL (
			SELECT id, name, status, attempt, created_seq, result_seq, created_at, updated_at, retry_after,
				count(*) OVER () AS total
			FROM (SELECT * FROM steps WHERE run_id = r.id ORDER BY created_seq DESC LIMIT $4) AS last
			WHERE completed_at IS NULL AND (r.awaited IS NULL OR r.awaited ? id)
			ORDER BY retry_after, created_seq LIMIT $3) AS s
		ORDER BY r.n, s.retry_after, s.created_seq`
	openHooksSQL = `
		SELECT h.run_id, h.id, h.token, h.is_webhook, h.is_system, h.signal, h.condition, h.created_at, h.total,
			e.is_approval,
			CASE WHEN e.is_approval THEN (
				SELECT count(*) FROM events v
				WHERE v.run_id = h.run_id AND v.correlation_id = h.id AND v.` + store.OfType + ` = 'hook_received'
			) ELSE 0 END AS votes
		FROM unnest($1::text[]) AS r (id), LATERAL (
			SELECT run_id, id, token, is_webhook, is_system, signal, condition, created_seq, created_at,
				count(*) OVER () AS total
			FROM hooks WHERE run_id = r.id ORDER BY created_seq LIMIT $2) AS h, LATERAL (
			SELECT coalesce(data -> 'webhook' ->> 'verify', '') = '` + webhook.Vote + `' AS is_approval
			FROM events WHERE run_id = h.run_id AND seq = h.created_seq LIMIT 1) AS e
		ORDER BY h.created_seq`
	openWaitsSQL = `
		SELECT w.* FROM unnest($1::text[]) AS r (id), LATERAL (
			SELECT run_id, id, resume_at, created_at, count(*) OVER () AS total
			FROM waits WHERE run_id = r.id AND status = 'waiting' ORDER BY resume_at, id LIMIT $2) AS w
		ORDER BY w.resume_at, w.id`
)

// loadParts queues reads of the runs' open steps, hooks and waits.
func (f *findings) loadParts(b *pgx.Batch) {
	pg.LoadEach(b, func(s Step) {
		of := f.of[s.RunID]
		of.Steps, of.Open.Steps = append(of.Steps, s), s.Total
	}, openStepsSQL, f.ids, f.awaited(), f.parts, f.lastSteps)
	pg.LoadEach(b, func(h HookFact) {
		of := f.of[h.RunID]
		of.Hooks, of.Open.Hooks = append(of.Hooks, h), h.Total
	}, openHooksSQL, f.ids, f.parts)
	pg.LoadEach(b, func(w WaitFact) {
		of := f.of[w.RunID]
		of.Waits, of.Open.Waits = append(of.Waits, w), w.Total
	}, openWaitsSQL, f.ids, f.parts)
}

// awaited returns for each open run an object with the steps that it awaits as keys, which are found by bisection; nil
// if all of its steps count.
func (f *findings) awaited() []*string {
	list := make([]*string, len(f.open))
	for i, facts := range f.open {
		steps := facts.awaitedSteps()
		if steps == nil {
			continue
		}
		keys := map[string]bool{}
		for _, id := range steps {
			keys[id] = true
		}
		text, _ := json.Marshal(keys) //nolint:errchkjson // of texts
		list[i] = new(string(text))
	}
	return list
}

var (
	// workOfStepsSQL selects the messages of the steps $3 of the runs $2.
	workOfStepsSQL = `SELECT m.* FROM unnest($2::text[], $3::text[]) AS s (run_id, id), LATERAL (
		SELECT ` + messageColumns + ` FROM messages m
		WHERE m.run_id = s.run_id AND m.work = ANY ('{step,report}') AND m.work <> '' AND m.subject = s.id LIMIT 2) AS m`
	statusesSQL = `SELECT id, status FROM runs WHERE id = ANY ($1)`
)

// loadStepWork queues reads of the messages and the children of the steps.
func (f *findings) loadStepWork(b *pgx.Batch) {
	type key struct {
		run entities.RunID
		id  entities.StepID
	}
	var runs, ids []string
	children := []entities.RunID{}
	byID, byChild := map[key]*Step{}, map[entities.RunID]*Step{}
	for _, facts := range f.open {
		for i := range facts.Steps {
			s := &facts.Steps[i]
			runs, ids, byID[key{s.RunID, s.ID}] = append(runs, string(s.RunID)), append(ids, string(s.ID)), s
			if id := s.childID(); id != "" {
				children, byChild[id] = append(children, id), s
			}
		}
	}
	if len(ids) == 0 {
		return
	}
	pg.LoadEach(b, func(m Message) {
		m.DueAt = f.of[m.RunID].dueAt(m)
		byID[key{m.RunID, entities.StepID(m.Subject)}].Message = &m
	}, workOfStepsSQL, f.ahead, runs, ids)
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
