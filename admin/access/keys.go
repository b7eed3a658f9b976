package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Keys creates, revokes and looks up the API keys of a database.
type Keys struct {
	pool    *pgxpool.Pool
	now     func() time.Time
	cache   *cache
	used    *used
	lookups *semaphore.Weighted
	cell    entities.Cell
}

// used holds the times of use that are not yet written.
type used struct {
	mu sync.Mutex
	at map[admin.KeyID]time.Time
}

func (u *used) add(id admin.KeyID, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at[id] = at
}

// take returns the times and removes them.
func (u *used) take() map[admin.KeyID]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := u.at
	u.at = map[admin.KeyID]time.Time{}
	return at
}

const (
	// usedInterval is how often a server writes the times of use, in one statement for all keys.
	usedInterval = time.Minute
	// lastWrite limits the last write, which delays shutdown.
	lastWrite = 2 * time.Second
)

// maxLookups limits the connections that concurrent lookups use, so that a flood of invented keys cannot exhaust the
// pool.
const maxLookups = 4

// NewKeys returns the keys of the database behind pool.
func NewKeys(pool *pgxpool.Pool, now func() time.Time) *Keys {
	return &Keys{
		pool: pool, now: now, cache: newCache(), used: &used{at: map[admin.KeyID]time.Time{}},
		lookups: semaphore.NewWeighted(maxLookups),
	}
}

// InCell names the cell whose keys these are. It must be called before the first use.
func (s *Keys) InCell(c entities.Cell) *Keys {
	s.cell = c
	return s
}

// Mint creates a key with the project, name, role, deployments and expiry of k. It returns the key and its text, which
// cannot be read again. It fails with [entities.ErrInvalid] and [admin.ErrProjectNotFound].
func (s *Keys) Mint(ctx context.Context, k admin.Key) (admin.Key, string, error) {
	k.CreatedAt = s.now().UTC().Truncate(time.Millisecond)
	if k.ExpiresAt != nil {
		at := k.ExpiresAt.UTC().Truncate(time.Millisecond)
		k.ExpiresAt = &at
	}
	if err := k.Validate(k.CreatedAt); err != nil {
		return admin.Key{}, "", err
	}
	text := newText(s.cell)
	k.ID, k.Prefix = admin.NewKeyID(k.CreatedAt), shown(text)
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		// Projects are never deleted, so this needs no lock.
		if _, err := admin.ProjectByName(ctx, tx, k.Project, k.CreatedAt); err != nil {
			return err
		}
		var b pgx.Batch
		admin.InsertKey(&b, k, sha256.Sum256([]byte(text)))
		detail := map[string]any{"name": k.Name, "role": k.Role}
		if k.Deployments != "" {
			detail["deployments"] = k.Deployments
		}
		if k.ExpiresAt != nil {
			detail["expiresAt"] = k.ExpiresAt
		}
		admin.InsertAction(ctx, &b, k.Project, admin.ActionKeyCreate, string(k.ID), detail)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return admin.Key{}, "", fmt.Errorf("create key: %w", err)
	}
	return k, text, nil
}

// Revoke revokes a key of the project permanently; every server rejects it after [CacheTime]. Revoking a revoked key
// changes nothing. It fails with [admin.ErrKeyNotFound].
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
		var audit pgx.Batch
		admin.InsertAction(ctx, &audit, project, admin.ActionKeyRevoke, string(id),
			map[string]any{"name": revoked.Name, "role": revoked.Role})
		return tx.SendBatch(ctx, &audit).Close()
	})
	return pg.Wrap(err, "revoke key %s", id)
}

// Lookup returns the key with the given text, of any project, as it was at most [CacheTime] ago. The caller must check
// whether it is revoked or expired. It fails with [admin.ErrKeyNotFound], and with an *[entities.WrongCellError] for a
// key that another cell has made, unless its project has moved to this one. Keys are found by the hash of the whole
// text, so the time that a lookup takes reveals nothing about nearly correct texts.
func (s *Keys) Lookup(ctx context.Context, text string) (admin.Key, error) {
	cell, ok := parse(text)
	if !ok {
		return admin.Key{}, admin.ErrKeyNotFound
	}
	key, err := s.find(ctx, sha256.Sum256([]byte(text)))
	if errors.Is(err, admin.ErrKeyNotFound) && cell != "" && cell != s.cell { // its project has not moved here
		err = &entities.WrongCellError{What: "the key", Here: s.cell, In: cell}
	}
	return key, err
}

// find returns the key with the hash, as [Keys.Lookup] does.
func (s *Keys) find(ctx context.Context, h hash) (admin.Key, error) {
	if key, cached, err := s.cache.find(h, s.now()); cached {
		return key, err
	}
	if err := s.lookups.Acquire(ctx, 1); err != nil {
		return admin.Key{}, fmt.Errorf("wait to read key: %w", err)
	}
	defer s.lookups.Release(1)
	now := s.now()
	if key, cached, err := s.cache.find(h, now); cached { // read by another lookup while this one waited
		return key, err
	}
	key, err := admin.KeyByHash(ctx, pg.NewPool(s.pool), h)
	if errors.Is(err, admin.ErrKeyNotFound) {
		s.cache.unknown.Add(h, now)
	}
	if err != nil {
		return admin.Key{}, err
	}
	s.cache.add(h, key, now)
	return key, nil
}

// Valid returns those of the clients whose keys and sessions are still valid, as the database has them now.
func (s *Keys) Valid(ctx context.Context, clients []admin.Client) (map[admin.Client]bool, error) {
	now := s.now()
	return validClients(ctx, pg.NewPool(s.pool), clients, now, now.Add(-maxIdle), now.Add(-maxSession))
}

// Last returns the key of a text as this process last read it, however long ago, or false if it never did. It is for
// use while the database is unreachable.
func (s *Keys) Last(text string) (admin.Key, bool) {
	return s.cache.last(sha256.Sum256([]byte(text)))
}

// Used records that a request used the key. [Keys.Run] writes it to the database later.
func (s *Keys) Used(id admin.KeyID) { s.used.add(id, s.now()) }

// Run writes the times of use to the database once a minute, and a last time when the context ends.
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
		logger.WarnContext(ctx, "write last use of API keys", "error", err)
	}
}

// WriteUsed writes the times of use recorded since the previous call. If that fails they are lost, which is acceptable:
// they are informational.
func (s *Keys) WriteUsed(ctx context.Context) error {
	used := s.used.take()
	if len(used) == 0 {
		return nil
	}
	return pg.InTxBatch(ctx, s.pool, func(b *pgx.Batch) { admin.MarkKeysUsed(b, used) })
}
