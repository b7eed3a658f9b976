package encryption

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// version is the byte after [atrest.Sealed] of what a data key encrypts, and ofRun of what the key of a run does.
	version    = 1
	ofRun      = 2
	idSize     = 16
	headerSize = len(atrest.Magic) + 2 + idSize + nonceSize
	// Overhead is how many bytes an encrypted payload is longer.
	Overhead = atrest.SealedOverhead

	// fresh is how long a process goes by the keys that it has read. What another process has changed counts from then on.
	fresh = 5 * time.Second
	// patience is how long a master key may take, and the database to tell the keys.
	patience = 5 * time.Second
	// unwrappedKeys is how many keys a process has unwrapped.
	unwrappedKeys = 4096
	// plainProjects is how many projects without a key a process remembers.
	plainProjects = 4096
)

// ErrUnavailable is an [atrest.ErrUnavailable]: a key cannot be had. This server has no master key of its name, the
// service that has it does not answer, or the database does not.
var ErrUnavailable = fmt.Errorf("%w: the key of an encrypted project cannot be had", atrest.ErrUnavailable)

// Keys encrypts the payloads of the projects that have data keys. It is safe for concurrent use.
type Keys struct {
	masters MasterKeys
	now     func() time.Time
	pool    atomic.Pointer[pgxpool.Pool]

	state     atomic.Pointer[known]
	reading   sync.Mutex
	unwrapped *lru.Cache[keyID, *dataCipher]
	// unwrapping serializes what asks master keys for one data key.
	unwrapping sync.Map // of *sync.Mutex, by keyID

	// plain has the projects without a key, with when they were last prepared.
	plain *lru.Cache[string, time.Time]

	secrets *lru.Cache[string, secret] // by run
	opening sync.Mutex
	own     *pgxpool.Pool // for secrets; nil until one is needed
}

type keyID [idSize]byte

// known are the keys that the process has read.
type known struct {
	at time.Time
	// revision is that of the last change, and newest the key that it was of.
	revision int64
	newest   keyID
	current  map[string]keyID // by project
	keys     map[keyID]wrappedKey
}

// wrappedKey is a row of table data_keys.
type wrappedKey struct {
	project, by string
	wrapped     []byte // nil if it is destroyed
	// perRun is set if runs have keys of their own, which follow from this one.
	perRun bool
}

// New returns the keys of a database, which [Keys.Use] names.
func New(masters MasterKeys, now func() time.Time) *Keys {
	k := &Keys{masters: masters, now: now}
	k.unwrapped, _ = lru.New[keyID, *dataCipher](unwrappedKeys) // fails only for a size below 1
	k.secrets, _ = lru.New[string, secret](maxSecrets)
	k.plain, _ = lru.New[string, time.Time](plainProjects)
	return k
}

// Use sets the pool of the database, into which the keys are installed.
func (k *Keys) Use(pool *pgxpool.Pool) { k.pool.Store(pool) }

// Prepare implements [atrest.Codec]. It fails with [ErrUnavailable].
func (k *Keys) Prepare(project string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := k.refresh(ctx)
	if err != nil {
		return err
	}
	id, ok := s.current[project]
	if !ok && k.isNew(project) {
		if s, err = k.readNow(ctx); err != nil {
			return err
		}
		id, ok = s.current[project]
	}
	if !ok {
		k.plain.Add(project, k.now())
		return nil
	}
	_, err = k.cipher(ctx, id, s.keys[id])
	return err
}

// isNew reports whether a project without a key may have come with one from another cell since the keys were read: if
// it was not there a moment ago. Without a master key, none comes.
func (k *Keys) isNew(project string) bool {
	at, ok := k.plain.Get(project)
	return len(k.masters) > 0 && (!ok || k.now().Sub(at) >= fresh)
}

// Seal implements [atrest.Codec]. It fails with [ErrUnavailable] and [atrest.ErrShredded].
func (k *Keys) Seal(p atrest.Payload) ([]byte, error) {
	s := k.state.Load()
	if s == nil {
		return nil, errUnread
	}
	id, ok := s.current[p.Project]
	if !ok {
		return atrest.Identity{}.Seal(p)
	}
	x, ok := k.unwrapped.Get(id)
	if !ok {
		return nil, fmt.Errorf("%w: key %s is not unwrapped", ErrUnavailable, id)
	}
	cipher, v := x.xaes, byte(version)
	if run := runOf(p.Place); run != "" && s.keys[id].perRun {
		var err error
		if cipher, err = k.sealerOf(x, p.Project, run); err != nil {
			return nil, err
		}
		v = ofRun
	}
	out := make([]byte, 0, len(p.Bytes)+Overhead)
	out = append(append(out, atrest.Begin(atrest.Sealed)...), v)
	out = append(out, id[:]...)
	out = out[:headerSize]
	nonce := out[headerSize-nonceSize:]
	_, _ = rand.Read(nonce) // never fails
	return cipher.seal(out, nonce, p.Bytes, authenticated(out[:headerSize-nonceSize], p.Place))
}

// authenticated returns what is authenticated with a payload: the header without the nonce, and the place.
func authenticated(header []byte, at atrest.Place) []byte {
	data := append(make([]byte, 0, len(header)+len(at.Kind)+len(at.Owner)+24), header...)
	data = append(append(append(data, at.Kind...), 0), at.Owner...)
	return strconv.AppendInt(append(data, 0), at.Seq, 10)
}

// Open implements [atrest.Codec]. Payloads of destroyed keys stay as they are stored, as do references; values of
// stores are null then, and events have no other fields. It fails with
// [ErrUnavailable] and [atrest.ErrAltered].
func (k *Keys) Open(list []atrest.Item) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := k.readSecrets(ctx, list); err != nil {
		return err
	}
	for _, item := range list {
		switch form, rest := atrest.Split(item.Get()); form {
		case atrest.Plain:
			item.Set(rest)
		case atrest.Reference:
		default:
			if err := k.open(ctx, item); err != nil {
				return fmt.Errorf("%s %d of %s: %w", item.Kind, item.Seq, item.Owner, err)
			}
		}
	}
	return nil
}

func (k *Keys) open(ctx context.Context, item atrest.Item) error {
	b := item.Get()
	if len(b) < Overhead || b[len(atrest.Magic)] != byte(atrest.Sealed) || b[len(atrest.Magic)+1] != version && !OfRun(b) {
		return atrest.ErrAltered
	}
	id := keyID(b[len(atrest.Magic)+2:])
	key, err := k.find(ctx, id)
	if err != nil {
		return err
	}
	if key.wrapped == nil {
		unreadable(item)
		return nil
	}
	data, err := k.cipher(ctx, id, key)
	if err != nil {
		return err
	}
	x := data.xaes
	if OfRun(b) {
		secret := k.secretOf(runOf(item.Place))
		if secret == nil {
			unreadable(item)
			return nil
		}
		if x, err = data.ofRun(secret); err != nil {
			return err
		}
	}
	header := headerSize - nonceSize
	payload, err := x.open(b[header:headerSize], b[headerSize:], authenticated(b[:header], item.Place))
	if err != nil {
		return atrest.ErrAltered
	}
	item.Set(payload)
	return nil
}

// unreadable replaces what nobody can read any more, where something that is no payload of a user would not do: values
// of a store are JSON, and what an event has beside its payload are fields.
func unreadable(item atrest.Item) {
	switch item.Kind {
	case atrest.Value:
		item.Set([]byte("null"))
	case atrest.Extra:
		item.Set(nil)
	default:
	}
}

// cipher returns the cipher of a data key, which it unwraps if it has to.
func (k *Keys) cipher(ctx context.Context, id keyID, key wrappedKey) (*dataCipher, error) {
	if x, ok := k.unwrapped.Get(id); ok {
		return x, nil
	}
	lock, _ := k.unwrapping.LoadOrStore(id, new(sync.Mutex))
	lock.(*sync.Mutex).Lock()
	defer lock.(*sync.Mutex).Unlock()
	defer k.unwrapping.Delete(id)
	if x, ok := k.unwrapped.Get(id); ok {
		return x, nil
	}
	plain, err := k.unwrap(ctx, id, key)
	if err != nil {
		return nil, err
	}
	x, err := newDataCipher(plain)
	clear(plain)
	if err == nil {
		k.unwrapped.Add(id, x)
	}
	return x, err
}

// unwrap asks the master key for a data key.
func (k *Keys) unwrap(ctx context.Context, id keyID, key wrappedKey) ([]byte, error) {
	master := k.masters.named(key.by)
	if master == nil {
		return nil, fmt.Errorf("%w: STEPWELL_ENCRYPTION_KEYS of this server has no key %q, which wraps that of project %s",
			ErrUnavailable, key.by, key.project)
	}
	plain, err := master.Unwrap(ctx, key.wrapped, about(id, key.project))
	if err != nil {
		return nil, fmt.Errorf("%w: key %q does not unwrap that of project %s: %w", ErrUnavailable, key.by, key.project, err)
	}
	return plain, nil
}

// about returns what is authenticated with a wrapped key.
func about(id keyID, project string) About { return About{Key: id.String(), Project: project} }

// String returns the ID as it is shown.
func (id keyID) String() string { return hex.EncodeToString(id[:]) }

// find returns a data key. A key that the process does not know may be new. The caller may have a connection of the
// pool, so what it asks for comes by another one.
func (k *Keys) find(ctx context.Context, id keyID) (wrappedKey, error) {
	s := k.state.Load()
	if s != nil {
		if key, ok := s.keys[id]; ok {
			return key, nil
		}
	}
	pool := k.pool.Load()
	if pool == nil {
		return wrappedKey{}, errUnread
	}
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		return wrappedKey{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	k.reading.Lock()
	defer k.reading.Unlock()
	if s, err = k.load(ctx, conn, &known{}); err != nil {
		return wrappedKey{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if key, ok := s.keys[id]; ok {
		return key, nil
	}
	return wrappedKey{}, fmt.Errorf("%w: this database has no key %s", ErrUnavailable, id)
}

// refresh returns the keys as they were a few seconds ago or less. While one caller reads them anew, others go by what
// was read before. So do all while the database does not answer.
func (k *Keys) refresh(ctx context.Context) (*known, error) {
	s, pool := k.state.Load(), k.pool.Load()
	switch {
	case s != nil && k.now().Sub(s.at) < fresh:
		return s, nil
	case pool == nil:
		return nil, errUnread
	case s == nil:
		return k.readFirst(ctx, pg.NewPool(pool))
	case !k.reading.TryLock():
		return s, nil
	}
	defer k.reading.Unlock()
	if newer, err := k.load(ctx, pg.NewPool(pool), s); err == nil {
		return newer, nil
	}
	return s, nil
}

// readNow reads the keys as they are now, by a connection that no caller can have.
func (k *Keys) readNow(ctx context.Context) (*known, error) {
	began := k.now()
	pool, err := k.lookups()
	if err != nil {
		return nil, err
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	s := k.state.Load()
	if s.at.After(began) {
		return s, nil
	}
	if s, err = k.load(ctx, pg.NewPool(pool), s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return s, nil
}

// errUnread is an [ErrUnavailable].
var errUnread = fmt.Errorf("%w: they have not been read yet", ErrUnavailable)

// readFirst reads the keys, unless somebody has.
func (k *Keys) readFirst(ctx context.Context, q pg.Querier) (*known, error) {
	k.reading.Lock()
	defer k.reading.Unlock()
	if s := k.state.Load(); s != nil {
		return s, nil
	}
	s, err := k.load(ctx, q, &known{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return s, nil
}

// row is a row of table data_keys, or none, with whether the newest one that the process knows is as it was.
type row struct {
	Known           bool
	Revision        *int64
	ID, Wrapped     []byte
	Project, ByName *string
	Current, PerRun bool
}

// load reads the keys that have changed since they were as the caller knows, or all if the newest of those is not as it
// was: it has changed, its project has moved to another cell, or an earlier state of the database was restored. Then
// later changes may have the same revisions. The caller has the lock.
func (k *Keys) load(ctx context.Context, q pg.Querier, old *known) (*known, error) {
	at := k.now()
	rows, err := changed(ctx, q, old)
	if err == nil && !rows[0].Known {
		old = &known{}
		rows, err = changed(ctx, q, old)
	}
	if err != nil {
		return nil, err
	}
	s := old.with(rows)
	s.at = at
	for id, key := range s.keys {
		if key.wrapped == nil {
			k.unwrapped.Remove(id)
		}
	}
	if since := time.Duration(0); s.hasRunKeys() {
		if before := k.state.Load(); before != nil {
			since = at.Sub(before.at)
		}
		if err := k.forgetShredded(ctx, q, since); err != nil {
			return nil, err
		}
	}
	k.unwrapNew(ctx, s)
	k.state.Store(s)
	return s, nil
}

// unwrapNew unwraps the keys that are to encrypt from now on. Who has prepared already may encrypt by them next. If a
// key cannot be had, that fails.
func (k *Keys) unwrapNew(ctx context.Context, s *known) {
	old := k.state.Load()
	if old == nil {
		return // nobody has prepared
	}
	for project, id := range s.current {
		if old.current[project] != id {
			_, _ = k.cipher(ctx, id, s.keys[id])
		}
	}
}

// changed reads the keys that have changed since they were as the process knows; at least one row.
func changed(ctx context.Context, q pg.Querier, since *known) ([]row, error) {
	rows, err := pg.CollectAll[row](q.Query(ctx, `
		SELECT m.known, k.revision, k.id, k.wrapped, k.project, k.wrapped_by AS by_name,
			coalesce(k.retired_at IS NULL AND k.id IS NOT NULL, false) AS current, coalesce(k.per_run, false) AS per_run
		FROM (
			SELECT $1 = 0 OR EXISTS (SELECT FROM data_keys WHERE revision = $1 AND id = $2) AS known
		) AS m LEFT JOIN data_keys k ON k.revision > $1
		ORDER BY k.revision`, since.revision, since.newest[:]))
	return rows, pg.Wrap(err, "read data keys")
}

// with returns the keys after changes.
func (s *known) with(rows []row) *known {
	after := &known{revision: s.revision, newest: s.newest, current: s.current, keys: s.keys}
	if rows[0].ID == nil && s.keys != nil {
		return after
	}
	after.current, after.keys = map[string]keyID{}, map[keyID]wrappedKey{}
	maps.Copy(after.current, s.current)
	maps.Copy(after.keys, s.keys)
	for _, r := range rows {
		if r.ID == nil {
			continue
		}
		id := keyID(r.ID)
		after.revision, after.newest = *r.Revision, id
		after.keys[id] = wrappedKey{*r.Project, *r.ByName, r.Wrapped, r.PerRun}
		if r.Current {
			after.current[*r.Project] = id
		} else if after.current[*r.Project] == id {
			delete(after.current, *r.Project)
		}
	}
	return after
}

// hasRunKeys reports whether there are keys of runs.
func (s *known) hasRunKeys() bool {
	for _, key := range s.keys {
		if key.perRun {
			return true
		}
	}
	return false
}
