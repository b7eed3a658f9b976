package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// ErrSessionNotFound means that there is no such session, that it has ended, or that it has not opened the project.
var ErrSessionNotFound = errors.New("session not found")

// SessionID is the SHA-256 of a session's cookie.
type SessionID [32]byte

// SessionKey is a row of session_keys: what opened a project in a session. It is either a key, or the key in the
// server's environment, of which the row has a digest.
type SessionKey struct {
	Project     entities.Project
	KeyID       *KeyID
	Environment []byte
	// CreatedAt and UsedAt are when the session began and was last used, the latter accurate to about an hour.
	CreatedAt, UsedAt time.Time
}

// InsertSession queues the insertion of a session.
func InsertSession(b *pgx.Batch, id SessionID, created, used time.Time) {
	pg.QueueOne(b, "insert session", `INSERT INTO sessions (id, created_at, used_at) VALUES ($1, $2, $3)`,
		id[:], created, used)
}

// InsertSessionKey queues the insertion of what opens a project in a session.
func InsertSessionKey(b *pgx.Batch, id SessionID, k SessionKey) {
	pg.QueueOne(b, "insert session key",
		`INSERT INTO session_keys (session_id, project, key_id, environment) VALUES ($1, $2, $3, $4)`,
		id[:], k.Project, k.KeyID, k.Environment)
}

// DeleteSession queues the deletion of a session, if it exists.
func DeleteSession(b *pgx.Batch, id SessionID) { b.Queue(`DELETE FROM sessions WHERE id = $1`, id[:]) }

// DeleteIdleSessions queues the deletion of all sessions that were last used, or that began, before the given times.
func DeleteIdleSessions(b *pgx.Batch, used, created time.Time) {
	b.Queue(`DELETE FROM sessions WHERE used_at < $1 OR created_at < $2`, used, created)
}

// TouchSession queues the time of a session's last use.
func TouchSession(b *pgx.Batch, id SessionID, now time.Time) {
	b.Queue(`UPDATE sessions SET used_at = $2 WHERE id = $1 AND used_at < $2`, id[:], now)
}

// SessionKeys reads what has opened projects in a session that was used after the first time and began after the
// second one, by project.
func SessionKeys(ctx context.Context, q pg.Querier, id SessionID, used, created time.Time) ([]SessionKey, error) {
	keys, err := pg.CollectAll[SessionKey](q.Query(ctx, `
		SELECT k.project, k.key_id, k.environment, s.created_at, s.used_at
		FROM sessions s JOIN session_keys k ON k.session_id = s.id
		WHERE s.id = $1 AND s.used_at >= $2 AND s.created_at >= $3 ORDER BY k.project`, id[:], used, created))
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	return keys, nil
}
