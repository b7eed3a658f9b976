package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/pg"
)

// ErrSignalNotFound means that the project has no such signal.
var ErrSignalNotFound = errors.New("signal not found")

// SignalID is "sig_" and a ULID made by the server.
type SignalID string

const signalIDPrefix = "sig_"

// NewSignalID returns a new ID.
func NewSignalID() SignalID { return SignalID(signalIDPrefix + ulid.Make().String()) }

// Signal is an event from outside. It resumes every hook of its project that waits for signals of its name.
type Signal struct {
	Project entities.Project
	ID      SignalID
	Name    string
	// Key is the idempotency key: as long as the signal is stored, another one of the same project, name and key is
	// taken for the same. Empty for none.
	Key string
	// Data is JSON as it was received; nil in lists if it is longer than [ListedData].
	Data []byte
	// CreatedAt is a time of the database's clock, like all times of a signal.
	CreatedAt time.Time
	// KeepUntil is the end of the time during which new hooks that look back find the signal.
	KeepUntil time.Time
	// ExpiresAt is the time from which the signal may be deleted once it was dispatched to all hooks that waited for
	// it; not before KeepUntil.
	ExpiresAt time.Time
	// RootID and Depth are those of a run that the signal starts; empty unless a run has sent it.
	RootID entities.RunID
	Depth  int
}

// Remembered is how long a signal is stored for runs that had started before it and begin to wait for it later. It is
// longer than it takes until another server goes on with a run whose server died before the run could listen.
const Remembered = time.Minute

// RememberedUntil is the time until which runs that had started before the signal find it.
func (s Signal) RememberedUntil() time.Time {
	if until := s.CreatedAt.Add(Remembered); until.Before(s.ExpiresAt) {
		return until
	}
	return s.ExpiresAt
}

// Payloads implements [atrest.Row].
func (s *Signal) Payloads(o *atrest.Opener) { o.Bytes(s.place(), &s.Data) }

func (s *Signal) place() atrest.Place { return atrest.Place{Kind: atrest.Signal, Owner: string(s.ID)} }

const signalColumns = `project, id, name, key, data, created_at, keep_until, expires_at, root_id, depth`

// InsertSignal stores a signal, which hooks that look back find for the duration kept and whose key is remembered for
// the duration known. It returns the stored signal: an earlier one if that has the same key. The upsert locks the
// earlier one, so that it is not deleted before the transaction ends.
func InsertSignal(ctx context.Context, q pg.Querier, s Signal, kept, known time.Duration) (Signal, error) {
	rows, err := q.Query(ctx, `
		INSERT INTO signals AS s (project, id, name, key, data, keep_until, expires_at, root_id, depth, xid)
		VALUES ($1, $2, $3, $4, $5, now() + $6, now() + greatest($6::interval, $7::interval), $8, $9,
			`+pg.FeedPosition(`pg_current_xact_id()`)+`)
		ON CONFLICT (project, name, key) WHERE key <> '' DO UPDATE SET key = s.key
		RETURNING `+signalColumns, s.Project, s.ID, s.Name, s.Key,
		atrest.Payload{Place: s.place(), Project: string(s.Project), Bytes: s.Data}, kept, known, s.RootID, s.Depth)
	// DO NOTHING would return no row for an earlier signal; this update changes nothing, and returns and locks the row.
	stored, err := pg.CollectOne[Signal](rows, err, errors.New("the upsert returned no row"))
	return stored, pg.Wrap(err, "insert signal")
}

// DueSignal is a signal that is to be dispatched.
type DueSignal struct {
	Signal
	// Triggers is set if a trigger waits for signals of the name.
	Triggers bool
}

// SignalByID reads a signal of the project. It fails with [ErrSignalNotFound].
func SignalByID(ctx context.Context, q pg.Querier, project entities.Project, id SignalID) (DueSignal, error) {
	rows, err := q.Query(ctx, `
		SELECT `+signalColumns+`, EXISTS (
			SELECT FROM triggers t
			WHERE t.project = $1 AND t.kind = 'signal' AND t.source = s.name AND t.paused_at IS NULL) AS triggers
		FROM signals s WHERE project = $1 AND id = $2`, project, id)
	s, err := pg.CollectOne[DueSignal](rows, err, ErrSignalNotFound)
	return s, pg.Wrap(err, "read signal %s", id)
}

// ListedData is the largest size, in bytes, of the data that a list returns with a signal.
const ListedData = 16 << 10

// ListSignals reads a page of the project's signals, oldest first, and the cursor of the next page; empty after the
// last page. An empty name lists all signals. It fails with a [pg.CursorError] on a cursor of another list.
func ListSignals(
	ctx context.Context, q pg.Querier, project entities.Project, name string, p pg.Page,
) ([]Signal, string, error) {
	if p.Cursor != "" {
		if err := entities.ValidateID("cursor", p.Cursor); err != nil {
			return nil, "", pg.BadCursor(p.Cursor)
		}
	}
	order, after := p.Order()
	rows, err := q.Query(ctx, fmt.Sprintf(`
		SELECT project, id, name, key, CASE WHEN octet_length(data) <= $5 THEN data END AS data, created_at, keep_until,
			expires_at, root_id, depth
		FROM signals
		WHERE project = $1 AND ($2::text = '' OR name = $2) AND ($3::text = '' OR id %s $3)
		ORDER BY id %s LIMIT $4`, after, order), project, name, p.Cursor, p.Limit+1, ListedData)
	signals, next, err := pg.CollectPage(rows, err, p.Limit, func(s Signal) string { return string(s.ID) })
	return signals, next, pg.Wrap(err, "list signals")
}

// received is the condition that a hook_received in the log of run $run, before position $seq, has signal $id. It is
// looked up in the index of resume IDs.
func received(run, seq, id string) string {
	const resumeID = `(e.data ->> 'resumeId') COLLATE "C"`
	return `EXISTS (
		SELECT FROM events e
		WHERE e.run_id = ` + run + ` AND e.type = 'hook_received' AND e.data ->> 'resumeId' IS NOT NULL
			AND ` + resumeID + ` > ` + id + ` || ':' AND ` + resumeID + ` < ` + id + ` || ';'
			AND e.data ->> 'via' = '` + webhook.ViaSignal + `' AND e.seq < ` + seq + `)`
}

// before is a table expression of the runs with whose work run $run goes on, one after the other: the last one, and
// those that may have received a remembered signal, but no more than 1,000, so that it is bounded.
func before(run string) string {
	return `WITH RECURSIVE before AS (
			SELECT p.id, p.continued_from, p.end_seq, 1 AS n FROM runs r JOIN runs p ON p.id = r.continued_from
			WHERE r.id = ` + run + ` AND r.continued_from <> ''
			UNION ALL
			SELECT p.id, p.continued_from, p.end_seq, n + 1 FROM before b JOIN runs p ON p.id = b.continued_from
			WHERE b.continued_from <> '' AND p.completed_at > now() - interval '6 minutes' AND n < 1000
		)`
}

// seenBefore is the condition that one of the runs with whose work run $run goes on had received signal $id, and that
// its function knew.
func seenBefore(run, id string) string {
	return `EXISTS (
		` + before(run) + `
		SELECT FROM before b JOIN events o ON o.run_id = b.id AND o.seq = b.end_seq
		WHERE ` + received("b.id", "coalesce((o.data ->> 'seen')::bigint, 0) + 1", id) + `)`
}

// EarlierSignals reads at most limit signals for a hook, in order of creation, after the given place: those of its
// project and name that were kept until the hook was created, and not created longer before than the hook looks back;
// and those that were created in the last minute before the hook, but after its run. It leaves out what the run had
// received before the hook was created. A run that goes on with the work of others is as old as these, and has
// received what their functions knew.
func EarlierSignals(
	ctx context.Context, q pg.Querier, h entities.Hook, lookBack time.Duration, after SignalPlace, limit int,
) ([]Signal, error) {
	signals, err := pg.CollectAll[Signal](q.Query(ctx, `
		SELECT `+signalColumns+` FROM signals s
		WHERE project = $1 AND name = $2 AND (created_at, id) > ($3, $4) AND (
			keep_until >= $5 AND created_at >= $5::timestamptz - $7::interval
			OR created_at >= $5::timestamptz - $8::interval AND xid > (
				`+before("$9")+`
				SELECT xid FROM events WHERE seq = 1 AND run_id IN (SELECT id FROM before UNION ALL SELECT $9)
				ORDER BY xid LIMIT 1)
		) AND NOT `+received("$9", "$10", "s.id")+` AND NOT `+seenBefore("$9", "s.id")+`
		ORDER BY created_at, id LIMIT $6`, h.Project, h.Signal, after.CreatedAt, after.ID, h.CreatedAt, limit,
		lookBack, Remembered, h.RunID, h.CreatedSeq))
	return signals, pg.Wrap(err, "read earlier signals")
}

// SignalPlace is a position in the signals' order of creation. Without an ID, it is before all signals of its time.
type SignalPlace struct {
	CreatedAt time.Time `json:"createdAt"`
	ID        SignalID  `json:"id"`
}

// Place returns the signal's position.
func (s Signal) Place() SignalPlace { return SignalPlace{s.CreatedAt, s.ID} }

// Waiting is a hook that waits for signals, with the attributes of its run at the time of the read.
type Waiting struct {
	entities.Hook
	Attributes map[string]string
}

// WaitingFor reads at most limit hooks that wait for the signal, ordered by run ID and hook ID, after the given IDs,
// which are both empty for the beginning. Hooks of ended runs do not wait, nor do those that a run opened after it, or
// one with whose work it goes on, had received the signal.
func WaitingFor(
	ctx context.Context, q pg.Querier, s Signal, afterRun entities.RunID, afterHook entities.HookID, limit int,
) ([]Waiting, error) {
	// signal <> '' is the condition of the partial index.
	return waiting(ctx, q, `
		h.project = $1 AND h.signal = $2 AND h.signal <> '' AND (h.run_id, h.id) > ($3, $4)
		AND NOT `+received("h.run_id", "h.created_seq", "$6::text")+` AND NOT `+seenBefore("h.run_id", "$6::text")+`
		ORDER BY h.run_id, h.id LIMIT $5`, s.Project, s.Name, afterRun, afterHook, limit, s.ID)
}

// WaitingHook reads a hook of the project that waits for signals. It fails with [entities.ErrHookNotFound] if there is
// no such hook or it waits for no signals.
func WaitingHook(
	ctx context.Context, q pg.Querier, project entities.Project, runID entities.RunID, id entities.HookID,
) (Waiting, error) {
	list, err := waiting(ctx, q, `
		h.project = $1 AND h.run_id = $2 AND h.id = $3 AND h.signal <> ''`, project, runID, id)
	if err == nil && len(list) == 0 {
		err = entities.ErrHookNotFound
	}
	if err != nil {
		return Waiting{}, fmt.Errorf("hook %s: %w", id, err)
	}
	return list[0], nil
}

func waiting(ctx context.Context, q pg.Querier, where string, args ...any) ([]Waiting, error) {
	list, err := pg.CollectAll[Waiting](q.Query(ctx, `
		SELECT h.run_id, h.id, h.project, h.token, h.is_webhook, h.is_system, h.spec_version, h.created_seq,
			h.created_at, h.retain_until, h.expires_at, h.signal, h.condition, h.claimed_from,
			r.attributes
		FROM hooks h JOIN runs r ON r.id = h.run_id
		WHERE h.expires_at IS NULL AND `+where, args...))
	return list, pg.Wrap(err, "read waiting hooks")
}

// signalsBatch is the most signals that one statement deletes.
const signalsBatch = 1000

// keptLateness is how long signals are stored beyond their expiry, for hooks that look back late because servers or
// functions were unavailable. For those that are only remembered it is rememberedLateness.
const keptLateness, rememberedLateness = time.Hour, 5 * time.Minute

// DeleteSpentSignals deletes the signals that have long expired. It spares those that are not yet dispatched: the queue
// has a message about them.
func DeleteSpentSignals(ctx context.Context, q pg.Querier) error {
	for {
		ids, err := pg.CollectColumn[SignalID](q.Query(ctx, `
			DELETE FROM signals WHERE (project, id) IN (
				SELECT s.project, s.id FROM signals s
				WHERE s.expires_at <= now() - $1::interval AND `+pg.Staying("s.project")+`
					AND (s.expires_at <= now() - $2::interval OR s.keep_until = s.created_at)
					AND NOT EXISTS (
						SELECT FROM messages m WHERE m.run_id = '' AND m.work = 'signal' AND m.subject = s.id)
				ORDER BY s.expires_at LIMIT $3 FOR UPDATE SKIP LOCKED)
			RETURNING id`, rememberedLateness, keptLateness, signalsBatch))
		if err != nil || len(ids) < signalsBatch {
			return pg.Wrap(err, "delete spent signals")
		}
	}
}

// DropSignal deletes a signal that was dispatched to all waiting hooks, if it has expired.
func DropSignal(ctx context.Context, tx pgx.Tx, project entities.Project, id SignalID) error {
	_, err := tx.Exec(ctx, `
		DELETE FROM signals WHERE project = $1 AND id = $2 AND expires_at <= now()`, project, id)
	return pg.Wrap(err, "drop signal %s", id)
}
