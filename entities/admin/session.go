package admin

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// DeleteOldSessions queues the deletion of all sessions that began before the time. Those that ended earlier, because
// nobody used them, stay until then.
func DeleteOldSessions(b *pgx.Batch, created time.Time) {
	b.Queue(`DELETE FROM sessions WHERE created_at < $1`, created)
}

// TouchSession queues the time of a session's last use.
func TouchSession(b *pgx.Batch, id SessionID, now time.Time) {
	b.Queue(`UPDATE sessions SET used_at = $2 WHERE id = $1 AND used_at < $2`, id[:], now)
}

const sessionKeys = `
	SELECT k.project, k.key_id, k.environment, s.created_at, s.used_at
	FROM sessions s JOIN session_keys k ON k.session_id = s.id
	WHERE s.id = $1 AND s.used_at >= $2 AND s.created_at >= $3 ORDER BY k.project`

// SessionKeys reads what has opened projects in a session that was used after the first time and began after the
// second one, by project.
func SessionKeys(ctx context.Context, q pg.Querier, id SessionID, used, created time.Time) ([]SessionKey, error) {
	return collectSessionKeys(q.Query(ctx, sessionKeys, id[:], used, created))
}

// LockSessionKeys is [SessionKeys] that locks the rows. It waits for transactions that end the session or one of its
// projects, and leaves out what they have ended.
func LockSessionKeys(ctx context.Context, tx pgx.Tx, id SessionID, used, created time.Time) ([]SessionKey, error) {
	return collectSessionKeys(tx.Query(ctx, sessionKeys+` FOR UPDATE`, id[:], used, created))
}

func collectSessionKeys(rows pgx.Rows, err error) ([]SessionKey, error) {
	keys, err := pg.CollectAll[SessionKey](rows, err)
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	return keys, nil
}

// OpenSession is a session that has opened a project.
type OpenSession struct {
	ID SessionID
	// KeyID, KeyName and Role are those of the key that opened the project; empty for the key in the server's environment.
	KeyID   KeyID
	KeyName string
	Role    Role
	// CreatedAt and UsedAt are those of [SessionKey].
	CreatedAt, UsedAt time.Time
}

// sessionRow is the row of an [OpenSession].
type sessionRow struct {
	ID                []byte
	KeyID             KeyID
	KeyName           string
	Role              Role
	CreatedAt, UsedAt time.Time
}

// OpenSessions reads a page of the sessions that have opened the project, by ID, and the cursor of the next page; empty
// after the last page. It leaves out sessions whose key is revoked or expired at the time now, and those that were last
// used, or that began, before the other times. It fails with a [pg.CursorError] on a malformed cursor.
func OpenSessions(
	ctx context.Context, q pg.Querier, project entities.Project, p pg.Page, now, used, created time.Time,
) (list []OpenSession, next string, err error) {
	var after SessionID
	if p.Cursor != "" {
		if after, err = ParseSessionID(p.Cursor); err != nil {
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
	found, more, err := pg.CollectPage[sessionRow](rows, err, p.Limit)
	if err != nil {
		return nil, "", fmt.Errorf("list sessions: %w", err)
	}
	for _, r := range found {
		list = append(list, OpenSession{SessionID(r.ID), r.KeyID, r.KeyName, r.Role, r.CreatedAt, r.UsedAt})
	}
	if more {
		next = list[len(list)-1].ID.String()
	}
	return list, next, nil
}

// String returns the ID in hexadecimal. It is no credential: nobody can find the cookie of which it is the digest.
func (id SessionID) String() string { return hex.EncodeToString(id[:]) }

// ParseSessionID parses the text of a session's ID. It fails with [ErrSessionNotFound].
func ParseSessionID(text string) (id SessionID, err error) {
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != len(id) {
		return id, ErrSessionNotFound
	}
	return SessionID(data), nil
}

// CloseProject queues the end of a project in a session, and sets *closed if the session had opened it.
func CloseProject(b *pgx.Batch, id SessionID, project entities.Project, closed *bool) {
	b.Queue(`DELETE FROM session_keys WHERE session_id = $1 AND project = $2`, id[:], project).
		Exec(func(tag pgconn.CommandTag) error {
			*closed = tag.RowsAffected() > 0
			return nil
		})
}

// InsertSessionCode queues the insertion of a code that opens a project once. Its ID is the SHA-256 of the code.
func InsertSessionCode(b *pgx.Batch, id SessionID, k SessionKey) {
	pg.QueueOne(b, "insert session code", `
		INSERT INTO session_codes (id, project, key_id, environment, created_at) VALUES ($1, $2, $3, $4, $5)`,
		id[:], k.Project, k.KeyID, k.Environment, k.CreatedAt)
}

// DeleteOldCodes queues the deletion of the codes that were made before the time.
func DeleteOldCodes(b *pgx.Batch, created time.Time) {
	b.Queue(`DELETE FROM session_codes WHERE created_at < $1`, created)
}

// TakeSessionCode deletes a code and returns what it opens, unless it was made before the time. It fails with
// [ErrSessionNotFound].
func TakeSessionCode(ctx context.Context, tx pgx.Tx, id SessionID, created time.Time) (SessionKey, error) {
	rows, err := tx.Query(ctx, `
		DELETE FROM session_codes WHERE id = $1 AND created_at >= $2
		RETURNING project, key_id, environment, created_at, created_at AS used_at`, id[:], created)
	return pg.CollectOne[SessionKey](rows, err, ErrSessionNotFound)
}
