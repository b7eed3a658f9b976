package encryption

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/pg"
)

// The key of a run follows from a data key and the secret of the run, which is a row of its own. Without either, nobody
// has it. Secrets are made before an append begins, in a transaction of their own: a row whose run never came to be is
// swept much later than a process would use it, and each attempt to begin the run puts that off.

const (
	// rememberedFor is how long a process goes by a secret that it has read. Those of runs that never came to be are kept
	// for much longer.
	rememberedFor = 5 * time.Minute
	// maxSecrets is how many secrets a process remembers.
	maxSecrets = 100_000
	// maxForgotten is how many destroyed secrets a process reads at once. If there are more, it forgets all.
	maxForgotten = 10_000
	// renewedAfter is the age at which the secret of a run that may begin yet counts as new again. Such a run may have
	// been refused for longer than secrets without a run are kept.
	renewedAfter = 10 * time.Minute
	// lookupConns is how many connections a process has to read and make secrets. Readers may hold a connection of the
	// pool meanwhile, so these are others.
	lookupConns = 4
)

// secret is the secret of a run as a process knows it: nil if it is destroyed, or never was.
type secret struct {
	bytes []byte
	at    time.Time
}

// dataCipher is a data key.
type dataCipher struct {
	*xaes

	runs []byte // from which the keys of runs follow
}

func newDataCipher(key []byte) (*dataCipher, error) {
	x, err := newXAES(key)
	return &dataCipher{x, authenticate(key, []byte("keys of runs"))}, err
}

// ofRun returns the cipher of the run with a secret.
func (d *dataCipher) ofRun(secret []byte) (*xaes, error) {
	return newXAES(authenticate(d.runs, secret))
}

func authenticate(key, data []byte) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write(data) // never fails
	return h.Sum(nil)
}

// runOf returns the run by whose key a payload is encrypted; empty if it is none.
func runOf(at atrest.Place) string {
	switch at.Kind {
	case atrest.Event, atrest.Extra, atrest.Value:
		return at.Owner
	case atrest.Object:
		run, _, _ := strings.Cut(at.Owner, "/")
		return run
	default:
		return ""
	}
}

// OfRun reports whether what is stored is encrypted by the key of a run.
func OfRun(stored []byte) bool {
	at := len(atrest.Magic)
	return len(stored) >= Overhead && atrest.IsMade(stored) && stored[at] == byte(atrest.Sealed) && stored[at+1] == ofRun
}

// PrepareRuns implements [atrest.Codec]. It makes secrets for runs that begin only: requests about runs that do not
// exist leave nothing. It fails with [ErrUnavailable].
func (k *Keys) PrepareRuns(project, run string, begin []string) error {
	s := k.state.Load()
	if s == nil || !s.keys[s.current[project]].perRun {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	missing := slices.DeleteFunc(slices.Clone(begin), func(id string) bool { return k.secretOf(id) != nil })
	switch {
	case len(missing) > 0:
		return k.makeSecrets(ctx, project, append(missing, run))
	case k.secretOf(run) == nil:
		return k.ask(ctx, &pgx.Batch{}, []string{run})
	default:
		return nil
	}
}

// secretOf returns the secret of a run, if the process knows it.
func (k *Keys) secretOf(run string) []byte {
	if s, ok := k.secrets.Get(run); ok && k.now().Sub(s.at) < rememberedFor {
		return s.bytes
	}
	return nil
}

// sealerOf returns the cipher for new payloads of a run. It asks the database only if the run was not prepared. It
// fails with [ErrUnavailable] and [atrest.ErrShredded].
func (k *Keys) sealerOf(x *dataCipher, project, run string) (*xaes, error) {
	if k.secretOf(run) == nil {
		if err := k.PrepareRuns(project, run, []string{run}); err != nil {
			return nil, err
		}
	}
	if b := k.secretOf(run); b != nil {
		return x.ofRun(b)
	}
	return nil, fmt.Errorf("run %s: %w", run, atrest.ErrShredded)
}

// makeSecrets reads the secrets of runs, and makes those that are missing. The run of another project, which is about
// to be refused, gets none: that project would shred it in vain, and lose it when this one leaves. The commit need not
// be durable by itself: that of the append is later in the same log.
func (k *Keys) makeSecrets(ctx context.Context, project string, runs []string) error {
	slices.Sort(runs) // so that racers do not wait for each other in a circle
	runs = slices.Compact(runs)
	made := make([][]byte, len(runs))
	for i := range made {
		made[i] = newKey()
	}
	var b pgx.Batch
	b.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	b.Queue(`
		INSERT INTO run_keys (run_id, project, secret)
		SELECT id, $2, secret FROM unnest($1::text[], $3::bytea[]) AS n (id, secret)
		WHERE NOT EXISTS (SELECT FROM runs r WHERE r.id = n.id AND r.project <> $2)
		ON CONFLICT (run_id) DO UPDATE SET created_at = now() WHERE run_keys.created_at < now() - $4::interval`,
		runs, project, made, renewedAfter)
	return k.ask(ctx, &b, runs)
}

// ask sends a batch, with a read of secrets at its end, which the process knows from then on.
func (k *Keys) ask(ctx context.Context, b *pgx.Batch, runs []string) error {
	type row struct {
		RunID  string
		Secret []byte
	}
	found, at := map[string][]byte{}, k.now()
	pg.LoadEach(b, func(r row) { found[r.RunID] = r.Secret },
		`SELECT run_id, secret FROM run_keys WHERE run_id = ANY ($1)`, runs)
	pool, err := k.lookups()
	if err != nil {
		return err
	}
	if err := pool.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	for _, run := range runs {
		k.secrets.Add(run, secret{found[run], at})
	}
	return nil
}

// readSecrets reads the secrets of the runs of the items that the process does not know.
func (k *Keys) readSecrets(ctx context.Context, list []atrest.Item) error {
	missing := map[string]bool{}
	for _, item := range list {
		if OfRun(item.Get()) {
			if run := runOf(item.Place); k.secretOf(run) == nil {
				missing[run] = true
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return k.ask(ctx, &pgx.Batch{}, slices.Collect(maps.Keys(missing)))
}

// lookups returns the pool for secrets.
func (k *Keys) lookups() (*pgxpool.Pool, error) {
	of := k.pool.Load()
	if of == nil {
		return nil, errUnread
	}
	k.opening.Lock()
	defer k.opening.Unlock()
	if k.own != nil {
		return k.own, nil
	}
	c := of.Config()
	//nolint:staticcheck // whichever the pool has
	c.BeforeConnect, c.AfterConnect, c.PrepareConn, c.BeforeAcquire = nil, nil, nil, nil
	c.AfterRelease, c.BeforeClose, c.ShouldPing, c.ConnConfig.Tracer = nil, nil, nil, nil
	c.MaxConns, c.MinConns, c.MinIdleConns = lookupConns, 0, 0
	own, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	k.own = own
	return own, nil
}

// Close ends what the keys have of their own. It must come before the end of their pool.
func (k *Keys) Close() {
	k.opening.Lock()
	defer k.opening.Unlock()
	if k.own != nil {
		k.own.Close()
		k.own = nil
	}
}

// Forget forgets the secret of a run, which was destroyed.
func (k *Keys) Forget(run entities.RunID) { k.secrets.Remove(string(run)) }

// forgetShredded forgets the secrets that were destroyed since the keys were read before. The margin is for
// transactions that took long.
func (k *Keys) forgetShredded(ctx context.Context, q pg.Querier, since time.Duration) error {
	runs, err := pg.CollectColumn[string](q.Query(ctx, `
		SELECT run_id FROM run_keys WHERE shredded_at > now() - $1::interval LIMIT $2`, since+time.Minute, maxForgotten))
	if err != nil {
		return pg.Wrap(err, "read destroyed keys of runs")
	}
	if len(runs) == maxForgotten {
		k.secrets.Purge()
	}
	for _, run := range runs {
		k.secrets.Remove(run)
	}
	return nil
}
