package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// State is the state of a message in the queue, or a part of one that lists can be narrowed to.
type State string

// The states of messages.
const (
	// StateWaiting: the message waits for its delay or backoff to end, or for a worker.
	StateWaiting State = "waiting"
	// StateLeased: the message is being delivered, or processed by its function.
	StateLeased State = "leased"
	// StateParked: the message failed too often. It is not delivered again until an operator retries it.
	StateParked State = "parked"
)

// Each waiting message is in one of these parts.
const (
	// StateRetrying: a delivery has failed, and the next one is due after a backoff.
	StateRetrying State = "retrying"
	// StateDue: no delivery has failed, and the message waits for a worker.
	StateDue State = "due"
	// StateDelayed: no delivery has failed, and the message waits for its time.
	StateDelayed State = "delayed"
)

const (
	byID  = `id`
	byDue = `due_at, id`

	// ticketEnd is the latest time at which a message is due that waits for a worker with a ticket: [ticketTime], and
	// twice the time that tickets wait, from now; see [takeDue].
	ticketEnd = `(SELECT now() + interval '30 s' + 2 * greatest(now() - min(scheduled_at), '0')
		FROM (` + tickets.OldestSince + `) AS oldest)`
	// fresh is the condition on messages that no server has and that have not failed.
	fresh = `lease = '' AND last_error = ''`
)

// selection selects the messages of a state. The condition index goes by an index in the given order; the condition
// rest is for the messages that it finds.
type selection struct{ index, rest, order string }

var selections = map[State]selection{
	"":            {`true`, `true`, byID},
	StateWaiting:  {`parked_at IS NULL`, `lease = ''`, byID},
	StateLeased:   {`parked_at IS NULL AND lease LIKE '_%'`, `true`, byID},
	StateParked:   {`parked_at IS NOT NULL`, `true`, byID},
	StateRetrying: {`parked_at IS NULL AND last_error <> ''`, `lease = ''`, byID},
	StateDue: {
		`parked_at IS NULL AND due_at <= greatest(now(), ` + ticketEnd + `)`,
		fresh + ` AND (due_at <= now() OR ticket > 0)`, byDue,
	},
	StateDelayed: {
		`parked_at IS NULL AND due_at > now()`, fresh + ` AND (ticket = 0 OR due_at > ` + ticketEnd + `)`, byDue,
	},
}

// first selects the first messages of project $1 that meet the condition, in the order of the selection.
func (s selection) first(condition, order, limit string) string {
	if s.order == byDue {
		return `(` + message.FirstDue("*", condition, order, limit) + `)`
	}
	return `(SELECT * FROM messages WHERE project = $1 AND ` + condition + ` ORDER BY ` + order + ` LIMIT ` + limit + `)`
}

// Entry is a message in the queue, without its body.
type Entry struct {
	ID           string
	Topic        string
	DeploymentID string
	// RunID is the message's run; empty if its sender gave none.
	RunID entities.RunID
	// Work is the kind of work, if the server itself does it. Subject is the step, hook or signal it concerns.
	Work    message.Work
	Subject string
	State   State
	// DeliveryCount is how many deliveries may have reached the function.
	DeliveryCount int
	// LastError is why the last delivery failed; empty if none has failed.
	LastError string
	CreatedAt time.Time
	// DueAt is when the message is delivered next, or when its lease expires. It has no meaning for parked messages.
	DueAt time.Time
	// ParkedAt is set if and only if the message is parked.
	ParkedAt *time.Time
}

const entryColumns = `id, topic, deployment_id, run_id, work, subject, delivery_count, last_error,
	created_at, due_at, parked_at,
	CASE WHEN parked_at IS NOT NULL THEN 'parked' WHEN lease <> '' THEN 'leased' ELSE 'waiting' END AS state`

// Filter narrows a list of messages; empty fields match everything.
type Filter struct {
	State        State
	RunID        entities.RunID
	DeploymentID string
	Work         message.Work
	// ErrorContains is a part of the last error.
	ErrorContains string
	// Redacted compares ErrorContains only with what [egress.Redact] leaves of the error.
	Redacted bool
	// NotDue leaves out messages that are due and not parked.
	NotDue bool
}

// selection returns the selection of the filter's state. It fails with [entities.ErrInvalid].
func (f Filter) selection() (selection, error) {
	s, ok := selections[f.State]
	if !ok {
		return s, entities.Invalid("state %q is none of waiting, retrying, due, delayed, leased and parked", f.State)
	}
	if f.NotDue {
		s.rest += ` AND (parked_at IS NOT NULL OR due_at > now())`
	}
	return s, nil
}

// CheckState fails with [entities.ErrInvalid] on an unknown state.
func (f Filter) CheckState() error {
	_, err := f.selection()
	return err
}

// matching is the condition of a filter's fields besides its state and run, with the parameters from $2 to $4.
const matching = `($2 = '' OR deployment_id = $2) AND ($3 = '' OR work = $3)
	AND ($4 = '' OR position($4 in last_error) > 0)`

// args returns the given parameter and those of [matching].
func (f Filter) args(first any) []any { return []any{first, f.DeploymentID, f.Work, f.ErrorContains} }

// hides reports whether the text that the filter searches is in the redacted part of the error.
func (f Filter) hides(e Entry) bool {
	return f.Redacted && f.ErrorContains != "" && !strings.Contains(egress.Redact(e.LastError), f.ErrorContains)
}

// scanLimit is how many messages one page of a list reads.
const scanLimit = 10_000

// Messages lists the project's messages that match the filter: those that are due or delayed by the time at which they
// are due, others in the order they were sent. Next is the cursor of the next page; it is empty on the last page. A
// page reads up to 10,000 messages, so it may have fewer messages than its limit, or none, before the last page. It
// fails with [entities.ErrInvalid] on an unknown state or a malformed cursor.
func (q *Queue) Messages(
	ctx context.Context, project entities.Project, f Filter, p pg.Page,
) (entries []Entry, next string, err error) {
	s, err := f.selection()
	if err != nil {
		return nil, "", err
	}
	sql, args, err := s.listSQL(project, f, p)
	if err != nil {
		return nil, "", err
	}
	type row struct {
		Entry
		Matches, Last bool
	}
	split := func(r row) (Entry, bool, bool) { return r.Entry, r.Matches && !f.hides(r.Entry), r.Last }
	entries, next, err = pg.ScanPage(p.Limit, split, s.cursor, func() ([]row, error) {
		return pg.CollectAll[row](pg.NewPool(q.pool).Query(ctx, sql, args...))
	})
	if err != nil {
		return nil, "", fmt.Errorf("list messages: %w", err)
	}
	return entries, next, nil
}

// runMessages is the condition on the messages of the run with the parameter $%d, in project $1. Indexes have the
// server's own work by its run, and other messages by project, deployment and run: they are for the deployment of the
// run or, if there is no such run yet, for any that has messages, which is found by jumps from one to the next. Without
// the subqueries Postgres would read all messages of the project.
const runMessages = ` AND id = ANY (ARRAY(
	WITH RECURSIVE called AS (
		(SELECT deployment_id FROM messages WHERE project = $1 AND work = '' ORDER BY deployment_id LIMIT 1)
		UNION ALL
		SELECT next.deployment_id FROM called, LATERAL (
			SELECT deployment_id FROM messages m
			WHERE m.project = $1 AND m.work = '' AND m.deployment_id > called.deployment_id
			ORDER BY deployment_id LIMIT 1) AS next
	)
	SELECT id FROM messages WHERE run_id = $%[1]d AND work <> ''
	UNION ALL
	SELECT id FROM messages WHERE run_id = $%[1]d AND work = '' AND project = $1 AND deployment_id = ANY (ARRAY(
		SELECT deployment_id FROM runs WHERE id = $%[1]d UNION ALL SELECT deployment_id FROM called))))`

// listSQL returns the statement of a page. Of the messages that it reads, it returns those that match, and the last
// one if there may be more.
func (s selection) listSQL(project entities.Project, f Filter, p pg.Page) (sql string, args []any, err error) {
	args = append(f.args(project), scanLimit, p.Limit+1)
	keyword, after := p.Order()
	order, where := `id `+keyword, s.index
	if s.order == byDue {
		order = `due_at ` + keyword + `, ` + order
	}
	if f.RunID != "" {
		args = append(args, f.RunID)
		where += fmt.Sprintf(runMessages, len(args))
	}
	if p.Cursor != "" {
		from, err := s.parseCursor(p.Cursor)
		if err != nil {
			return "", nil, err
		}
		args = append(args, from.ID)
		if s.order == byID {
			where += fmt.Sprintf(` AND id %s $%d`, after, len(args))
		} else {
			args = append(args, from.At)
			n := len(args)
			where += fmt.Sprintf(` AND due_at %[1]s= $%[2]d AND (due_at, id) %[1]s ($%[2]d, $%[3]d)`, after, n, n-1)
		}
	}
	return `
		SELECT * FROM (
			SELECT ` + entryColumns + `, ` + s.rest + ` AND ` + matching + ` AS matches,
				row_number() OVER (ORDER BY ` + order + `) = $5 AS last
			FROM ` + s.first(where, order, "$5") + ` AS m ORDER BY ` + order + `) AS scanned
		WHERE matches OR last ORDER BY ` + order + ` LIMIT $6`, args, nil
}

// cursor returns the cursor after an entry: its ID, after the microseconds of the time when it is due if the list is in
// that order.
func (s selection) cursor(e Entry) string {
	if s.order == byID {
		return e.ID
	}
	return strconv.FormatInt(e.DueAt.UnixMicro(), 10) + ":" + e.ID
}

func (s selection) parseCursor(text string) (pg.TimeCursor, error) {
	at, id, ok := "0", text, true
	if s.order == byDue {
		at, id, ok = strings.Cut(text, ":")
	}
	n, err := strconv.ParseInt(at, 10, 64)
	c := pg.TimeCursor{At: time.UnixMicro(n).UTC(), ID: id}
	if !ok || err != nil || entities.ValidateID("cursor", id) != nil || c.At.Year() < 1 || c.At.Year() > 9999 {
		return pg.TimeCursor{}, pg.BadCursor(text)
	}
	return c, nil
}

// Message reads a message of the project. It fails with [message.ErrMessageNotFound].
func (q *Queue) Message(ctx context.Context, project entities.Project, id string) (Entry, error) {
	e, err := readEntry(ctx, pg.NewPool(q.pool), project, id, ``)
	return e, pg.Wrap(err, "read message %s", id)
}

func readEntry(ctx context.Context, q pg.Querier, project entities.Project, id, lock string) (Entry, error) {
	rows, err := q.Query(ctx, `SELECT `+entryColumns+` FROM messages WHERE `+ofID+lock, id, project)
	return pg.CollectOne[Entry](rows, err, message.ErrMessageNotFound)
}

// Retry makes a message due at once that is parked or waits after a failure, and resets its count of deliveries. It
// fails with [message.ErrMessageNotFound], and with [entities.ErrConflict] if the message has not failed or is leased.
func (q *Queue) Retry(ctx context.Context, project entities.Project, id string) (e Entry, err error) {
	err = pg.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		before, err := readEntry(ctx, tx, project, id, ` FOR UPDATE`)
		if err != nil {
			return err
		}
		if before.State == StateLeased || before.LastError == "" && before.State != StateParked {
			return fmt.Errorf("message is %s and cannot be retried: %w", before.State, entities.ErrConflict)
		}
		if err := retry(ctx, tx, []string{id}); err != nil {
			return err
		}
		if e, err = readEntry(ctx, tx, project, id, ``); err != nil {
			return err
		}
		return audit(ctx, tx, project, admin.ActionMessageRetry, id, auditDetail(before))
	})
	if err != nil {
		return Entry{}, fmt.Errorf("retry message %s: %w", id, err)
	}
	q.announceDue(nil)
	return e, nil
}

// retrySQL makes messages due at once, and resets their failures. The next delivery is the first one again, except
// for who must know that it is not.
var retrySQL = `
	UPDATE messages m SET parked_at = NULL, due_at = CASE WHEN due_at = ` + gated + ` THEN due_at ELSE now() END,
		(delivery_count, excused_count) = (
			SELECT n, n FROM (SELECT least(delivery_count, (` + cluster.CountsExactly + `)::integer) AS n) AS kept),
		unreached_count = CASE work WHEN 'step' THEN least(unreached_count, 1) ELSE 0 END, -- a call that did not reach it
		disconnect_count = 0, first_failed_at = NULL
	WHERE `

const (
	// discardSQL deletes the messages $1 of project $2 with their idempotency keys.
	discardSQL = `
		WITH gone AS (
			DELETE FROM messages WHERE id = ANY ($1) AND project IS NOT DISTINCT FROM $2
			RETURNING id, project, topic, deployment_id
		)
		DELETE FROM message_keys k USING gone
		WHERE (k.project, k.deployment_id, k.topic) = (gone.project, gone.deployment_id, gone.topic)
			AND k.message_id = gone.id`
	// awaitNowSQL makes the runs that the messages $1 of project $2 invoke await a time that has passed; see
	// entities/await. It locks the runs before the messages, as appends do, in the order of their IDs.
	awaitNowSQL = `
		UPDATE runs SET await = jsonb_build_object('seq', last_seq, 'at', updated_at)
		WHERE id = ANY (ARRAY(
			SELECT id FROM runs WHERE completed_at IS NULL AND id IN (
				SELECT run_id FROM messages WHERE id = ANY ($1) AND project IS NOT DISTINCT FROM $2 AND work = 'run')
			ORDER BY id FOR NO KEY UPDATE))`
)

// retry makes the messages due at once; those of steps that need slots of limits, as soon as they have them.
func retry(ctx context.Context, tx pgx.Tx, ids []string) error {
	if _, err := tx.Exec(ctx, retrySQL+`id = ANY ($1)`, ids); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, limit.EndPause, ids)
	return err
}

// Discard deletes a message in any state together with its idempotency key, so that it can be sent again. If this
// strands its run, the sweeper wakes the run: for a run that the server continues, also if the message invoked it,
// since nobody can tell what its function has missed. It fails with [message.ErrMessageNotFound], and with
// [entities.ErrConflict] for the work of a collection, which would collect starts for ever.
func (q *Queue) Discard(ctx context.Context, project entities.Project, id string) error {
	err := pg.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, awaitNowSQL, []string{id}, project); err != nil {
			return err
		}
		gone, err := readEntry(ctx, tx, project, id, ` FOR UPDATE`)
		if err != nil {
			return err
		}
		if gone.Work == message.WorkCollection {
			return fmt.Errorf("it starts the run of collection %s: drop the collection instead: %w",
				gone.Subject, entities.ErrConflict)
		}
		if _, err := tx.Exec(ctx, discardSQL, []string{id}, project); err != nil {
			return err
		}
		return audit(ctx, tx, project, admin.ActionMessageDiscard, id, auditDetail(gone))
	})
	return pg.Wrap(err, "discard message %s", id)
}

// RetryAll is [Queue.Retry] for those of the messages that match the filter and can be retried. It returns how many it
// has retried, which is one entry of the audit.
func (q *Queue) RetryAll(ctx context.Context, project entities.Project, f Filter, ids []string) (int, error) {
	n, err := q.changeAll(ctx, project, f, ids, admin.ActionMessagesRetry)
	if err != nil {
		return 0, fmt.Errorf("retry messages: %w", err)
	}
	q.announceDue(nil)
	return n, nil
}

// DiscardAll is [Queue.Discard] for those of the messages that match the filter and can be discarded. It returns how
// many it has discarded, which is one entry of the audit.
func (q *Queue) DiscardAll(ctx context.Context, project entities.Project, f Filter, ids []string) (int, error) {
	n, err := q.changeAll(ctx, project, f, ids, admin.ActionMessagesDiscard)
	return n, pg.Wrap(err, "discard messages")
}

// changeAll retries or discards those of the messages that match the filter, in one transaction. A message that another
// transaction has changed meanwhile is left alone if it does not match any more.
func (q *Queue) changeAll(
	ctx context.Context, project entities.Project, f Filter, ids []string, kind admin.ActionKind,
) (n int, err error) {
	s, err := f.selection()
	if err != nil {
		return 0, err
	}
	args := append(f.args(project), ids)
	where := `id = ANY ($5) AND project IS NOT DISTINCT FROM $1 AND ` + matching + ` AND ` + s.index + ` AND ` + s.rest
	if f.RunID != "" {
		args = append(args, f.RunID)
		where += ` AND run_id = $6`
	}
	switch kind {
	case admin.ActionMessagesRetry:
		where += ` AND (parked_at IS NOT NULL OR lease = '' AND last_error <> '')`
	case admin.ActionMessagesDiscard:
		where += ` AND work <> '` + string(message.WorkCollection) + `'`
	default:
	}
	err = pg.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		if kind == admin.ActionMessagesDiscard {
			if _, err := tx.Exec(ctx, awaitNowSQL, ids, project); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, `SELECT id FROM messages WHERE `+where+cluster.LockOrder, args...)
		if err != nil {
			return err
		}
		chosen, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if n = len(chosen); err != nil || n == 0 {
			return err
		}
		if kind == admin.ActionMessagesDiscard {
			_, err = tx.Exec(ctx, discardSQL, chosen, project)
		} else {
			err = retry(ctx, tx, chosen)
		}
		if err != nil {
			return err
		}
		return audit(ctx, tx, project, kind, string(f.State), f.auditDetail(n))
	})
	return n, err
}

// auditDetail returns the detail that an audit entry stores about n messages that match the filter.
func (f Filter) auditDetail(n int) map[string]any {
	detail := map[string]any{"count": n}
	for name, value := range map[string]string{
		"runId": string(f.RunID), "deploymentId": f.DeploymentID, "work": string(f.Work), "errorContains": f.ErrorContains,
	} {
		if value != "" {
			detail[name] = value
		}
	}
	return detail
}

// auditDetail returns the detail that an audit entry stores about a message.
func auditDetail(e Entry) map[string]any {
	return map[string]any{"topic": e.Topic, "deploymentId": e.DeploymentID, "runId": e.RunID, "state": e.State}
}
