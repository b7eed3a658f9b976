package blob_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/eventlog/archive/s3test"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	project entities.Project = "home"
	run     entities.RunID   = "wrun_1"
)

// place is where objects are: it names them, and can damage them.
type place struct {
	blob.Objects

	files  func(t *testing.T) map[string][]byte
	change func(t *testing.T, key string, data []byte) // nil data removes
}

func inFolder(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	objects, err := archive.OpenObjects(dir, archive.S3{})
	if err != nil {
		t.Fatal(err)
	}
	return place{objects, func(t *testing.T) map[string][]byte {
		t.Helper()
		found := map[string][]byte{}
		paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		for _, path := range paths {
			key, relErr := filepath.Rel(dir, path)
			data, readErr := os.ReadFile(path)
			err = errors.Join(err, relErr, readErr)
			found[key] = data
		}
		if err != nil {
			t.Fatal(err)
		}
		return found
	}, func(t *testing.T, key string, data []byte) {
		t.Helper()
		err := os.Remove(filepath.Join(dir, key))
		if data != nil {
			err = os.WriteFile(filepath.Join(dir, key), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}}
}

func inBucket(t *testing.T) (place, *s3test.Server) {
	t.Helper()
	s := s3test.New(t)
	objects, err := archive.OpenObjects("s3://"+s3test.Bucket, archive.S3{
		Endpoint: s.Endpoint, AccessKeyID: s3test.AccessKeyID, SecretAccessKey: s3test.SecretAccessKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	return place{objects, func(t *testing.T) map[string][]byte { t.Helper(); return s.Objects(t) },
		func(t *testing.T, key string, data []byte) {
			t.Helper()
			err := objects.Delete(t.Context(), key)
			if data != nil {
				err = objects.Put(t.Context(), key, data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}}, s
}

// eachPlace runs a test in a folder and in a bucket.
func eachPlace(t *testing.T, test func(*testing.T, place)) {
	t.Helper()
	t.Run("folder", func(t *testing.T) { t.Parallel(); test(t, inFolder(t)) })
	t.Run("bucket", func(t *testing.T) {
		t.Parallel()
		p, _ := inBucket(t)
		test(t, p)
	})
}

// newStore returns a store on a database with a run.
func newStore(t *testing.T, objects blob.Objects) (*blob.Store, *pgxpool.Pool) {
	t.Helper()
	pool := testdb.Pool(t)
	testdb.In(pool).Exec(t, `INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq,
		created_at, updated_at) VALUES ($1, $2, 'd', 'w', 'pending', 3, 1, now(), now())`, run, project)
	return blob.New(pool, blob.NewCodec(atrest.Identity{}, objects), 1000), pool
}

func payloads(n, size int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = make([]byte, size)
		_, _ = rand.Read(list[i])
	}
	return list
}

func put(t *testing.T, s *blob.Store, payloads ...[]byte) []blob.Reference {
	t.Helper()
	refs, err := s.Put(t.Context(), project, ofRun(payloads))
	if err != nil {
		t.Fatal(err)
	}
	return refs
}

func ofRun(payloads [][]byte) []blob.Payload {
	list := make([]blob.Payload, len(payloads))
	for i, p := range payloads {
		list[i] = blob.Payload{Run: run, Bytes: p}
	}
	return list
}

// open reads payloads as the log does.
func open(s *blob.Store, refs []blob.Reference) ([][]byte, error) {
	list := make([][]byte, len(refs))
	var o atrest.Opener
	for i, r := range refs {
		list[i] = r.Stored()
		o.Bytes(atrest.Place{Kind: atrest.Event, Owner: string(run), Seq: int64(i)}, &list[i])
	}
	return list, o.Open(s)
}

// claim commits an append that has the blobs.
func claim(ctx context.Context, pool *pgxpool.Pool, refs []blob.Reference) error {
	return pg.InTxBatch(ctx, pool, func(b *pgx.Batch) { blob.Claim(pg.Batch{Batch: b}, run, refs) })
}

func age(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	testdb.In(pool).Exec(t, `UPDATE blobs SET created_at = created_at - interval '61 minutes'`)
}

func sweep(t *testing.T, s *blob.Store, want int) {
	t.Helper()
	if n, err := s.Sweep(t.Context()); n != want || err != nil {
		t.Errorf("swept %d, error %v; want %d", n, err, want)
	}
}

func TestPayloadsComeBack(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		s, pool := newStore(t, p)
		if err := archive.CheckObjects(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		want := append(payloads(20, 2000), payloads(1, 9<<20)...)
		refs := put(t, s, want...)
		if err := claim(t.Context(), pool, refs); err != nil {
			t.Fatal(err)
		}
		got, err := open(s, refs)
		if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("other payloads came back, error %v", err)
		}
		if n := len(p.files(t)); n != len(want) {
			t.Errorf("there are %d objects, want %d", n, len(want))
		}
	})
}

// TestSweepDeletesWhatNoRunHas: of an append whose transaction is lost, and of a deleted run. What is younger than an
// hour may still be committed.
func TestSweepDeletesWhatNoRunHas(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		s, pool := newStore(t, p)
		kept, lost := put(t, s, payloads(3, 2000)...), put(t, s, payloads(450, 1001)...)
		if err := claim(t.Context(), pool, kept); err != nil {
			t.Fatal(err)
		}
		errCrash := errors.New("crash")
		err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			var b pgx.Batch
			blob.Claim(pg.Batch{Batch: &b}, run, lost)
			return errors.Join(tx.SendBatch(t.Context(), &b).Close(), tx.Conn().Close(t.Context()), errCrash)
		})
		testdb.WantError(t, "claim", err, errCrash)
		sweep(t, s, 0)
		age(t, pool)
		young := put(t, s, payloads(1, 2000)...)
		sweep(t, s, len(lost))
		if n := len(p.files(t)); n != len(kept)+len(young) {
			t.Errorf("%d objects are left, want %d", n, len(kept)+len(young))
		}
		if _, err := open(s, kept); err != nil {
			t.Errorf("those of the run: %v", err)
		}
		testdb.In(pool).Exec(t, `DELETE FROM runs`)
		sweep(t, s, len(kept))
		testdb.In(pool).Want(t, "rows", 1, `SELECT count(*) FROM blobs`)
	})
}

// TestClaimsAndSweepsExclude each other: what is claimed stays, and what is swept cannot be claimed.
func TestClaimsAndSweepsExclude(t *testing.T) {
	t.Parallel()
	p := inFolder(t)
	s, pool := newStore(t, p)
	for range 20 {
		refs := put(t, s, payloads(16, 1001)...)
		age(t, pool)
		claimed := make([]bool, len(refs))
		var all sync.WaitGroup
		for i, ref := range refs {
			all.Go(func() { claimed[i] = claim(t.Context(), pool, []blob.Reference{ref}) == nil })
			if i%4 == 0 {
				all.Go(func() {
					if _, err := s.Sweep(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		sweep(t, s, testdb.In(pool).Count(t, `SELECT count(*) FROM blobs WHERE run_id IS NULL`))
		for i, ref := range refs {
			if _, err := open(s, []blob.Reference{ref}); claimed[i] != (err == nil) {
				t.Fatalf("claimed: %v, but reading it says: %v", claimed[i], err)
			}
		}
	}
}

// TestOpenAppendKeepsItsBlobs: the sweeper passes over a blob whose claim is not committed yet, however old it is.
func TestOpenAppendKeepsItsBlobs(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, inFolder(t))
	refs := put(t, s, payloads(1, 2000)...)
	age(t, pool)
	err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		blob.Claim(pg.Batch{Batch: &b}, run, refs)
		if err := tx.SendBatch(t.Context(), &b).Close(); err != nil {
			return err
		}
		sweep(t, s, 0)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sweep(t, s, 0)
	if _, err := open(s, refs); err != nil {
		t.Error(err)
	}
}

func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		s, _ := newStore(t, p)
		whole := payloads(1, 2000)[0]
		for what, data := range map[string][]byte{
			"missing": nil, "shorter": whole[:1999], "longer": append(bytes.Clone(whole), 'x'),
			"changed": append(bytes.Clone(whole[:1999]), whole[1999]+1), "empty": {},
		} {
			refs := put(t, s, whole)
			for key, was := range p.files(t) {
				if bytes.Equal(was, whole) {
					p.change(t, key, data)
				}
			}
			_, err := open(s, refs)
			testdb.WantError(t, what, err, blob.ErrLost)
		}
	})
}

// TestBucketThatIsAway fails writes, reads and sweeps, and the sweeper goes on when it is back.
func TestBucketThatIsAway(t *testing.T) {
	t.Parallel()
	p, server := inBucket(t)
	s, pool := newStore(t, p)
	refs := put(t, s, payloads(2, 2000)...)
	server.Cut(500) // in the middle of a request
	_, err := s.Put(t.Context(), project, ofRun(payloads(2, 2000)))
	testdb.WantError(t, "write", err, blob.ErrUnavailable)
	server.Stop()
	_, err = open(s, refs)
	testdb.WantError(t, "read", err, blob.ErrUnavailable)
	age(t, pool)
	_, err = s.Sweep(t.Context())
	testdb.WantError(t, "sweep", err, blob.ErrUnavailable)
	testdb.In(pool).Want(t, "rows", 4, `SELECT count(*) FROM blobs`)
	server.Start(t)
	server.Mend()
	sweep(t, s, 4)
	if n := len(p.files(t)); n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

// TestDiscardedBlobsAreGone at once, but none that a run has.
func TestDiscardedBlobsAreGone(t *testing.T) {
	t.Parallel()
	p := inFolder(t)
	s, pool := newStore(t, p)
	refs := put(t, s, payloads(2, 2000)...)
	if err := claim(t.Context(), pool, refs[:1]); err != nil {
		t.Fatal(err)
	}
	if err := s.Discard(t.Context(), project, refs); err != nil {
		t.Fatal(err)
	}
	if _, err := open(s, refs[:1]); err != nil {
		t.Error(err)
	}
	if n := len(p.files(t)); n != 1 {
		t.Errorf("there are %d objects, want 1", n)
	}
	if err := claim(t.Context(), pool, refs[1:]); err == nil {
		t.Error("a discarded blob could be claimed")
	}
}

// gate lets nothing through until it is opened.
type gate struct {
	blob.Objects
	entered chan string
	open    chan struct{}
}

func (g gate) Put(ctx context.Context, key string, data []byte) error {
	g.entered <- key
	<-g.open
	return g.Objects.Put(ctx, key, data)
}

// TestProjectLeavesTransfersToOthers, however much it uploads and however slow the bucket is.
func TestProjectLeavesTransfersToOthers(t *testing.T) {
	t.Parallel()
	g := gate{inFolder(t), make(chan string, 1000), make(chan struct{})}
	s, _ := newStore(t, g)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(g.open)
	for range 10 {
		all.Go(func() { _, _ = s.Put(t.Context(), project, ofRun(payloads(10, 1001))) })
	}
	for range 16 {
		testdb.Receive(t, "upload", g.entered)
	}
	all.Go(func() { _, _ = s.Put(t.Context(), "other", ofRun(payloads(1, 1001))) })
	if key := testdb.Receive(t, "upload of another project", g.entered); filepath.Dir(key) != "other" {
		t.Errorf("%s goes first", key)
	}
}
