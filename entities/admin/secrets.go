package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// Secrets keeps what projects share with those who sign requests to their webhooks. They are not part of the log.
type Secrets struct {
	pool *pgxpool.Pool
	now  func() time.Time
}

// NewSecrets makes the secrets of the database behind pool.
func NewSecrets(pool *pgxpool.Pool, now func() time.Time) *Secrets {
	return &Secrets{pool: pool, now: now}
}

// Put writes a secret. Its values replace those it had: to replace a value without refusing anybody, put both, and
// later the new one alone. It fails with [entities.ErrInvalid].
func (s *Secrets) Put(
	ctx context.Context, project entities.Project, name string, values []SecretValue,
) (Secret, error) {
	if err := ValidateSecret(name, values); err != nil {
		return Secret{}, err
	}
	return s.change(ctx, project, ActionSecretPut, name, func(b *pgx.Batch, into **Secret) {
		PutSecret(b, project, name, values, s.now().UTC().Truncate(time.Millisecond), into)
	})
}

// Delete forgets a secret. Webhooks that demand it take no requests from then on. It fails with
// [entities.ErrSecretNotFound].
func (s *Secrets) Delete(ctx context.Context, project entities.Project, name string) error {
	if err := entities.ValidateID("secret name", name); err != nil {
		return err
	}
	_, err := s.change(ctx, project, ActionSecretRemove, name, func(b *pgx.Batch, into **Secret) {
		DeleteSecret(b, project, name, into)
	})
	return err
}

// change runs a statement that tells of the one secret it is about, and says so in the audit.
func (s *Secrets) change(
	ctx context.Context, project entities.Project, kind ActionKind, name string,
	statement func(*pgx.Batch, **Secret),
) (Secret, error) {
	var secret *Secret
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		secret = nil
		var b pgx.Batch
		statement(&b, &secret)
		InsertAction(ctx, &b, project, kind, name, nil)
		err := tx.SendBatch(ctx, &b).Close()
		if err == nil && secret == nil {
			return ErrSecretNotFound
		}
		return err
	})
	if err != nil {
		return Secret{}, fmt.Errorf("write secret %s: %w", name, err)
	}
	return *secret, nil
}

// List reads the project's secrets by their names, without their values.
func (s *Secrets) List(ctx context.Context, project entities.Project) ([]Secret, error) {
	return ListSecrets(ctx, s.pool, project)
}

// Values reads the values of a secret. It fails with [entities.ErrSecretNotFound].
func (s *Secrets) Values(
	ctx context.Context, project entities.Project, name string,
) ([]SecretValue, error) {
	return SecretValues(ctx, s.pool, project, name)
}
