package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// KeyID is "key_" and a ULID that the server made. It names an API key, and lets nobody in.
type KeyID string

// NewKeyID makes the ID of a key that is made at the given time.
func NewKeyID(at time.Time) KeyID {
	return KeyID("key_" + ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String())
}

// Role is what a key may do in its project.
type Role string

// The roles. Of the first four, each may do all that the next one may.
const (
	// RoleAdmin also looks after keys, deployments, secrets and the audit.
	RoleAdmin Role = "admin"
	// RoleWrite also changes runs and messages: an app's key.
	RoleWrite Role = "write"
	// RoleRead sees everything that is not administration, with payloads.
	RoleRead Role = "read"
	// RoleMetadata sees the same without payloads, and without what could be used to act.
	RoleMetadata Role = "metadata"
	// RoleInvoke starts runs, resumes hooks and sends signals, and sees of a run whose ID it has how it is going.
	RoleInvoke Role = "invoke"
)

// Roles are all there are.
func Roles() []Role { return []Role{RoleAdmin, RoleWrite, RoleRead, RoleMetadata, RoleInvoke} }

// Key is an API key, as far as anybody is told: its text is shown once, when it is made.
type Key struct {
	ID      KeyID
	Project entities.Project
	Name    string
	Role    Role
	// Prefix is how its text begins.
	Prefix    string
	CreatedAt time.Time
	// ExpiresAt is from when on it lets nobody in; nil for never.
	ExpiresAt *time.Time
	// RevokedAt is set when it was revoked, for good.
	RevokedAt *time.Time
	// LastUsedAt is when a request last came with it, to the minute or so; nil before the first.
	LastUsedAt *time.Time
}

// Validate checks what its maker says of a key. It fails with [ErrInvalid].
func (k Key) Validate(now time.Time) error {
	if err := entities.ValidateName("name", k.Name); err != nil {
		return err
	}
	if !slices.Contains(Roles(), k.Role) {
		return entities.Invalid("role %q is none of %v", k.Role, Roles())
	}
	if k.ExpiresAt != nil && !k.ExpiresAt.After(now) {
		return entities.Invalid("expiresAt is over already")
	}
	return nil
}

// Revoked reports whether the key lets nobody in any more because someone said so, and Expired because its time is
// over.
func (k Key) Revoked() bool { return k.RevokedAt != nil }

// Expired is described with [Key.Revoked].
func (k Key) Expired(now time.Time) bool { return k.ExpiresAt != nil && !now.Before(*k.ExpiresAt) }

const keyColumns = `id, project, name, role, prefix, created_at, expires_at, revoked_at, last_used_at`

// InsertKey queues the write of a new key, whose text has the SHA-256 hash.
func InsertKey(b *pgx.Batch, k Key, hash [32]byte) {
	pg.QueueOne(b, "insert key", `
		INSERT INTO api_keys (id, project, name, role, prefix, hash, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		k.ID, k.Project, k.Name, k.Role, k.Prefix, hash[:], k.CreatedAt, k.ExpiresAt)
}

// RevokeKey queues the end of a key, and puts it where into points if it was not revoked before.
func RevokeKey(b *pgx.Batch, project entities.Project, id KeyID, now time.Time, into **Key) {
	pg.LoadInto(b, into, `
		UPDATE api_keys SET revoked_at = $3 WHERE project = $1 AND id = $2 AND revoked_at IS NULL
		RETURNING `+keyColumns, project, id, now)
}

// KeyByHash reads the key whose text has the hash, in whichever project, also if it was revoked or has expired. It
// fails with [ErrKeyNotFound].
func KeyByHash(ctx context.Context, q pg.Querier, hash [32]byte) (Key, error) {
	return oneKey(ctx, q, `hash = $1`, hash[:])
}

// KeyByID reads a key of the project. It fails with [ErrKeyNotFound].
func KeyByID(ctx context.Context, q pg.Querier, project entities.Project, id KeyID) (Key, error) {
	return oneKey(ctx, q, `project = $1 AND id = $2`, project, id)
}

func oneKey(ctx context.Context, q pg.Querier, condition string, args ...any) (Key, error) {
	rows, err := q.Query(ctx, `SELECT `+keyColumns+` FROM api_keys WHERE `+condition, args...)
	k, err := pg.CollectOne[Key](rows, err, ErrKeyNotFound)
	if err != nil {
		return k, fmt.Errorf("read key: %w", err)
	}
	return k, nil
}

// ListKeys reads a page of the project's keys, also of those that are good no more, in the order in which they were
// made, and returns the cursor of the next page; empty when this is the last. It fails with [ErrInvalid] on a bad
// cursor.
func ListKeys(ctx context.Context, q pg.Querier, project entities.Project, p pg.Page) (keys []Key, next string, err error) {
	if p.Cursor != "" && entities.ValidateID("cursor", p.Cursor) != nil {
		return nil, "", pg.BadCursor(p.Cursor)
	}
	keyword, after := p.Order()
	rows, err := q.Query(ctx, `
		SELECT `+keyColumns+` FROM api_keys WHERE project = $1 AND ($2::text = '' OR id `+after+` $2)
		ORDER BY id `+keyword+` LIMIT $3`, project, p.Cursor, p.Limit+1)
	keys, more, err := pg.CollectPage[Key](rows, err, p.Limit)
	if err != nil {
		return nil, "", fmt.Errorf("list keys: %w", err)
	}
	if more {
		next = string(keys[len(keys)-1].ID)
	}
	return keys, next, nil
}

// AdminKeyExists reports whether any project has an admin key that is good at the given time.
func AdminKeyExists(ctx context.Context, q pg.Querier, now time.Time) (bool, error) {
	rows, err := q.Query(ctx, `
		SELECT EXISTS (SELECT FROM api_keys
			WHERE role = 'admin' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1))`, now)
	if err != nil {
		return false, fmt.Errorf("look for admin keys: %w", err)
	}
	exists, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	if err != nil {
		return false, fmt.Errorf("look for admin keys: %w", err)
	}
	return exists, nil
}

// MarkKeysUsed queues the write of when keys were last used. A time before the one that is there changes nothing.
func MarkKeysUsed(b *pgx.Batch, used map[KeyID]time.Time) {
	ids, times := make([]KeyID, 0, len(used)), make([]time.Time, 0, len(used))
	for id, at := range used {
		ids, times = append(ids, id), append(times, at)
	}
	// In one order, so that servers that write the same keys do not wait for each other in a circle.
	b.Queue(`
		WITH locked AS (
			SELECT k.id, u.at FROM api_keys k JOIN unnest($1::text[], $2::timestamptz[]) AS u (id, at) ON u.id = k.id
			WHERE k.last_used_at IS NULL OR k.last_used_at < u.at
			ORDER BY k.id FOR UPDATE OF k
		)
		UPDATE api_keys k SET last_used_at = locked.at FROM locked WHERE k.id = locked.id`, ids, times)
}

// ErrKeyNotFound: the project has no such API key.
var ErrKeyNotFound = errors.New("API key not found")
