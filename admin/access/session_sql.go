package access

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// sessionKey is a row of session_keys: what opened a project in a session. It is either a key, or the key in the
// server's environment, of which the row has a digest.
type sessionKey struct {
	Project     entities.Project
	KeyID       *admin.KeyID
	Environment []byte
	// CreatedAt and UsedAt are when the session began and was last used, the latter accurate to about an hour.
	CreatedAt, UsedAt time.Time
}

// insertSessionKey queues the insertion of what opens a project in a session.
func insertSessionKey(b *pgx.Batch, id admin.SessionID, k sessionKey) {
	pg.QueueOne(b, "insert session key",
		`INSERT INTO session_keys (session_id, project, key_id, environment) VALUES ($1, $2, $3, $4)`,
		id[:], k.Project, k.KeyID, k.Environment)
}

// deleteSession queues the deletion of a session, if it exists.
func deleteSession(b *pgx.Batch, id admin.SessionID) {
	b.Queue(`DELETE FROM sessions WHERE id = $1`, id[:])
}

// sessionKeys reads what has opened projects in a session that was used after the first time and began after the second
// one, by project. Lock ends the statement: FOR UPDATE, or nothing.
func sessionKeys(
	ctx context.Context, q pg.Querier, id admin.SessionID, used, created time.Time, lock string,
) ([]sessionKey, error) {
	keys, err := pg.CollectAll[sessionKey](q.Query(ctx, `
		SELECT k.project, k.key_id, k.environment, s.created_at, s.used_at
		FROM sessions s JOIN session_keys k ON k.session_id = s.id
		WHERE s.id = $1 AND s.used_at >= $2 AND s.created_at >= $3 ORDER BY k.project`+lock, id[:], used, created))
	return keys, pg.Wrap(err, "read session")
}

// openSessions reads a page of the sessions that have opened the project, by ID, and the cursor of the next page; empty
// after the last page. It leaves out sessions whose key is revoked or expired at the time now, and those that were last
// used, or that began, before the other times. It fails with a [pg.CursorError] on a malformed cursor.
func openSessions(
	ctx context.Context, q pg.Querier, project entities.Project, p pg.Page, now, used, created time.Time,
) (list []admin.OpenSession, next string, err error) {
	var after admin.SessionID
	if p.Cursor != "" {
		if after, err = admin.ParseSessionID(p.Cursor); err != nil {
			return nil, "", pg.BadCursor(p.Cursor)
		}
	}
	rows, err := q.Query(ctx, `
		SELECT s.id, coalesce(k.id, '') AS key_id, coalesce(k.name, '') AS key_name, coalesce(k.role, '') AS role,
			s.created_at, s.used_at
		FROM session_keys o JOIN sessions s ON s.id = o.session_id LEFT JOIN api_keys k ON k.id = o.key_id
		WHERE o.project = $1 AND o.session_id > $2 AND s.used_at >= $4 AND s.created_at >= $5
			AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $3)
		ORDER BY o.session_id LIMIT $6`, project, after[:], now, used, created, p.Limit+1)
	list, next, err = pg.CollectPage(rows, err, p.Limit, func(o admin.OpenSession) string { return o.ID.String() })
	return list, next, pg.Wrap(err, "list sessions")
}

// closeProject queues the end of a project in a session. The batch fails with [admin.ErrSessionNotFound] if the session
// had not opened it.
func closeProject(b *pgx.Batch, id admin.SessionID, project entities.Project) {
	b.Queue(`DELETE FROM session_keys WHERE session_id = $1 AND project = $2`, id[:], project).
		Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 0 {
				return admin.ErrSessionNotFound
			}
			return nil
		})
}

// validClients returns those of the clients that are still valid, in one statement: their keys are neither revoked nor
// expired at the time now, and their sessions were used after the second time and began after the third one.
func validClients(
	ctx context.Context, q pg.Querier, clients []admin.Client, now, used, created time.Time,
) (map[admin.Client]bool, error) {
	keys, sessions := make([]admin.KeyID, len(clients)), make([][]byte, len(clients))
	projects := make([]entities.Project, len(clients))
	for i, c := range clients {
		keys[i], sessions[i], projects[i] = c.Key, c.Session[:], c.Project
	}
	numbers, err := pg.CollectColumn[int](q.Query(ctx, `
		SELECT c.number FROM unnest($1::text[], $2::bytea[], $3::text[]) WITH ORDINALITY AS c (key, session, project, number)
		LEFT JOIN sessions s ON s.id = c.session AND s.used_at >= $5 AND s.created_at >= $6
		LEFT JOIN session_keys o ON o.session_id = s.id AND o.project = c.project
		LEFT JOIN api_keys k ON k.id = coalesce(o.key_id, c.key)
		WHERE o.environment IS NOT NULL
			OR k.id IS NOT NULL AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $4)
				AND NOT EXISTS (SELECT FROM departures WHERE departures.project = k.project AND moved_at IS NOT NULL)`,
		keys, sessions, projects, now, used, created))
	valid := map[admin.Client]bool{}
	for _, n := range numbers {
		valid[clients[n-1]] = true
	}
	return valid, pg.Wrap(err, "check clients")
}
