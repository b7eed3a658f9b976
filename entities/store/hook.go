package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

const hookColumns = `run_id, id, project, token, is_webhook, is_system, spec_version, created_seq, created_at,
	retain_until, expires_at, signal, condition`

// LoadHook queues a read of the hook, if the run has it, and a lock on its row.
// The lock is against those who take over the token of a hook that has expired.
func LoadHook(b *pgx.Batch, runID entities.RunID, id entities.HookID, into map[entities.HookID]entities.Hook) {
	pg.LoadEach(b, func(h entities.Hook) { into[h.ID] = h },
		`SELECT `+hookColumns+` FROM hooks WHERE run_id = $1 AND id = $2 FOR NO KEY UPDATE`, runID, id)
}

// LockToken queues a lock on the token's name until the transaction ends, and a read of the hook that has
// it, be it one that has expired, if there is one. Claims of one token so happen one after the other.
func LockToken(b *pgx.Batch, project entities.Project, token string, into map[string]*entities.Hook) {
	b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended($1::text || ' ' || $2::text, 0))`, project, token)
	pg.LoadEach(b, func(h entities.Hook) { into[h.Token] = &h },
		`SELECT `+hookColumns+` FROM hooks WHERE project = $1 AND token = $2`, project, token)
}

// held is the condition on hooks that still hold their token at the time that is the statement's parameter n.
func held(n int) string { return fmt.Sprintf(`(expires_at IS NULL OR expires_at > $%d)`, n) }

// HookByToken reads the hook that holds the token at the given time. It fails with [ErrHookNotFound].
func HookByToken(ctx context.Context, q pg.Querier, project entities.Project, token string, at time.Time) (entities.Hook, error) {
	rows, err := q.Query(ctx,
		`SELECT `+hookColumns+` FROM hooks WHERE project = $1 AND token = $2 AND `+held(3), project, token, at)
	hook, err := pg.CollectOne[entities.Hook](rows, err, entities.ErrHookNotFound)
	if err != nil {
		return entities.Hook{}, fmt.Errorf("read hook by token: %w", err)
	}
	return hook, nil
}

// HookByID reads a hook of the project as of the given time. It fails with [ErrHookNotFound].
func HookByID(ctx context.Context, q pg.Querier, project entities.Project, id entities.HookID, at time.Time) (entities.Hook, error) {
	rows, err := q.Query(ctx, `
		SELECT `+hookColumns+` FROM hooks WHERE id = $1 AND project IS NOT DISTINCT FROM $2 AND `+held(3)+`
		ORDER BY run_id LIMIT 1`, id, project, at)
	hook, err := pg.CollectOne[entities.Hook](rows, err, entities.ErrHookNotFound)
	if err != nil {
		return entities.Hook{}, fmt.Errorf("read hook %s: %w", id, err)
	}
	return hook, nil
}

// ListHooks reads a page of the hooks there are at the given time, in the order of their creation, those of
// one run or, when runID is empty, of the whole project, and the cursor of the next page; empty when this is
// the last. It fails with [ErrInvalid] on a cursor that is not of this list.
func ListHooks(
	ctx context.Context, q pg.Querier, project entities.Project, runID entities.RunID, at time.Time, p pg.Page,
) ([]entities.Hook, string, error) {
	from := pg.TimeCursor{}
	if p.Cursor != "" {
		var err error
		if from, err = pg.ParseTimeCursor(p.Cursor); err != nil {
			return nil, "", err
		}
	}
	order, after := p.Order()
	sql := fmt.Sprintf(`
		SELECT `+hookColumns+` FROM hooks
		WHERE project = $1
			AND ($2::text = '' OR run_id = $2)
			AND ($3 OR (created_at, id) %[2]s ($4, $5))
			AND %[3]s
		ORDER BY created_at %[1]s, id %[1]s
		LIMIT $6`, order, after, held(7))
	rows, err := q.Query(ctx, sql, project, runID, p.Cursor == "", from.At, from.ID, p.Limit+1, at)
	hooks, more, err := pg.CollectPage[entities.Hook](rows, err, p.Limit)
	if err != nil {
		return nil, "", fmt.Errorf("list hooks: %w", err)
	}
	next := ""
	if more {
		next = HookCursor(hooks[len(hooks)-1])
	}
	return hooks, next, nil
}

// HookCursor is the cursor of a list of hooks that was read up to the hook.
func HookCursor(h entities.Hook) string {
	return pg.TimeCursor{At: h.CreatedAt, ID: string(h.ID)}.String()
}

// InsertHook adds the insertion of a hook.
func InsertHook(w pg.Writer, h *entities.Hook) {
	w.Add(pg.Write{What: "insert hook", SQL: `
		INSERT INTO hooks (` + hookColumns + `)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::boolean, $6::boolean, $7::integer, $8::bigint, $9::timestamptz,
			$10::timestamptz, $11::timestamptz, $12::text, $13::text
		WHERE true`, Args: []any{
		h.RunID, h.ID, h.Project, h.Token, h.IsWebhook, h.IsSystem, h.SpecVersion, h.CreatedSeq, h.CreatedAt,
		h.RetainUntil, h.ExpiresAt, h.Signal, h.Condition,
	}})
}

// DeleteHook adds the deletion of a hook, which frees its token.
func DeleteHook(w pg.Writer, runID entities.RunID, id entities.HookID) {
	w.Add(pg.Write{What: "delete hook", SQL: `DELETE FROM hooks WHERE run_id = $1 AND id = $2`, Args: []any{runID, id}})
}

// DeleteExpiredHook adds the deletion of a hook of another run whose time to hold the token is over. That
// run may be disposing of it right now.
func DeleteExpiredHook(w pg.Writer, h *entities.Hook) {
	w.Add(pg.Write{
		SQL:  `DELETE FROM hooks WHERE run_id = $1 AND id = $2 AND expires_at = $3`,
		Args: []any{h.RunID, h.ID, h.ExpiresAt},
	})
}

// DeleteExpiredHooks deletes hooks that have outlived their run for as long as they asked, by the database's
// clock.
func DeleteExpiredHooks(ctx context.Context, q pg.Querier) error {
	rows, err := q.Query(ctx, `DELETE FROM hooks WHERE expires_at <= now()`)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		return fmt.Errorf("delete expired hooks: %w", err)
	}
	return nil
}

// EndHooks adds what the end of a run does to its hooks: they go, with their tokens, but for those that
// are to be retained beyond the given time.
func EndHooks(w pg.Writer, runID entities.RunID, at time.Time) {
	args := []any{runID, at}
	w.Add(pg.Write{SQL: `DELETE FROM hooks WHERE run_id = $1 AND (retain_until IS NULL OR retain_until <= $2)`, Args: args})
	w.Add(pg.Write{SQL: `UPDATE hooks SET expires_at = retain_until WHERE run_id = $1 AND retain_until > $2`, Args: args})
}
