package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// Keys are the API keys of a database.
type Keys struct {
	pool  *pgxpool.Pool
	now   func() time.Time
	cache *cache
	used  *used
	// lookups has an item for each that is under way.
	lookups chan struct{}
}

// maxLookups is how many lookups may have a connection at once: whoever makes up texts that look like keys has no more
// of the pool.
const maxLookups = 4

// NewKeys makes the keys of the database behind pool.
func NewKeys(pool *pgxpool.Pool, now func() time.Time) *Keys {
	return &Keys{
		pool: pool, now: now, cache: newCache(), used: newUsed(), lookups: make(chan struct{}, maxLookups),
	}
}

// Mint makes a key of the project, name, role and expiry that k says, and returns it with its text, which nobody can
// learn again. It fails with [entities.ErrInvalid] and [entities.ErrProjectNotFound].
func (s *Keys) Mint(ctx context.Context, k admin.Key) (admin.Key, string, error) {
	k.CreatedAt = s.now().UTC().Truncate(time.Millisecond)
	if k.ExpiresAt != nil {
		at := k.ExpiresAt.UTC().Truncate(time.Millisecond)
		k.ExpiresAt = &at
	}
	if err := k.Validate(k.CreatedAt); err != nil {
		return admin.Key{}, "", err
	}
	text := newText()
	k.ID, k.Prefix = admin.NewKeyID(k.CreatedAt), shown(text)
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		// Projects stay for ever once they are there.
		if _, err := admin.ProjectByName(ctx, tx, k.Project); err != nil {
			return err
		}
		var b pgx.Batch
		admin.InsertKey(&b, k, sha256.Sum256([]byte(text)))
		detail := map[string]any{"name": k.Name, "role": k.Role}
		if k.ExpiresAt != nil {
			detail["expiresAt"] = k.ExpiresAt
		}
		admin.InsertAction(ctx, &b, k.Project, admin.ActionKeyCreate, string(k.ID), detail)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return admin.Key{}, "", fmt.Errorf("make key: %w", err)
	}
	return k, text, nil
}

// Revoke ends a key of the project for good: no server lets it in [CacheTime] later. One that was revoked before
// stays as it is. It fails with [entities.ErrKeyNotFound].
func (s *Keys) Revoke(ctx context.Context, project entities.Project, id admin.KeyID) error {
	if err := entities.ValidateID("key ID", string(id)); err != nil {
		return err
	}
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var revoked *admin.Key
		var b pgx.Batch
		admin.RevokeKey(&b, project, id, s.now().UTC().Truncate(time.Millisecond), &revoked)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		if revoked == nil {
			_, err := admin.KeyByID(ctx, tx, project, id)
			return err
		}
		var word pgx.Batch
		admin.InsertAction(ctx, &word, project, admin.ActionKeyRevoke, string(id),
			map[string]any{"name": revoked.Name, "role": revoked.Role})
		return tx.SendBatch(ctx, &word).Close()
	})
	if err != nil {
		return fmt.Errorf("revoke key %s: %w", id, err)
	}
	return nil
}

// Lookup is the key of a text, as it is or was at most [CacheTime] ago, in whichever project; whether it has been
// revoked or has expired is for the caller to see. It fails with [entities.ErrKeyNotFound]. The key is found by the
// hash of the whole text, so how long that takes tells nothing about texts that are nearly right.
func (s *Keys) Lookup(ctx context.Context, text string) (admin.Key, error) {
	if !wellFormed(text) {
		return admin.Key{}, admin.ErrKeyNotFound
	}
	h := sha256.Sum256([]byte(text))
	if key, known, err := s.cache.find(h, s.now()); known {
		return key, err
	}
	select {
	case s.lookups <- struct{}{}:
	case <-ctx.Done():
		return admin.Key{}, fmt.Errorf("wait to read key: %w", ctx.Err())
	}
	defer func() { <-s.lookups }()
	now := s.now()
	if key, known, err := s.cache.find(h, now); known { // somebody else has just asked
		return key, err
	}
	key, err := admin.KeyByHash(ctx, s.pool, h)
	if errors.Is(err, admin.ErrKeyNotFound) {
		s.cache.keepStranger(h, now)
	}
	if err != nil {
		return admin.Key{}, err
	}
	s.cache.keep(h, key, now)
	return key, nil
}

// Last is the key of a text as it was when the database was last asked about it, however long ago that is; false if
// this process never did.
func (s *Keys) Last(text string) (admin.Key, bool) {
	return s.cache.last(sha256.Sum256([]byte(text)))
}

// Used takes down that a request came with the key. It is written later: see [Keys.Run].
func (s *Keys) Used(id admin.KeyID) { s.used.add(id, s.now()) }

// Run writes when keys were used, once a minute and when the context ends, until it has ended.
func (s *Keys) Run(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(usedInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
			defer cancel()
			s.log(ctx, logger, s.WriteUsed(ctx))
			return
		}
		s.log(ctx, logger, s.WriteUsed(ctx))
	}
}

func (s *Keys) log(ctx context.Context, logger *slog.Logger, err error) {
	if err != nil && ctx.Err() == nil {
		logger.WarnContext(ctx, "when API keys were used is not written", "error", err)
	}
}

// WriteUsed writes when keys were used since the last time. What cannot be written is lost: it only informs.
func (s *Keys) WriteUsed(ctx context.Context) error {
	used := s.used.take()
	if len(used) == 0 {
		return nil
	}
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		admin.MarkKeysUsed(&b, used)
		return tx.SendBatch(ctx, &b).Close()
	})
}
