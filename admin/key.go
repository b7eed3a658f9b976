package admin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// ErrKeyNotFound means that the project has no such API key.
var ErrKeyNotFound = errors.New("API key not found")

// KeyID is "key_" and a ULID made by the server. It identifies an API key and is no credential.
type KeyID string

// NewKeyID returns an ID for a key that is created at the given time.
func NewKeyID(at time.Time) KeyID {
	return KeyID("key_" + ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String())
}

// Role is the set of permissions that a key has in its project.
type Role string

// The roles. Each of the first four includes the permissions of the next one.
const (
	// RoleAdmin also manages keys, deployments and secrets, and reads the audit.
	RoleAdmin Role = "admin"
	// RoleWrite also changes runs and messages. It is the role of an app's key.
	RoleWrite Role = "write"
	// RoleRead reads everything but administration, including payloads.
	RoleRead Role = "read"
	// RoleMetadata reads the same without payloads, and without anything that could be used to act, such as tokens.
	RoleMetadata Role = "metadata"
	// RoleInvoke starts runs, resumes hooks, sends signals, and reads the state of a run by its ID.
	RoleInvoke Role = "invoke"
	// RoleWorker registers the deployments of the key's pattern, and nothing else. It is for apps that register
	// themselves.
	RoleWorker Role = "worker"
)

// Roles returns all roles.
func Roles() []Role {
	return []Role{RoleAdmin, RoleWrite, RoleRead, RoleMetadata, RoleInvoke, RoleWorker}
}

// Key describes an API key, without its text, which is shown only once, at its creation.
type Key struct {
	ID      KeyID
	Project entities.Project
	Name    string
	Role    Role
	// Deployments says which deployments a key of [RoleWorker] registers: the one with this ID, or if it ends in *, all
	// whose IDs begin like it. Empty for other roles.
	Deployments string
	// Prefix is the beginning of its text. A person's key has no text, and no prefix.
	Prefix string
	// Person is who signed in by the company's identity provider and got the key for sessions of the dashboard; empty for
	// a key of programs.
	Person    string
	CreatedAt time.Time
	// ExpiresAt is the time from which the key is rejected; nil for never.
	ExpiresAt *time.Time
	// RevokedAt is set when the key is revoked, which cannot be undone.
	RevokedAt *time.Time
	// LastUsedAt is the time of the last request with the key, accurate to about a minute; nil before the first.
	LastUsedAt *time.Time
	// Departure is set once the project is in another cell.
	Departure
}

// Validate validates the name, role, deployments and expiry of a new key. It fails with [entities.ErrInvalid].
func (k Key) Validate(now time.Time) error {
	if err := entities.ValidateName("name", k.Name); err != nil {
		return err
	}
	if !slices.Contains(Roles(), k.Role) {
		return entities.Invalid("role %q is not one of %v", k.Role, Roles())
	}
	if k.Role == RoleWorker {
		if err := entities.ValidateID("deployments", k.Deployments); err != nil {
			return err
		}
		if strings.Contains(strings.TrimSuffix(k.Deployments, "*"), "*") {
			return entities.Invalid("deployments %q has a * before its end", k.Deployments)
		}
	} else if k.Deployments != "" {
		return entities.Invalid("deployments are only for keys with the role %s", RoleWorker)
	}
	if k.ExpiresAt != nil && !k.ExpiresAt.After(now) {
		return entities.Invalid("expiresAt is in the past")
	}
	return nil
}

// Registers reports whether a key of [RoleWorker] may register a deployment.
func (k Key) Registers(deployment string) bool {
	prefix, all := strings.CutSuffix(k.Deployments, "*")
	return k.Role == RoleWorker && (deployment == k.Deployments || all && strings.HasPrefix(deployment, prefix))
}

// Revoked reports whether the key has been revoked.
func (k Key) Revoked() bool { return k.RevokedAt != nil }

// Expired reports whether the key has expired at the given time.
func (k Key) Expired(now time.Time) bool { return k.ExpiresAt != nil && !now.Before(*k.ExpiresAt) }

var keyColumns = `id, project, name, role, deployments, prefix, person, created_at, expires_at, revoked_at,
	last_used_at, ` + departureOf("api_keys.project")

// InsertKey queues the insertion of a key. Hash is the SHA-256 of its text.
func InsertKey(b *pgx.Batch, k Key, hash [32]byte) {
	pg.QueueOne(b, "insert key", `
		INSERT INTO api_keys (id, project, name, role, deployments, prefix, hash, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		k.ID, k.Project, k.Name, k.Role, k.Deployments, k.Prefix, hash[:], k.CreatedAt, k.ExpiresAt)
}

// PutPersonKey queues the insertion of the key of a person, or gives the one that the person has in the project a new
// name, role and expiry. It makes *into point to the key.
func PutPersonKey(b *pgx.Batch, k Key, hash [32]byte, into **Key) {
	pg.LoadInto(b, into, `
		INSERT INTO api_keys (id, project, name, role, prefix, person, hash, created_at, expires_at)
		VALUES ($1, $2, $3, $4, '', $5, $6, $7, $8)
		ON CONFLICT (person, project) WHERE person <> '' AND revoked_at IS NULL
		DO UPDATE SET name = excluded.name, role = excluded.role, expires_at = excluded.expires_at
		RETURNING `+keyColumns, k.ID, k.Project, k.Name, k.Role, k.Person, hash[:], k.CreatedAt, k.ExpiresAt)
}

// RevokeKey queues the revocation of a key. It makes *into point to the key, unless there is no such key or it was
// revoked before.
func RevokeKey(b *pgx.Batch, project entities.Project, id KeyID, now time.Time, into **Key) {
	pg.LoadInto(b, into, `
		UPDATE api_keys SET revoked_at = $3 WHERE project = $1 AND id = $2 AND revoked_at IS NULL
		RETURNING `+keyColumns, project, id, now)
}

// KeyByHash reads the key of any project whose text has the hash, even if it is revoked or expired. It fails with
// [ErrKeyNotFound].
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
	return k, pg.Wrap(err, "read key")
}

// ListKeys reads a page of the project's keys, oldest first, including revoked and expired ones, and the cursor of the
// next page; empty after the last page. It fails with a [pg.CursorError] on a malformed cursor.
func ListKeys(
	ctx context.Context, q pg.Querier, project entities.Project, p pg.Page,
) (keys []Key, next string, err error) {
	if p.Cursor != "" && entities.ValidateID("cursor", p.Cursor) != nil {
		return nil, "", pg.BadCursor(p.Cursor)
	}
	keyword, after := p.Order()
	rows, err := q.Query(ctx, `
		SELECT `+keyColumns+` FROM api_keys WHERE project = $1 AND ($2::text = '' OR id `+after+` $2)
		ORDER BY id `+keyword+` LIMIT $3`, project, p.Cursor, p.Limit+1)
	keys, next, err = pg.CollectPage(rows, err, p.Limit, func(k Key) string { return string(k.ID) })
	return keys, next, pg.Wrap(err, "list keys")
}

// HasAdminKey reports whether any project has an admin key of programs that is neither revoked nor expired at the given
// time.
func HasAdminKey(ctx context.Context, q pg.Querier, now time.Time) (bool, error) {
	exists, err := pg.CollectValue[bool](q.Query(ctx, `
		SELECT EXISTS (SELECT FROM api_keys
			WHERE role = 'admin' AND person = '' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1))`, now))
	return exists, pg.Wrap(err, "look for admin keys")
}

// MarkKeysUsed queues the update of when keys were last used. It never sets an earlier time than the stored one.
func MarkKeysUsed(b *pgx.Batch, used map[KeyID]time.Time) {
	ids, times := make([]KeyID, 0, len(used)), make([]time.Time, 0, len(used))
	for id, at := range used {
		ids, times = append(ids, id), append(times, at)
	}
	// The rows are locked in the order of their IDs, so that servers that update the same keys do not deadlock.
	b.Queue(`
		WITH locked AS (
			SELECT k.id, u.at FROM api_keys k JOIN unnest($1::text[], $2::timestamptz[]) AS u (id, at) ON u.id = k.id
			WHERE (k.last_used_at IS NULL OR k.last_used_at < u.at) AND `+pg.Staying("k.project")+`
			ORDER BY k.id FOR UPDATE OF k
		)
		UPDATE api_keys k SET last_used_at = locked.at FROM locked WHERE k.id = locked.id`, ids, times)
}
