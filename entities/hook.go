package entities

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Hook is a live hook of a run: a named place where it waits for payloads from outside. The metadata is
// the payload of the event at CreatedSeq.
type Hook struct {
	RunID   RunID
	ID      HookID
	Project Project
	// Token is what outsiders resume the hook by; unique per project while the hook lives.
	Token string
	// IsWebhook says that the app's public webhook route may resume the hook.
	IsWebhook   bool
	SpecVersion int
	// CreatedSeq is the position of hook_created.
	CreatedSeq int64
	CreatedAt  time.Time
}

const hookColumns = `run_id, id, project, token, is_webhook, spec_version, created_seq, created_at`

// LoadHook queues a read of the hook; into stays nil when the run has no such live hook.
func LoadHook(b *pgx.Batch, runID RunID, id HookID, into **Hook) {
	loadInto(b, into, `SELECT `+hookColumns+` FROM hooks WHERE run_id = $1 AND id = $2`, runID, id)
}

// LockToken queues a lock on the token's name until the transaction ends, and a read of the live hook
// that holds it; into stays nil when the token is free. Claims of one token so happen one after the other.
func LockToken(b *pgx.Batch, project Project, token string, into **Hook) {
	b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended($1::text || ' ' || $2::text, 0))`, project, token)
	loadInto(b, into, hookByToken, project, token)
}

const hookByToken = `SELECT ` + hookColumns + ` FROM hooks WHERE project = $1 AND token = $2`

// HookByToken reads the live hook that holds the token. It fails with [ErrHookNotFound].
func HookByToken(ctx context.Context, q Querier, project Project, token string) (Hook, error) {
	rows, err := q.Query(ctx, hookByToken, project, token)
	hook, err := collectOne[Hook](rows, err, ErrHookNotFound)
	if err != nil {
		return Hook{}, fmt.Errorf("read hook by token: %w", err)
	}
	return hook, nil
}

// HookByID reads a live hook of the project. It fails with [ErrHookNotFound].
func HookByID(ctx context.Context, q Querier, project Project, id HookID) (Hook, error) {
	rows, err := q.Query(ctx,
		`SELECT `+hookColumns+` FROM hooks WHERE id = $1 AND project = $2 ORDER BY run_id LIMIT 1`, id, project)
	hook, err := collectOne[Hook](rows, err, ErrHookNotFound)
	if err != nil {
		return Hook{}, fmt.Errorf("read hook %s: %w", id, err)
	}
	return hook, nil
}

// ListHooks reads a page of live hooks in the order of their creation, those of one run or, when runID is
// empty, of the whole project, and the cursor of the next page; empty when this is the last. It fails with
// [ErrInvalid] on a cursor that is not of this list.
func ListHooks(ctx context.Context, q Querier, project Project, runID RunID, p Page) ([]Hook, string, error) {
	from := moment{}
	if p.Cursor != "" {
		var err error
		if from, err = parseMoment(p.Cursor); err != nil {
			return nil, "", err
		}
	}
	order, after := p.order()
	sql := fmt.Sprintf(`
		SELECT `+hookColumns+` FROM hooks
		WHERE project = $1
			AND ($2::text = '' OR run_id = $2)
			AND ($3 OR (created_at, id) %[2]s ($4, $5))
		ORDER BY created_at %[1]s, id %[1]s
		LIMIT $6`, order, after)
	rows, err := q.Query(ctx, sql, project, runID, p.Cursor == "", from.at, from.id, p.Limit+1)
	hooks, more, err := collectPage[Hook](rows, err, p.Limit)
	if err != nil {
		return nil, "", fmt.Errorf("list hooks: %w", err)
	}
	next := ""
	if more {
		last := hooks[len(hooks)-1]
		next = moment{last.CreatedAt, string(last.ID)}.String()
	}
	return hooks, next, nil
}

// InsertHook queues the insertion of a hook.
func InsertHook(b *pgx.Batch, h *Hook) {
	oneRow(b, "insert hook", `
		INSERT INTO hooks (`+hookColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		h.RunID, h.ID, h.Project, h.Token, h.IsWebhook, h.SpecVersion, h.CreatedSeq, h.CreatedAt)
}

// DeleteHook queues the deletion of a hook, which frees its token.
func DeleteHook(b *pgx.Batch, runID RunID, id HookID) {
	oneRow(b, "delete hook", `DELETE FROM hooks WHERE run_id = $1 AND id = $2`, runID, id)
}

// DeleteHooks queues the deletion of all hooks of a run.
func DeleteHooks(b *pgx.Batch, runID RunID) {
	b.Queue(`DELETE FROM hooks WHERE run_id = $1`, runID)
}
