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

// SigningKeys keeps what the calls of projects' functions are signed with. They are not part of the log.
type SigningKeys struct {
	pool *pgxpool.Pool
	now  func() time.Time
}

// NewSigningKeys makes the signing keys of the database behind pool.
func NewSigningKeys(pool *pgxpool.Pool, now func() time.Time) *SigningKeys {
	return &SigningKeys{pool: pool, now: now}
}

// Create makes a key by chance and returns it with its secret, which nobody is told again. It fails with
// [entities.ErrTooManySigningKeys].
func (s *SigningKeys) Create(
	ctx context.Context, project entities.Project,
) (SigningKey, SigningSecret, error) {
	now := s.now().UTC().Truncate(time.Millisecond)
	secret := NewSigningSecret()
	key := SigningKeySecret{ID: NewSigningKeyID(now), Secret: secret}
	created, err := s.change(ctx, ErrTooManySigningKeys, func(b *pgx.Batch, into **SigningKey) {
		LockSigningKeys(b, project)
		InsertSigningKey(b, project, key, now, into)
		InsertAction(ctx, b, project, ActionSigningKeyCreate, key.ID, nil)
	})
	if err != nil {
		return SigningKey{}, nil, fmt.Errorf("create signing key: %w", err)
	}
	return created, secret, nil
}

// Delete forgets a key: from a few seconds on, no call is signed with it. It fails with
// [entities.ErrSigningKeyNotFound].
func (s *SigningKeys) Delete(ctx context.Context, project entities.Project, id string) error {
	if err := entities.ValidateID("signing key ID", id); err != nil {
		return err
	}
	_, err := s.change(ctx, ErrSigningKeyNotFound, func(b *pgx.Batch, into **SigningKey) {
		DeleteSigningKey(b, project, id, into)
		InsertAction(ctx, b, project, ActionSigningKeyRemove, id, nil)
	})
	if err != nil {
		return fmt.Errorf("delete signing key %s: %w", id, err)
	}
	return nil
}

// change runs statements that tell of the one key they are about. If there is none, all is taken back, and none is why.
func (s *SigningKeys) change(
	ctx context.Context, none error, statements func(*pgx.Batch, **SigningKey),
) (SigningKey, error) {
	var key *SigningKey
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		key = nil
		var b pgx.Batch
		statements(&b, &key)
		err := tx.SendBatch(ctx, &b).Close()
		if err == nil && key == nil {
			return none
		}
		return err
	})
	if err != nil {
		return SigningKey{}, err
	}
	return *key, nil
}

// List reads the project's keys, the oldest first, without their secrets.
func (s *SigningKeys) List(ctx context.Context, project entities.Project) ([]SigningKey, error) {
	return ListSigningKeys(ctx, s.pool, project)
}
