package encryption

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// maxKeys is how many keys that are not destroyed a project may have.
const maxKeys = 100

var (
	// ErrNoMasterKey means that this server encrypts nothing.
	ErrNoMasterKey = errors.New("this server has no master key: set STEPWELL_ENCRYPTION_KEYS on all servers first")
	// ErrNotEncrypted means that the project has no data key.
	ErrNotEncrypted = errors.New("the project is not encrypted")
	// ErrTooManyKeys means that the project has as many data keys as it may.
	ErrTooManyKeys = fmt.Errorf("the project has %d data keys, as many as it may", maxKeys)
)

// Change is a change of a project's keys.
type Change string

// The changes.
const (
	// Encrypt has all that is written from now on encrypted. It changes nothing if it is already.
	Encrypt Change = "on"
	// Rotate has a new key encrypt from now on. What earlier ones have encrypted stays as it is.
	Rotate Change = "rotate"
	// Shred destroys all keys of the project: nobody can read what they have encrypted, anywhere. A new key encrypts what
	// is written from now on.
	Shred Change = "shred"
	// Rewrap has the first master key wrap all keys of the project that others have wrapped. What the keys have encrypted
	// stays as it is.
	Rewrap Change = "rewrap"
	// RunKeys is [Rotate] to a key from which each run has one of its own, as it has from the keys after that. It changes
	// nothing if runs have such keys already.
	RunKeys Change = "run-keys"
)

// LockKeys serializes the changes of keys, so that their revisions are in the order of their commits.
const LockKeys = `SELECT pg_advisory_xact_lock(hashtextextended('data keys', 0))`

// nextRevision is the revision of a change.
const nextRevision = `(SELECT coalesce(max(revision), 0) + 1 FROM data_keys)`

// Apply changes the keys of a project, with an entry in the audit. It fails with
// [entities.ErrInvalid], [admin.ErrProjectNotFound], [ErrNoMasterKey], [ErrNotEncrypted], [ErrTooManyKeys] and
// [ErrUnavailable].
func (k *Keys) Apply(ctx context.Context, project entities.Project, c Change) error {
	action, ok := map[Change]admin.ActionKind{
		Encrypt: admin.ActionProjectEncrypt, Rotate: admin.ActionProjectRotate, Shred: admin.ActionProjectShred,
		Rewrap: admin.ActionProjectRewrap, RunKeys: admin.ActionProjectRunKeys,
	}[c]
	if !ok {
		return entities.Invalid("encryption: %q is none of on, rotate, run-keys, rewrap and shred", c)
	}
	if len(k.masters) == 0 {
		return ErrNoMasterKey
	}
	if c == Rewrap {
		return k.rewrapAll(ctx, project)
	}
	made := newDataKey()
	wrapped, err := k.wrap(ctx, made, project)
	if err != nil {
		return err
	}
	pool := k.pool.Load()
	err = pg.InTx(ctx, pool, func(tx pgx.Tx) error { return k.apply(ctx, tx, project, c, action, made.id, wrapped) })
	if err != nil {
		return pg.Wrap(err, "change the keys of project %s", project)
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	_, err = k.load(ctx, pg.NewPool(pool), &known{})
	return err
}

// dataKey is a new data key.
type dataKey struct {
	id    keyID
	plain []byte
}

func newDataKey() dataKey { return dataKey{keyID(newKey()[:idSize]), newKey()} }

// wrap wraps a new key, by the first master key.
func (k *Keys) wrap(ctx context.Context, d dataKey, project entities.Project) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer clear(d.plain)
	wrapped, err := k.masters[0].Wrap(ctx, d.plain, about(d.id, string(project)))
	if err != nil {
		return nil, fmt.Errorf("%w: key %q does not wrap a new one: %w", ErrUnavailable, k.masters[0].Name, err)
	}
	return wrapped, nil
}

// apply changes the rows. Changes of all projects follow each other.
func (k *Keys) apply(
	ctx context.Context, tx pgx.Tx, project entities.Project, c Change, action admin.ActionKind, id keyID, wrapped []byte,
) error {
	var found struct {
		exists, perRun bool
		keys           int
	}
	var first, writes pgx.Batch
	first.Queue(LockKeys)
	first.Queue(`SELECT EXISTS (SELECT FROM projects WHERE name = $1),
		(SELECT count(*) FROM data_keys WHERE project = $1 AND destroyed_at IS NULL),
		EXISTS (SELECT FROM data_keys WHERE project = $1 AND retired_at IS NULL AND per_run)`, project,
	).QueryRow(func(row pgx.Row) error { return row.Scan(&found.exists, &found.keys, &found.perRun) })
	if err := tx.SendBatch(ctx, &first).Close(); err != nil {
		return err //nolint:wrapcheck // the caller says what failed
	}
	switch {
	case !found.exists:
		return admin.ErrProjectNotFound
	case c == Encrypt && found.keys > 0, c == RunKeys && found.perRun:
		return nil
	case c != Encrypt && found.keys == 0:
		return ErrNotEncrypted
	case c != Shred && found.keys >= maxKeys:
		return ErrTooManyKeys
	case c == Shred:
		writes.Queue(`
			UPDATE data_keys SET wrapped = NULL, destroyed_at = now(), retired_at = coalesce(retired_at, now()),
				revision = `+nextRevision+` + n.at
			FROM (
				SELECT id AS of, row_number() OVER () - 1 AS at FROM data_keys WHERE project = $1 AND destroyed_at IS NULL) AS n
			WHERE id = n.of`, project)
	case c != Encrypt:
		writes.Queue(`UPDATE data_keys SET retired_at = now(), revision = `+nextRevision+`
			WHERE project = $1 AND retired_at IS NULL`, project)
	}
	writes.Queue(`
		INSERT INTO data_keys (id, project, wrapped_by, wrapped, per_run, revision)
		VALUES ($1, $2, $3, $4, $5, `+nextRevision+`)`,
		id[:], project, k.masters[0].Name, wrapped, found.perRun || c == RunKeys)
	admin.InsertAction(ctx, &writes, project, action, string(project), map[string]any{"key": id.String()})
	return tx.SendBatch(ctx, &writes).Close() //nolint:wrapcheck // the caller says what failed
}

// rewrapAll wraps by the first master key all data keys of a project that others have wrapped. A key that another
// process changes meanwhile is left to it.
func (k *Keys) rewrapAll(ctx context.Context, project entities.Project) error {
	type old struct {
		ID, Wrapped []byte
		By          string
	}
	pool := pg.NewPool(k.pool.Load())
	list, err := pg.CollectAll[old](pool.Query(ctx, `
		SELECT id, wrapped, wrapped_by AS by FROM data_keys
		WHERE project = $1 AND wrapped IS NOT NULL ORDER BY created_at`, project))
	if err != nil {
		return pg.Wrap(err, "read data keys")
	}
	if len(list) == 0 {
		return ErrNotEncrypted
	}
	for _, o := range list {
		if o.By == k.masters[0].Name {
			continue
		}
		if err := k.rewrap(ctx, keyID(o.ID), wrappedKey{project: string(project), by: o.By, wrapped: o.Wrapped}); err != nil {
			return err
		}
	}
	return nil
}

// rewrap wraps a data key anew.
func (k *Keys) rewrap(ctx context.Context, id keyID, key wrappedKey) error {
	plain, err := k.unwrap(ctx, id, key)
	if err != nil {
		return err
	}
	wrapped, err := k.wrap(ctx, dataKey{id, plain}, entities.Project(key.project))
	if err != nil {
		return err
	}
	err = pg.InTx(ctx, k.pool.Load(), func(tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(LockKeys)
		b.Queue(`
			UPDATE data_keys SET wrapped = $2, wrapped_by = $3, revision = `+nextRevision+`
			WHERE id = $1 AND wrapped = $4`, id[:], wrapped, k.masters[0].Name, key.wrapped)
		admin.InsertAction(ctx, &b, entities.Project(key.project), admin.ActionProjectRewrap, key.project,
			map[string]any{"key": id.String(), "masterKey": k.masters[0].Name})
		return tx.SendBatch(ctx, &b).Close() //nolint:wrapcheck // the caller says what failed
	})
	return pg.Wrap(err, "wrap key %s", id)
}
