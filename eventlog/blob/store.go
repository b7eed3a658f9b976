package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// transfers is how many objects a process writes at once, and reads at once. With the factor, a project that is alone
	//  has two thirds of that.
	transfers, transferFactor = 24, 2
	// ofRequest is how many of them one request has.
	ofRequest = 8
	// transferLimit is how long one may take, with its repetitions.
	transferLimit = time.Minute
)

// Store keeps payloads of events in objects. It is safe for concurrent use.
type Store struct {
	*Codec

	pool   pg.Pool
	over   int
	writes *share.Pool
}

// New returns a store of payloads that are larger than a number of bytes. The pool has the codec.
func New(pool *pgxpool.Pool, codec *Codec, over int) *Store {
	return &Store{codec, pg.NewPool(pool), over, share.NewPool(transfers)}
}

// Keeps reports whether a payload of so many bytes is kept as an object. A nil store keeps none.
func (s *Store) Keeps(size int) bool { return s != nil && size > s.over }

// Payload is a payload of a run.
type Payload struct {
	Run   entities.RunID
	Bytes []byte
}

// Put writes payloads, each as a blob that its run does not have yet, and returns their references in the same order.
// It fails with [ErrUnavailable], and as the codec does that encrypts. What it has written is then swept.
func (s *Store) Put(ctx context.Context, project entities.Project, list []Payload) ([]Reference, error) {
	refs, sizes, objects := make([]Reference, len(list)), make([]int64, len(list)), make([][]byte, len(list))
	for i, p := range list {
		r := &refs[i]
		_, _ = rand.Read(r.ID[:]) // never fails
		sealed, err := s.Seal(atrest.Payload{Place: placeOf(string(p.Run), r.ID), Project: string(project), Bytes: p.Bytes})
		if err != nil {
			return nil, err
		}
		r.Project, r.Size, r.Sum = project, int64(len(sealed)), sha256.Sum256(sealed)
		objects[i], sizes[i] = sealed, r.Size
	}
	_, err := s.pool.Exec(ctx, `
		INSERT INTO blobs (id, project, size) SELECT id, $1, size FROM unnest($2::uuid[], $3::bigint[]) AS n (id, size)`,
		project, uuids(refs), sizes)
	if err != nil {
		return nil, fmt.Errorf("insert blobs: %w", err)
	}
	return refs, each(ctx, s.writes, refs, func(ctx context.Context, i int) error {
		return s.objects.Put(ctx, key(project, refs[i].ID), objects[i])
	})
}

// each transfers the objects of references, several at a time, as their project may.
func each(
	ctx context.Context, slots *share.Pool, refs []Reference, transfer func(context.Context, int) error,
) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(ofRequest)
	for i, r := range refs {
		all.Go(func() error {
			if err := slots.Take(ctx, string(r.Project), 1, transferFactor); err != nil {
				return err
			}
			defer slots.Release(string(r.Project), 1)
			limited, cancel := context.WithTimeout(ctx, transferLimit)
			defer cancel()
			return unavailable(ctx, transfer(limited, i))
		})
	}
	return all.Wait()
}

// Lock queues the lock on blobs of an append, which no sweep can doom from then on. The check that it returns fails
// with [ErrUnavailable] if one of them is doomed already, because the append has taken too long.
func Lock(b *pgx.Batch, refs []Reference) (check func() error) {
	if len(refs) == 0 {
		return func() error { return nil }
	}
	var locked int
	b.Queue(`SELECT count(*) FROM (
		SELECT FROM blobs WHERE id = ANY ($1::uuid[]) AND run_id IS NULL AND NOT doomed FOR UPDATE) AS free`, uuids(refs),
	).QueryRow(func(row pgx.Row) error { return row.Scan(&locked) })
	return func() error {
		if locked != len(refs) {
			return &objectError{ErrUnavailable, errors.New("the append took so long that its payloads were swept")}
		}
		return nil
	}
}

// Claim adds to the writes of an append that the run has the blobs. A conditional statement does not apply if one of
// them is doomed; a transaction has called [Lock] before.
func Claim(w pg.Writer, runID entities.RunID, refs []Reference) {
	if len(refs) == 0 {
		return
	}
	w.Add(pg.Write{
		What: "claim blobs", Rows: len(refs),
		SQL:  `UPDATE blobs SET run_id = $1::text WHERE id = ANY ($2::uuid[]) AND run_id IS NULL AND NOT doomed`,
		Args: []any{runID, uuids(refs)},
		// The lock has Postgres look at the rows as they are, not as the statement's snapshot has them.
		If: `cardinality($2::uuid[]) = (SELECT count(*) FROM (
			SELECT FROM blobs WHERE id = ANY ($2::uuid[]) AND run_id IS NULL AND NOT doomed FOR UPDATE) AS free)`,
	})
}
