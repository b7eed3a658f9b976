package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const hookColumns = `run_id, id, project, token, is_webhook, is_system, spec_version, created_seq, created_at,
	retain_until, expires_at, signal, condition, claimed_from`

// LoadHook queues a read of the hook, if the run has it, and locks its row: another run may be about to take over the
// token of an expired hook, for which it deletes the row.
func LoadHook(b *pgx.Batch, runID entities.RunID, id entities.HookID, into map[entities.HookID]entities.Hook) {
	pg.LoadEach(b, func(h entities.Hook) { into[h.ID] = h },
		`SELECT `+hookColumns+` FROM hooks WHERE run_id = $1 AND id = $2 FOR NO KEY UPDATE`, runID, id)
}

// LockToken queues a lock on the token's name, held until the transaction ends, and a read of the hook that has the
// token, even an expired one. The lock serializes claims of one token: a name without a row can be locked only by an
// advisory lock.
func LockToken(b *pgx.Batch, project entities.Project, token string, into map[string]*entities.Hook) {
	b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended($1::text || ' ' || $2::text, 0))`, project, token)
	pg.LoadEach(b, func(h entities.Hook) { into[h.Token] = &h },
		`SELECT `+hookColumns+` FROM hooks WHERE project = $1 AND token = $2`, project, token)
}

// LockHolders queues locks on the run and on the runs whose hooks have the tokens, and adds their IDs. They are taken
// in the order of the IDs, and before the locks on the tokens, for which the runs may wait: two runs that take over
// each other's tokens must not wait for each other. Takeovers of one token follow each other, so that each finds the
// holder that the one before it has left.
func LockHolders(
	b *pgx.Batch, project entities.Project, runID entities.RunID, tokens []string, locked map[entities.RunID]bool,
) {
	for _, token := range slices.Sorted(slices.Values(tokens)) {
		b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('takeover ' || $1::text || ' ' || $2::text, 0))`,
			project, token)
	}
	pg.LoadEach(b, func(run struct{ ID entities.RunID }) { locked[run.ID] = true }, `
		SELECT id FROM runs WHERE project = $1 AND id = ANY (
			SELECT run_id FROM hooks WHERE project = $1 AND token = ANY ($3) UNION SELECT $2
		) ORDER BY id FOR NO KEY UPDATE`, project, runID, tokens)
}

// holdsToken is the condition on hooks that hold their token at the time given by parameter n. It is
// [entities.Hook.Holds] in SQL.
func holdsToken(n int) string { return fmt.Sprintf(`(expires_at IS NULL OR expires_at > $%d)`, n) }

// HookByToken reads the hook that holds the token at the given time. It fails with [entities.ErrHookNotFound].
func HookByToken(
	ctx context.Context, q pg.Querier, project entities.Project, token string, at time.Time,
) (entities.Hook, error) {
	rows, err := q.Query(ctx,
		`SELECT `+hookColumns+` FROM hooks WHERE project = $1 AND token = $2 AND `+holdsToken(3), project, token, at)
	hook, err := pg.CollectOne[entities.Hook](rows, err, entities.ErrHookNotFound)
	return hook, pg.Wrap(err, "read hook by token")
}

// HookByID reads a hook of the project that holds its token at the given time. Of several runs that have a hook of this
// ID, it takes the first by run ID. It fails with [entities.ErrHookNotFound].
func HookByID(
	ctx context.Context, q pg.Querier, project entities.Project, id entities.HookID, at time.Time,
) (entities.Hook, error) {
	rows, err := q.Query(ctx, `
		SELECT `+hookColumns+` FROM hooks WHERE id = $1 AND project IS NOT DISTINCT FROM $2 AND `+holdsToken(3)+`
		ORDER BY run_id LIMIT 1`, id, project, at)
	hook, err := pg.CollectOne[entities.Hook](rows, err, entities.ErrHookNotFound)
	return hook, pg.Wrap(err, "read hook %s", id)
}

// ListHooks reads a page of the hooks that hold their token at the given time, oldest first, and the cursor of the next
// page; empty after the last page. An empty runID lists the hooks of all the project's runs. It fails with a
// [pg.CursorError] on a cursor of another list.
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
		LIMIT $6`, order, after, holdsToken(7))
	rows, err := q.Query(ctx, sql, project, runID, p.Cursor == "", from.At, from.ID, p.Limit+1, at)
	hooks, next, err := pg.CollectPage(rows, err, p.Limit, HookCursor)
	return hooks, next, pg.Wrap(err, "list hooks")
}

// HookCursor returns the cursor for the part of the list of hooks that follows the hook.
func HookCursor(h entities.Hook) string {
	return pg.TimeCursor{At: h.CreatedAt, ID: string(h.ID)}.String()
}

// InsertHook adds the insertion of a hook.
func InsertHook(w pg.Writer, h *entities.Hook) {
	w.Add(pg.Write{What: "insert hook", SQL: `
		INSERT INTO hooks (` + hookColumns + `)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::boolean, $6::boolean, $7::integer, $8::bigint, $9::timestamptz,
			$10::timestamptz, $11::timestamptz, $12::text, $13::text, $14::jsonb
		WHERE true`, Args: []any{
		h.RunID, h.ID, h.Project, h.Token, h.IsWebhook, h.IsSystem, h.SpecVersion, h.CreatedSeq, h.CreatedAt,
		h.RetainUntil, h.ExpiresAt, h.Signal, h.Condition, h.ClaimedFrom,
	}})
}

// DeleteHook adds the deletion of a hook, which frees its token.
func DeleteHook(w pg.Writer, runID entities.RunID, id entities.HookID) {
	w.Add(pg.Write{What: "delete hook", SQL: `DELETE FROM hooks WHERE run_id = $1 AND id = $2`, Args: []any{runID, id}})
}

// DeleteExpiredHook adds the deletion of an expired hook of another run, to take over its token. It may delete nothing:
// the other run may be disposing of the hook at the same time.
func DeleteExpiredHook(w pg.Writer, h *entities.Hook) {
	w.Add(pg.Write{
		SQL:  `DELETE FROM hooks WHERE run_id = $1 AND id = $2 AND expires_at = $3`,
		Args: []any{h.RunID, h.ID, h.ExpiresAt},
	})
}

// DeleteExpiredHooks deletes all hooks that outlived their run and have expired since, by the database's clock.
func DeleteExpiredHooks(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `DELETE FROM hooks WHERE expires_at <= now() AND `+pg.Staying("project"))
	return pg.Wrap(err, "delete expired hooks")
}

// EndHooks adds the writes of a run's end to its hooks. Hooks to be retained beyond the given time get their expiry;
// the others are deleted, which frees their tokens.
func EndHooks(w pg.Writer, runID entities.RunID, at time.Time) {
	args := []any{runID, at}
	w.Add(pg.Write{
		SQL:  `DELETE FROM hooks WHERE run_id = $1 AND (retain_until IS NULL OR retain_until <= $2)`,
		Args: args,
	})
	w.Add(pg.Write{SQL: `UPDATE hooks SET expires_at = retain_until WHERE run_id = $1 AND retain_until > $2`, Args: args})
}
