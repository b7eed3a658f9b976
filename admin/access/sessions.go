package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// A session ends when it has not been used for maxIdle, and after maxSession at the latest.
	maxIdle    = 7 * 24 * time.Hour
	maxSession = 30 * 24 * time.Hour
	// touchInterval is how accurately the last use of a session is known.
	touchInterval = time.Hour
	// CodeTime is how long a code can be used.
	CodeTime = time.Minute
	// cachedSessions limits the cache.
	cachedSessions = 1000
	// maxEntering limits the sign-ins at once. A project has one at a time: each takes some round trips to the database,
	// and nobody needs more of them than another can wait for.
	maxEntering = 4
	// cookieLength is the length of the text of a cookie or a code.
	cookieLength = 43
)

// Opened is a project that a session has opened.
type Opened struct {
	Project entities.Project
	// Key opened it, as it was at most [CacheTime] ago; nil for the key in the server's environment. The caller must
	// check whether it is revoked or expired.
	Key *admin.Key
}

// Sessions are the sessions of browsers in the dashboard. A session has the rights of the keys that it was given. Its
// cookie is 256 random bits, of which the database has the SHA-256; the texts of keys are not stored.
type Sessions struct {
	pool        *pgxpool.Pool
	environment string
	now         func() time.Time
	// known and unknown are what the database said about cookies: those with a session, and those without one. So
	// invented cookies evict no session.
	known, unknown *lru.Cache[admin.SessionID, sessionState]
	// lookups bounds the lookups of cookies, of which anybody can send some.
	lookups *semaphore.Weighted
	// entering has a slot for each sign-in in progress.
	entering *share.Pool
	cell     entities.Cell
}

// sessionState is a session as the database returned it, and when.
type sessionState struct {
	opened []Opened
	at     time.Time
}

// NewSessions returns the sessions of the database behind pool. The environment's key is empty for none.
func NewSessions(pool *pgxpool.Pool, environment string, now func() time.Time) *Sessions {
	return &Sessions{
		pool: pool, environment: environment, now: now, known: newLRU[admin.SessionID, sessionState](cachedSessions),
		unknown: newLRU[admin.SessionID, sessionState](maxUnknown), lookups: semaphore.NewWeighted(maxLookups),
		entering: share.NewPool(maxEntering),
	}
}

// InCell names the cell whose sessions these are. It must be called before the first use.
func (s *Sessions) InCell(c entities.Cell) *Sessions {
	s.cell = c
	return s
}

// Cell is the cell whose sessions these are; empty for none.
func (s *Sessions) Cell() entities.Cell { return s.cell }

// randomText returns 256 random bits as text.
func randomText() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(random[:])
}

func sessionID(cookie string) admin.SessionID { return sha256.Sum256([]byte(cookie)) }

// digest returns what proves that a session was given the environment's key. It depends on the cookie, so the database
// alone does not help to guess the key.
func (s *Sessions) digest(cookie string) []byte {
	mac := hmac.New(sha256.New, []byte(s.environment))
	mac.Write([]byte(cookie))
	return mac.Sum(nil)
}

// Enter opens a project in the session of a cookie, or in a new session if it is empty or has ended. It returns the new
// cookie of the session. The old one becomes invalid, so that nobody can plant a cookie in a browser and then share the
// session (session fixation). The work counts for the project, whose sign-ins take place one after the other.
func (s *Sessions) Enter(ctx context.Context, cookie string, with Opened) (string, error) {
	ctx = share.For(ctx, string(with.Project))
	if err := s.entering.Take(ctx, string(with.Project), 1, 0); err != nil {
		return "", fmt.Errorf("wait to enter project: %w", err)
	}
	defer s.entering.Release(string(with.Project), 1)
	fresh := randomText()
	now := s.now().UTC().Truncate(time.Millisecond)
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		// The lock waits for transactions that end the session or one of its projects; what they ended is left out.
		old, err := sessionKeys(ctx, tx, sessionID(cookie), now.Add(-maxIdle), now.Add(-maxSession), ` FOR UPDATE`)
		if err != nil {
			return err
		}
		old = slices.DeleteFunc(old, func(k sessionKey) bool {
			return k.Project == with.Project || !s.valid(cookie, k)
		})
		began := now
		if len(old) > 0 {
			began = old[0].CreatedAt // otherwise a session could last for ever
		}
		var b pgx.Batch
		// Sessions that nobody used for maxIdle have ended too. Their rows stay until maxSession.
		b.Queue(`DELETE FROM sessions WHERE created_at < $1`, now.Add(-maxSession))
		deleteSession(&b, sessionID(cookie))
		id := sessionID(fresh)
		pg.QueueOne(&b, "insert session", `INSERT INTO sessions (id, created_at, used_at) VALUES ($1, $2, $3)`,
			id[:], began, now)
		for _, k := range old {
			if k.KeyID == nil {
				k.Environment = s.digest(fresh)
			}
			insertSessionKey(&b, id, k)
		}
		insertSessionKey(&b, id, s.keyOf(fresh, with, now))
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return "", fmt.Errorf("enter project: %w", err)
	}
	s.known.Remove(sessionID(cookie))
	return fresh, nil
}

// keyOf returns what opens a project with a cookie or a code: a key, or the environment's.
func (s *Sessions) keyOf(text string, with Opened, now time.Time) sessionKey {
	k := sessionKey{Project: with.Project, CreatedAt: now}
	if with.Key == nil {
		k.Environment = s.digest(text)
	} else {
		k.KeyID = &with.Key.ID
	}
	return k
}

// valid reports whether a row still opens its project: one of the environment's key does until that key changes. The
// caller checks whether another key is revoked or expired.
func (s *Sessions) valid(cookie string, k sessionKey) bool {
	return k.KeyID != nil || s.environment != "" && hmac.Equal(k.Environment, s.digest(cookie))
}

// Opened returns the projects that the session of a cookie has opened, by name, as they were at most [CacheTime] ago;
// none if there is no session.
func (s *Sessions) Opened(ctx context.Context, cookie string) ([]Opened, error) {
	if len(cookie) != cookieLength {
		return nil, nil
	}
	id := sessionID(cookie)
	if opened, ok := s.cached(id); ok {
		return opened, nil
	}
	if err := s.lookups.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("wait to read session: %w", err)
	}
	defer s.lookups.Release(1)
	if opened, ok := s.cached(id); ok { // read by another lookup while this one waited
		return opened, nil
	}
	now := s.now()
	opened, err := s.read(ctx, cookie, now)
	if err != nil {
		return nil, err
	}
	cache := s.known
	if len(opened) == 0 {
		cache = s.unknown
	}
	cache.Add(id, sessionState{opened, now})
	return opened, nil
}

// cached returns what a session has opened if the database said so recently.
func (s *Sessions) cached(id admin.SessionID) ([]Opened, bool) {
	now := s.now()
	if c, ok := s.known.Get(id); ok && fresh(c.at, now, CacheTime) {
		return c.opened, true
	}
	c, ok := s.unknown.Get(id)
	return nil, ok && fresh(c.at, now, unknownTime)
}

// read reads a session, and records its use.
func (s *Sessions) read(ctx context.Context, cookie string, now time.Time) ([]Opened, error) {
	id := sessionID(cookie)
	keys, err := sessionKeys(ctx, pg.NewPool(s.pool), id, now.Add(-maxIdle), now.Add(-maxSession), "")
	if err != nil {
		return nil, err
	}
	var opened []Opened
	for _, k := range keys {
		if !s.valid(cookie, k) {
			continue
		}
		o, err := openedBy(ctx, pg.NewPool(s.pool), k)
		if err != nil {
			return nil, err
		}
		opened = append(opened, o)
	}
	if len(keys) > 0 && now.Sub(keys[0].UsedAt) > touchInterval {
		err := pg.InTxBatch(ctx, s.pool, func(b *pgx.Batch) {
			b.Queue(`UPDATE sessions SET used_at = $2 WHERE id = $1 AND used_at < $2`, id[:], now)
		})
		if err != nil {
			return nil, err
		}
	}
	return opened, nil
}

// openedBy returns the project that a row opens, with its key.
func openedBy(ctx context.Context, q pg.Querier, k sessionKey) (Opened, error) {
	o := Opened{Project: k.Project}
	if k.KeyID == nil {
		return o, nil
	}
	key, err := admin.KeyByID(ctx, q, k.Project, *k.KeyID)
	o.Key = &key
	return o, err
}

// Key returns what opened a project in the session of a cookie. It fails with [admin.ErrSessionNotFound].
func (s *Sessions) Key(ctx context.Context, cookie string, project entities.Project) (Opened, error) {
	opened, err := s.Opened(ctx, cookie)
	if err != nil {
		return Opened{}, err
	}
	i := slices.IndexFunc(opened, func(o Opened) bool { return o.Project == project })
	if i < 0 {
		return Opened{}, admin.ErrSessionNotFound
	}
	return opened[i], nil
}

// End ends the session of a cookie, if there is one. Other servers accept it for [CacheTime] at most.
func (s *Sessions) End(ctx context.Context, cookie string) error {
	if len(cookie) != cookieLength {
		return nil
	}
	if err := s.lookups.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait to end session: %w", err)
	}
	defer s.lookups.Release(1)
	err := pg.InTxBatch(ctx, s.pool, func(b *pgx.Batch) { deleteSession(b, sessionID(cookie)) })
	s.known.Remove(sessionID(cookie))
	return err
}

// ID returns the ID of the session of a cookie, which is no credential.
func (s *Sessions) ID(cookie string) admin.SessionID { return sessionID(cookie) }

// List reads a page of the sessions that have opened the project, by ID, and the cursor of the next page; empty after
// the last page. It fails with a [pg.CursorError] on a malformed cursor.
func (s *Sessions) List(
	ctx context.Context, project entities.Project, p pg.Page,
) ([]admin.OpenSession, string, error) {
	now := s.now()
	return openSessions(ctx, pg.NewPool(s.pool), project, p, now, now.Add(-maxIdle), now.Add(-maxSession))
}

// Close ends a project in a session; other projects stay open in it. Other servers accept it for [CacheTime] at most.
// It fails with [admin.ErrSessionNotFound].
func (s *Sessions) Close(ctx context.Context, project entities.Project, id admin.SessionID) error {
	err := pg.InTxBatch(ctx, s.pool, func(b *pgx.Batch) {
		closeProject(b, id, project)
		admin.InsertAction(ctx, b, project, admin.ActionSessionEnd, id.String(), nil)
	})
	s.known.Remove(id)
	return err
}

// codeCell ends the cell's name in a code. No random text has it.
const codeCell = "."

// Code returns a code that opens a project in a browser once, within [CodeTime]. It begins with the name of the cell,
// if there is one.
func (s *Sessions) Code(ctx context.Context, with Opened) (string, error) {
	code, now := randomText(), s.now().UTC().Truncate(time.Millisecond)
	id, k := sessionID(code), s.keyOf(code, with, now)
	err := pg.InTxBatch(ctx, s.pool, func(b *pgx.Batch) {
		b.Queue(`DELETE FROM session_codes WHERE created_at < $1`, now.Add(-CodeTime))
		pg.QueueOne(b, "insert session code", `
			INSERT INTO session_codes (id, project, key_id, environment, created_at) VALUES ($1, $2, $3, $4, $5)`,
			id[:], k.Project, k.KeyID, k.Environment, k.CreatedAt)
	})
	if err != nil {
		return "", fmt.Errorf("make code: %w", err)
	}
	if s.cell != "" {
		code = string(s.cell) + codeCell + code
	}
	return code, nil
}

// Redeem uses up a code and returns what it opens. The caller must check whether the key is revoked or expired. It
// fails with [admin.ErrSessionNotFound], and with an *[entities.WrongCellError] for a code of another cell.
func (s *Sessions) Redeem(ctx context.Context, code string) (Opened, error) {
	if cell, rest, ok := strings.Cut(code, codeCell); ok {
		if entities.Cell(cell) != s.cell && entities.ValidateCell(entities.Cell(cell)) == nil {
			return Opened{}, &entities.WrongCellError{What: "the code", Here: s.cell, In: entities.Cell(cell)}
		}
		code = rest
	}
	var opened Opened
	id := sessionID(code)
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			DELETE FROM session_codes WHERE id = $1 AND created_at >= $2
			RETURNING project, key_id, environment, created_at, created_at AS used_at`, id[:], s.now().Add(-CodeTime))
		k, err := pg.CollectOne[sessionKey](rows, err, admin.ErrSessionNotFound)
		if err != nil {
			return err
		}
		if !s.valid(code, k) {
			return admin.ErrSessionNotFound
		}
		opened, err = openedBy(ctx, tx, k)
		return err
	})
	if err != nil {
		return Opened{}, fmt.Errorf("redeem code: %w", err)
	}
	return opened, nil
}
