package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// Signal is something that has happened outside, and resumes every hook of its project that waits for its name.
type Signal struct {
	Project entities.Project
	ID      SignalID
	Name    string
	// Key makes the signal one: a second one of the same project and name with it is the first again, for as long
	// as that is there. Empty for signals that are never the same.
	Key string
	// Data is JSON, as it came; nil in lists when it is longer than [ListedData].
	Data []byte
	// CreatedAt is the database's clock, as are all times of a signal.
	CreatedAt time.Time
	// KeepUntil is until when hooks that look back will find it.
	KeepUntil time.Time
	// ExpiresAt is when it goes if it was handed to all who waited for it; not before KeepUntil.
	ExpiresAt time.Time
}

const signalColumns = `project, id, name, key, data, created_at, keep_until, expires_at`

// InsertSignal stores a signal: one that is kept for so long after now, and whose key is known for so long. It returns
// what is stored then, which is another one if there is one with the same key; that one does not go before the
// transaction ends.
func InsertSignal(ctx context.Context, q pg.Querier, s Signal, kept, known time.Duration) (Signal, error) {
	rows, err := q.Query(ctx, `
		INSERT INTO signals AS s (project, id, name, key, data, keep_until, expires_at)
		VALUES ($1, $2, $3, $4, $5, now() + $6, now() + greatest($6::interval, $7::interval))
		ON CONFLICT (project, name, key) WHERE key <> '' DO UPDATE SET key = s.key
		RETURNING `+signalColumns, s.Project, s.ID, s.Name, s.Key, s.Data, kept, known)
	stored, err := pg.CollectOne[Signal](rows, err, errors.New("it is not there"))
	if err != nil {
		return Signal{}, fmt.Errorf("insert signal: %w", err)
	}
	return stored, nil
}

// SignalByID reads a signal of the project. It fails with [ErrSignalNotFound].
func SignalByID(ctx context.Context, q pg.Querier, project entities.Project, id SignalID) (Signal, error) {
	rows, err := q.Query(ctx, `SELECT `+signalColumns+` FROM signals WHERE project = $1 AND id = $2`, project, id)
	s, err := pg.CollectOne[Signal](rows, err, ErrSignalNotFound)
	if err != nil {
		return Signal{}, fmt.Errorf("read signal %s: %w", id, err)
	}
	return s, nil
}

// ListedData is how many bytes of data the signals of a list may have each.
const ListedData = 16 << 10

// ListSignals reads a page of the project's signals in the order of their creation, those of one name or, when it is
// empty, all, and the cursor of the next page; empty when this is the last. It fails with [ErrInvalid] on a
// cursor that is not of this list.
func ListSignals(ctx context.Context, q pg.Querier, project entities.Project, name string, p pg.Page) ([]Signal, string, error) {
	if p.Cursor != "" {
		if err := entities.ValidateID("cursor", p.Cursor); err != nil {
			return nil, "", pg.BadCursor(p.Cursor)
		}
	}
	order, after := p.Order()
	rows, err := q.Query(ctx, fmt.Sprintf(`
		SELECT project, id, name, key, CASE WHEN octet_length(data) <= $5 THEN data END AS data, created_at, keep_until,
			expires_at
		FROM signals
		WHERE project = $1 AND ($2::text = '' OR name = $2) AND ($3::text = '' OR id %s $3)
		ORDER BY id %s LIMIT $4`, after, order), project, name, p.Cursor, p.Limit+1, ListedData)
	signals, more, err := pg.CollectPage[Signal](rows, err, p.Limit)
	if err != nil {
		return nil, "", fmt.Errorf("list signals: %w", err)
	}
	if !more {
		return signals, "", nil
	}
	return signals, string(signals[len(signals)-1].ID), nil
}

// EarlierSignals reads the signals of the hook's project and name that were to be kept until the hook was there: at
// most limit of them, in the order in which they came, after the given place.
func EarlierSignals(ctx context.Context, q pg.Querier, h entities.Hook, after SignalPlace, limit int) ([]Signal, error) {
	rows, err := q.Query(ctx, `
		SELECT `+signalColumns+` FROM signals
		WHERE project = $1 AND name = $2 AND (created_at, id) > ($3, $4) AND keep_until >= $5
		ORDER BY created_at, id LIMIT $6`, h.Project, h.Signal, after.CreatedAt, after.ID, h.CreatedAt, limit)
	if err != nil {
		return nil, fmt.Errorf("read earlier signals: %w", err)
	}
	signals, err := pgx.CollectRows(rows, pgx.RowToStructByName[Signal])
	if err != nil {
		return nil, fmt.Errorf("read earlier signals: %w", err)
	}
	return signals, nil
}

// SignalPlace is where a signal is in the order in which they came. One without an ID is before all of its time.
type SignalPlace struct {
	CreatedAt time.Time `json:"createdAt"`
	ID        SignalID  `json:"id"`
}

// Place is the signal's own.
func (s Signal) Place() SignalPlace { return SignalPlace{s.CreatedAt, s.ID} }

// Waiting is a hook that waits for signals, and the attributes that its run had when it was read.
type Waiting struct {
	entities.Hook
	Attributes map[string]string
}

// WaitingFor reads hooks of the project that wait for signals of the name: at most limit of them, in the order of runs
// and hooks, after the given ones, which are empty for the first ones. Hooks of ended runs do not wait.
func WaitingFor(
	ctx context.Context, q pg.Querier, project entities.Project, name string, afterRun entities.RunID, afterHook entities.HookID, limit int,
) ([]Waiting, error) {
	// That the signal is not empty is what the index is about.
	return waiting(ctx, q, `
		h.project = $1 AND h.signal = $2 AND h.signal <> '' AND (h.run_id, h.id) > ($3, $4)
		ORDER BY h.run_id, h.id LIMIT $5`, project, name, afterRun, afterHook, limit)
}

// WaitingHook reads a hook of the project that waits for signals. It fails with [ErrHookNotFound] when it does not.
func WaitingHook(ctx context.Context, q pg.Querier, project entities.Project, runID entities.RunID, id entities.HookID) (Waiting, error) {
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
	rows, err := q.Query(ctx, `
		SELECT h.run_id, h.id, h.project, h.token, h.is_webhook, h.is_system, h.spec_version, h.created_seq,
			h.created_at, h.retain_until, h.expires_at, h.signal, h.condition, r.attributes
		FROM hooks h JOIN runs r ON r.id = h.run_id
		WHERE h.expires_at IS NULL AND `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read hooks that wait: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Waiting])
	if err != nil {
		return nil, fmt.Errorf("read hooks that wait: %w", err)
	}
	return list, nil
}

// signalsBatch is how many signals one statement deletes.
const signalsBatch = 1000

// lateness is how much longer than they are to be kept signals are there, for hooks whose look back comes late because
// servers or functions were away.
const lateness = time.Hour

// DeleteSpentSignals deletes the signals whose time is over. Those that are still to be handed over stay: about them
// there is a message.
func DeleteSpentSignals(ctx context.Context, q pg.Querier) error {
	for {
		rows, err := q.Query(ctx, `
			DELETE FROM signals WHERE (project, id) IN (
				SELECT s.project, s.id FROM signals s
				WHERE s.expires_at <= now() - $1::interval AND NOT EXISTS (
					SELECT FROM messages m WHERE m.run_id = '' AND m.work = 'signal' AND m.subject = s.id)
				ORDER BY s.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)
			RETURNING id`, lateness, signalsBatch)
		if err != nil {
			return fmt.Errorf("delete spent signals: %w", err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[SignalID])
		if err != nil {
			return fmt.Errorf("delete spent signals: %w", err)
		}
		if len(ids) < signalsBatch {
			return nil
		}
	}
}

// DropSignal deletes a signal that was handed to all who waited for it, if nobody is to find it any more.
func DropSignal(ctx context.Context, q pg.Querier, project entities.Project, id SignalID) error {
	rows, err := q.Query(ctx, `
		DELETE FROM signals WHERE project = $1 AND id = $2 AND expires_at <= now()`, project, id)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		return fmt.Errorf("drop signal %s: %w", id, err)
	}
	return nil
}

// ErrSignalNotFound: the project has no such signal.
var ErrSignalNotFound = errors.New("signal not found")

// SignalID is "sig_" and a ULID that the server made.
type SignalID string

const signalIDPrefix = "sig_"

// NewSignalID makes the ID of a signal.
func NewSignalID() SignalID { return SignalID(signalIDPrefix + ulid.Make().String()) }
