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
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// maxSigningKeys is the most signing keys a project may have: the current one, and its successor during a rotation.
const maxSigningKeys = 2

const (
	signingKeyPrefix    = "skey_"
	signingSecretPrefix = "swsk_"
	signingSecretSize   = 32 // bytes
)

var (
	// ErrSigningKeyNotFound means that the project has no such signing key.
	ErrSigningKeyNotFound = errors.New("signing key not found")
	// ErrTooManySigningKeys means that the project already has [maxSigningKeys].
	ErrTooManySigningKeys = errors.New("the project has two signing keys; delete the old one first")
)

// SigningKey describes a key by which the calls of a project's functions are signed, without its secret.
type SigningKey struct {
	// ID is "skey_" and a ULID.
	ID        string
	CreatedAt time.Time
}

const signingKeyColumns = `id, created_at`

// SigningKeySecret is a signing key with its secret.
type SigningKeySecret struct {
	ID     string
	Secret SigningSecret
}

// SigningKeys stores the keys by which the calls of projects' functions are signed.
type SigningKeys struct {
	pool pg.Pool
	now  func() time.Time
}

// NewSigningKeys returns the signing keys in the database behind pool.
func NewSigningKeys(pool *pgxpool.Pool, now func() time.Time) *SigningKeys {
	return &SigningKeys{pool: pg.NewPool(pool), now: now}
}

// Create creates a random key and returns it with its secret, which is not shown again. It fails with
// [ErrTooManySigningKeys].
func (s *SigningKeys) Create(
	ctx context.Context, project entities.Project,
) (SigningKey, SigningSecret, error) {
	now := s.now().UTC().Truncate(time.Millisecond)
	id := signingKeyPrefix + ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String()
	secret := NewSigningSecret()
	created, err := Change(ctx, s.pool, ErrTooManySigningKeys, func(b *pgx.Batch, into **SigningKey) {
		// Without the lock, two transactions could choose the same free slot, and one would fail on the unique slot.
		b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('signing keys ' || $1::text, 0))`, project)
		pg.LoadInto(b, into, `
			INSERT INTO signing_keys (project, id, slot, secret, created_at)
			SELECT $1, $2, slot, $3, $4 FROM generate_series(1, $5::integer) AS slot
			WHERE NOT EXISTS (SELECT FROM signing_keys k WHERE k.project = $1 AND k.slot = slot.slot)
			ORDER BY slot LIMIT 1
			RETURNING `+signingKeyColumns, project, id, []byte(secret), now, maxSigningKeys)
		InsertAction(ctx, b, project, ActionSigningKeyCreate, id, nil)
	})
	if err != nil {
		return SigningKey{}, nil, fmt.Errorf("create signing key: %w", err)
	}
	return created, secret, nil
}

// Delete deletes a key. Servers cache keys for a few seconds; after that, no call is signed with it. It fails with
// [ErrSigningKeyNotFound].
func (s *SigningKeys) Delete(ctx context.Context, project entities.Project, id string) error {
	if err := entities.ValidateID("signing key ID", id); err != nil {
		return err
	}
	_, err := Change(ctx, s.pool, ErrSigningKeyNotFound, func(b *pgx.Batch, into **SigningKey) {
		pg.LoadInto(b, into, `
			DELETE FROM signing_keys WHERE project = $1 AND id = $2 RETURNING `+signingKeyColumns, project, id)
		InsertAction(ctx, b, project, ActionSigningKeyRemove, id, nil)
	})
	return pg.Wrap(err, "delete signing key %s", id)
}

// List reads the project's keys, oldest first, without their secrets.
func (s *SigningKeys) List(ctx context.Context, project entities.Project) ([]SigningKey, error) {
	return readSigningKeys[SigningKey](ctx, s.pool, signingKeyColumns, project)
}

// SigningKeySecrets reads the project's signing keys, oldest first, with their secrets.
func SigningKeySecrets(ctx context.Context, q pg.Querier, project entities.Project) ([]SigningKeySecret, error) {
	return readSigningKeys[SigningKeySecret](ctx, q, `id, secret`, project)
}

func readSigningKeys[T any](
	ctx context.Context, q pg.Querier, columns string, project entities.Project,
) ([]T, error) {
	list, err := pg.CollectAll[T](q.Query(ctx,
		`SELECT `+columns+` FROM signing_keys WHERE project = $1 ORDER BY created_at, id`, project))
	return list, pg.Wrap(err, "read signing keys")
}

// SigningSecret is the secret of a signing key. It is redacted in logs, errors and JSON; [SigningSecret.Reveal] returns
// its text.
type SigningSecret []byte

// NewSigningSecret returns a random secret.
func NewSigningSecret() SigningSecret {
	s := make(SigningSecret, signingSecretSize)
	_, _ = rand.Read(s) // never fails
	return s
}

// Reveal returns the secret as it is shown once, to those who verify signatures: "swsk_" and base64.
func (s SigningSecret) Reveal() string {
	return signingSecretPrefix + base64.StdEncoding.EncodeToString(s)
}

// Format prints "[secret]" for every verb.
func (SigningSecret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue returns "[secret]".
func (SigningSecret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "[secret]".
func (SigningSecret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
