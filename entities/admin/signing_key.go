package admin

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// ErrSigningKeyNotFound: the project has no such signing key.
var ErrSigningKeyNotFound = errors.New("signing key not found")

// MaxSigningKeys is how many signing keys a project may have: the one in use, and the one that is to replace it.
const MaxSigningKeys = 2

// ErrTooManySigningKeys is of a project that has as many signing keys as it may.
var ErrTooManySigningKeys = errors.New("the project has two signing keys; delete the old one first")

// SigningKey is what the calls of a project's functions are signed with, as far as anybody is told.
type SigningKey struct {
	// ID is "skey_" and a ULID.
	ID        string
	CreatedAt time.Time
}

const (
	signingKeyPrefix    = "skey_"
	signingSecretPrefix = "swsk_"
	signingSecretSize   = 32
)

// SigningSecret is the secret of a signing key. It does not show in logs, errors and JSON, unless it is revealed.
type SigningSecret []byte

// NewSigningSecret makes a secret by chance.
func NewSigningSecret() SigningSecret {
	s := make(SigningSecret, signingSecretSize)
	_, _ = rand.Read(s) // never fails
	return s
}

// Reveal is the secret as those who verify with it are told, once: "swsk_" and base64.
func (s SigningSecret) Reveal() string {
	return signingSecretPrefix + base64.StdEncoding.EncodeToString(s)
}

// String hides the secret.
func (SigningSecret) String() string { return hidden }

// GoString hides the secret.
func (SigningSecret) GoString() string { return hidden }

// Format hides the secret from every verb.
func (SigningSecret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue hides the secret.
func (SigningSecret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the secret.
func (SigningSecret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// SigningKeySecret is a signing key with its secret.
type SigningKeySecret struct {
	ID     string
	Secret SigningSecret
}

// NewSigningKeyID makes the ID of a new signing key.
func NewSigningKeyID(now time.Time) string {
	return signingKeyPrefix + ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String()
}

const signingKeyColumns = `id, created_at`

// LockSigningKeys queues the lock under which the project's keys are counted.
func LockSigningKeys(b *pgx.Batch, project entities.Project) {
	b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('signing keys ' || $1::text, 0))`, project)
}

// InsertSigningKey queues the insertion of a key into a slot that is free, and puts it where into points if there was
// one. The project's keys must be locked.
func InsertSigningKey(b *pgx.Batch, project entities.Project, key SigningKeySecret, now time.Time, into **SigningKey) {
	pg.LoadInto(b, into, `
		INSERT INTO signing_keys (project, id, slot, secret, created_at)
		SELECT $1, $2, slot, $3, $4 FROM generate_series(1, $5::integer) AS slot
		WHERE NOT EXISTS (SELECT FROM signing_keys k WHERE k.project = $1 AND k.slot = slot.slot)
		ORDER BY slot LIMIT 1
		RETURNING `+signingKeyColumns, project, key.ID, []byte(key.Secret), now, MaxSigningKeys)
}

// DeleteSigningKey queues the deletion of a key, and puts it where into points if there was one.
func DeleteSigningKey(b *pgx.Batch, project entities.Project, id string, into **SigningKey) {
	pg.LoadInto(b, into, `DELETE FROM signing_keys WHERE project = $1 AND id = $2 RETURNING `+signingKeyColumns, project, id)
}

// ListSigningKeys reads the project's signing keys, the oldest first, without their secrets.
func ListSigningKeys(ctx context.Context, q pg.Querier, project entities.Project) ([]SigningKey, error) {
	return collectSigningKeys[SigningKey](ctx, q, signingKeyColumns, project)
}

// SigningKeySecrets reads the project's signing keys with their secrets, the oldest first.
func SigningKeySecrets(ctx context.Context, q pg.Querier, project entities.Project) ([]SigningKeySecret, error) {
	return collectSigningKeys[SigningKeySecret](ctx, q, `id, secret`, project)
}

func collectSigningKeys[T any](ctx context.Context, q pg.Querier, columns string, project entities.Project) ([]T, error) {
	rows, err := q.Query(ctx,
		`SELECT `+columns+` FROM signing_keys WHERE project = $1 ORDER BY created_at, id`, project)
	if err != nil {
		return nil, fmt.Errorf("read signing keys: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		return nil, fmt.Errorf("read signing keys: %w", err)
	}
	return list, nil
}
