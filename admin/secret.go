package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// maxSecretValues is the most values a secret may have at a time: the current one, and others during a rotation.
	maxSecretValues = 10
	maxSecretLength = 4096 // bytes
)

// ErrSecretNotFound means that the project has no such secret.
var ErrSecretNotFound = errors.New("secret not found")

// ErrSecretNotFor means that a secret must not be sent to an address.
var ErrSecretNotFor = errors.New("the secret is not for this address")

// Secret describes a secret that a project shares with the senders of its webhooks, or with the services that its HTTP
// steps call. Its values are left out: they are write-only.
type Secret struct {
	Name      string
	CreatedAt time.Time
	UpdatedAt time.Time
	// Origins are where HTTP steps may send the secret to, such as "https://mail.example.com"; empty for nowhere.
	Origins []string
}

const secretColumns = `name, created_at, updated_at, origins`

// Secrets stores the secrets by which projects verify webhooks.
type Secrets struct {
	pool pg.Pool
	now  func() time.Time
}

// NewSecrets returns the secrets in the database behind pool.
func NewSecrets(pool *pgxpool.Pool, now func() time.Time) *Secrets {
	return &Secrets{pool: pg.NewPool(pool), now: now}
}

// Put creates or replaces a secret. To rotate a value without rejecting requests, put the old and the new value, and
// later the new one alone. Origins are those of the [Secret]; nil keeps those that it has. It fails with
// [entities.ErrInvalid].
func (s *Secrets) Put(
	ctx context.Context, project entities.Project, name string, values []SecretValue, origins ...string,
) (Secret, error) {
	if err := cmp.Or(validateSecret(name, values), validateOrigins(origins)); err != nil {
		return Secret{}, err
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	secret, err := Change(ctx, s.pool, ErrSecretNotFound, func(b *pgx.Batch, into **Secret) {
		pg.LoadInto(b, into, `
			INSERT INTO secrets (project, name, values, origins, created_at, updated_at)
			VALUES ($1, $2, $3, coalesce($5::text[], '{}'), $4, $4)
			ON CONFLICT (project, name) DO UPDATE
			SET values = excluded.values, origins = coalesce($5, secrets.origins), updated_at = excluded.updated_at
			RETURNING `+secretColumns, project, name, texts, s.now().UTC().Truncate(time.Millisecond), origins)
		InsertAction(ctx, b, project, ActionSecretPut, name, nil)
	})
	return secret, pg.Wrap(err, "write secret %s", name)
}

// Delete deletes a secret. Webhooks that require it reject all requests from then on. It fails with
// [ErrSecretNotFound].
func (s *Secrets) Delete(ctx context.Context, project entities.Project, name string) error {
	if err := entities.ValidateID("secret name", name); err != nil {
		return err
	}
	_, err := Change(ctx, s.pool, ErrSecretNotFound, func(b *pgx.Batch, into **Secret) {
		pg.LoadInto(b, into, `
			DELETE FROM secrets WHERE project = $1 AND name = $2 RETURNING `+secretColumns, project, name)
		InsertAction(ctx, b, project, ActionSecretRemove, name, nil)
	})
	return pg.Wrap(err, "write secret %s", name)
}

// List reads the project's secrets, ordered by name, without their values.
func (s *Secrets) List(ctx context.Context, project entities.Project) ([]Secret, error) {
	list, err := pg.CollectAll[Secret](s.pool.Query(ctx,
		`SELECT `+secretColumns+` FROM secrets WHERE project = $1 ORDER BY name`, project))
	return list, pg.Wrap(err, "list secrets")
}

// Values reads the values of a secret. It fails with [ErrSecretNotFound].
func (s *Secrets) Values(ctx context.Context, project entities.Project, name string) ([]SecretValue, error) {
	rows, err := s.pool.Query(ctx, `SELECT values FROM secrets WHERE project = $1 AND name = $2`, project, name)
	row, err := pg.CollectOne[struct{ Values []SecretValue }](rows, err, ErrSecretNotFound)
	return row.Values, pg.Wrap(err, "read secret %s", name)
}

// ValueFor reads the first value of a secret, to send it to an origin. It fails with [ErrSecretNotFound], and with
// [ErrSecretNotFor] unless that is one of the secret's origins.
func (s *Secrets) ValueFor(
	ctx context.Context, project entities.Project, name, origin string,
) (SecretValue, error) {
	rows, err := s.pool.Query(ctx, `SELECT values[1] AS value, $3 = ANY (origins) AS allowed
		FROM secrets WHERE project = $1 AND name = $2`, project, name, origin)
	row, err := pg.CollectOne[struct {
		Value   SecretValue
		Allowed bool
	}](rows, err, ErrSecretNotFound)
	if err == nil && !row.Allowed {
		err = ErrSecretNotFor
	}
	if err != nil {
		return "", pg.Wrap(err, "read secret %s", name)
	}
	return row.Value, nil
}

// maxOrigins limits the origins of a secret.
const maxOrigins = 20

// validateOrigins validates the origins of a secret, which are those of [entities.Origin].
func validateOrigins(origins []string) error {
	if n := len(origins); n > maxOrigins {
		return entities.Invalid("%d origins; the limit is %d", n, maxOrigins)
	}
	for _, origin := range origins {
		if valid, err := entities.Origin(origin); err != nil || origin != valid {
			return entities.Invalid("origin %.100q is not like https://mail.example.com", origin)
		}
	}
	return nil
}

// validateSecret validates a secret's name and values. It fails with [entities.ErrInvalid]; the error contains no
// value.
func validateSecret(name string, values []SecretValue) error {
	if err := entities.ValidateID("secret name", name); err != nil {
		return err
	}
	if n := len(values); n < 1 || n > maxSecretValues {
		return entities.Invalid("the secret has %d values; want 1 to %d", n, maxSecretValues)
	}
	for i, v := range values {
		if entities.ValidateText("value", string(v), maxSecretLength) != nil {
			return entities.Invalid("value %d of the secret is empty, longer than %d bytes, or not printable UTF-8",
				i, maxSecretLength)
		}
	}
	return nil
}

// SecretValue is one of the values of a secret. It is redacted in logs, errors and JSON.
type SecretValue string

// redacted is printed instead of secrets.
const redacted = "[secret]"

// Format prints "[secret]" for every verb.
func (SecretValue) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue returns "[secret]".
func (SecretValue) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "[secret]".
func (SecretValue) MarshalText() ([]byte, error) { return []byte(redacted), nil }
