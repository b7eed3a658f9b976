package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// ErrSecretNotFound: the project has no such secret.
var ErrSecretNotFound = errors.New("secret not found")

// Secret is what a project shares with those who sign requests to it, as far as anybody is told: its values are
// written, and never read but to verify.
type Secret struct {
	Name      string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// SecretValue is one of a secret's values. It does not show in logs, errors and JSON.
type SecretValue string

const hidden = "[secret]"

// String hides the value.
func (SecretValue) String() string { return hidden }

// GoString hides the value.
func (SecretValue) GoString() string { return hidden }

// LogValue hides the value.
func (SecretValue) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the value.
func (SecretValue) MarshalText() ([]byte, error) { return []byte(hidden), nil }

const (
	// MaxSecretValues is how many values a secret may have at a time: the one in use and those that it replaces.
	MaxSecretValues = 10
	maxSecretLength = 4096
)

// ValidateSecret checks a secret's name and values. It fails with [ErrInvalid], and does not repeat a value.
func ValidateSecret(name string, values []SecretValue) error {
	if err := entities.ValidateID("secret name", name); err != nil {
		return err
	}
	if n := len(values); n < 1 || n > MaxSecretValues {
		return entities.Invalid("a secret of %d values; want 1 to %d", n, MaxSecretValues)
	}
	for i, v := range values {
		if entities.ValidateText("value", string(v), maxSecretLength) != nil {
			return entities.Invalid("value %d of the secret is empty, longer than %d bytes, or no printable UTF-8", i, maxSecretLength)
		}
	}
	return nil
}

const secretColumns = `name, created_at, updated_at`

// PutSecret queues the write of a secret, whose values replace those it had, and a read of what it is then.
func PutSecret(b *pgx.Batch, project entities.Project, name string, values []SecretValue, now time.Time, into **Secret) {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	pg.LoadInto(b, into, `
		INSERT INTO secrets (project, name, values, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
		ON CONFLICT (project, name) DO UPDATE SET values = excluded.values, updated_at = excluded.updated_at
		RETURNING `+secretColumns, project, name, texts, now)
}

// DeleteSecret queues the deletion of a secret, and puts it where into points if there was one.
func DeleteSecret(b *pgx.Batch, project entities.Project, name string, into **Secret) {
	pg.LoadInto(b, into, `DELETE FROM secrets WHERE project = $1 AND name = $2 RETURNING `+secretColumns, project, name)
}

// ListSecrets reads the project's secrets by their names, without their values.
func ListSecrets(ctx context.Context, q pg.Querier, project entities.Project) ([]Secret, error) {
	rows, err := q.Query(ctx, `SELECT `+secretColumns+` FROM secrets WHERE project = $1 ORDER BY name`, project)
	if err != nil {
		return nil, fmt.Errorf("list secrets: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Secret])
	if err != nil {
		return nil, fmt.Errorf("list secrets: %w", err)
	}
	return list, nil
}

// SecretValues reads the values of a secret. It fails with [ErrSecretNotFound].
func SecretValues(ctx context.Context, q pg.Querier, project entities.Project, name string) ([]SecretValue, error) {
	rows, err := q.Query(ctx, `SELECT values FROM secrets WHERE project = $1 AND name = $2`, project, name)
	row, err := pg.CollectOne[struct{ Values []string }](rows, err, ErrSecretNotFound)
	if err != nil {
		return nil, fmt.Errorf("read secret %s: %w", name, err)
	}
	values := make([]SecretValue, len(row.Values))
	for i, v := range row.Values {
		values[i] = SecretValue(v)
	}
	return values, nil
}
