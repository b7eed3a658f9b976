package encryption_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// sealed returns what a process stores of a payload of a run.
func (p *process) sealed(t *testing.T, run entities.RunID, text string) []byte {
	t.Helper()
	if err := p.Prepare(string(home)); err != nil {
		t.Fatal(err)
	}
	if err := p.PrepareRuns(string(home), string(run), []string{string(run)}); err != nil {
		t.Fatal(err)
	}
	b, err := p.Seal(atrest.Payload{Place: placeIn(run), Project: string(home), Bytes: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func placeIn(run entities.RunID) atrest.Place {
	return atrest.Place{Kind: atrest.Event, Owner: string(run), Seq: 1}
}

// opened returns what a process reads of it.
func (p *process) opened(run entities.RunID, stored []byte) (string, error) {
	var o atrest.Opener
	o.Bytes(placeIn(run), &stored)
	err := o.Open(p)
	return string(stored), err
}

func (p *process) shred(ctx context.Context, run entities.RunID) (done bool, err error) {
	err = pg.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		done, err = encryption.ShredRun(ctx, tx, &entities.Run{ID: run, Project: home, CreatedAt: time.Now().Add(time.Minute)})
		return err
	})
	return done, err
}

// Destroying the key of a run leaves everything else readable. Each process notices after a few seconds.
func TestRunsAreShreddedAlone(t *testing.T) {
	t.Parallel()
	p, dsn := newNotes(t, master(t, "a"))
	p.apply(t, encryption.Encrypt)
	before := p.sealed(t, "wrun_1", "before")
	p.apply(t, encryption.RunKeys)
	p.apply(t, encryption.RunKeys)
	other := newProcess(t, dsn, master(t, "a"))
	stored := map[entities.RunID][]byte{"wrun_1": p.sealed(t, "wrun_1", "secret"), "wrun_2": other.sealed(t, "wrun_2", "secret")}
	p.apply(t, encryption.Rotate)
	stored["wrun_3"] = p.sealed(t, "wrun_3", "secret")
	for run, b := range stored {
		for _, reader := range []*process{p, other, newProcess(t, dsn, master(t, "a"))} {
			if text, err := reader.opened(run, b); err != nil || text != "secret" || !encryption.OfRun(b) {
				t.Errorf("%s is %q, %v", run, text, err)
			}
		}
		if text, err := p.opened("wrun_4", b); err == nil && text == "secret" {
			t.Errorf("%s is readable in another run", run)
		}
	}
	if s := p.state(t); s.DataKeys != 3 || !*s.RunKeys {
		t.Errorf("the project has %+v", s)
	}
	for _, want := range []bool{true, false} {
		if done, err := p.shred(t.Context(), "wrun_2"); err != nil || done != want {
			t.Errorf("shredded is %t, %v", done, err)
		}
	}
	p.Forget("wrun_2")
	other.late.Add(int64(6 * time.Second))
	for _, reader := range []*process{p, other, newProcess(t, dsn, master(t, "a"))} {
		if err := reader.Prepare(string(home)); err != nil {
			t.Fatal(err)
		}
		if text, err := reader.opened("wrun_2", stored["wrun_2"]); err != nil || !atrest.IsUnreadable([]byte(text)) {
			t.Errorf("a shredded payload is %q, %v", text, err)
		}
		if text, err := reader.opened("wrun_1", before); err != nil || text != "before" {
			t.Errorf("a payload of the data key is %q, %v", text, err)
		}
		if text, err := reader.opened("wrun_3", stored["wrun_3"]); err != nil || text != "secret" {
			t.Errorf("a payload of another run is %q, %v", text, err)
		}
		if b, err := reader.Seal(atrest.Payload{Place: placeIn("wrun_2"), Project: string(home), Bytes: []byte("x")}); !errors.Is(err, atrest.ErrShredded) {
			t.Errorf("a shredded run gets %q, %v", b, err)
		}
	}
}

// Processes that write to and read from runs while these are shredded see each payload whole, or not at all; afterwards
// nobody does.
func TestShreddingBesideWritersAndReaders(t *testing.T) {
	t.Parallel()
	p, dsn := newNotes(t, master(t, "a"))
	p.apply(t, encryption.Encrypt)
	p.apply(t, encryption.RunKeys)
	processes := []*process{p, newProcess(t, dsn, master(t, "a")), newProcess(t, dsn, master(t, "a"))}
	const runs = 20
	var racers sync.WaitGroup
	var mu sync.Mutex
	stored := map[entities.RunID][][]byte{}
	for _, racer := range processes {
		if err := racer.Prepare(string(home)); err != nil {
			t.Fatal(err)
		}
		racers.Go(func() {
			for i := range runs {
				run := entities.RunID(fmt.Sprintf("wrun_%d", i))
				b, err := racer.Seal(atrest.Payload{Place: placeIn(run), Project: string(home), Bytes: []byte("secret")})
				if errors.Is(err, atrest.ErrShredded) {
					continue
				}
				text, readErr := racer.opened(run, b)
				if err != nil || readErr != nil || text != "secret" && !atrest.IsUnreadable([]byte(text)) {
					t.Errorf("%s is %q, %v, %v", run, text, err, readErr)
				}
				mu.Lock()
				stored[run] = append(stored[run], b)
				mu.Unlock()
				if _, err := racer.shred(t.Context(), run); err != nil {
					t.Error(err)
				}
			}
		})
	}
	racers.Wait()
	for run, list := range stored {
		for _, b := range list {
			if text, err := newProcess(t, dsn, master(t, "a")).opened(run, b); err != nil || !atrest.IsUnreadable([]byte(text)) {
				t.Errorf("%s is %q, %v", run, text, err)
			}
		}
	}
	if len(stored) != runs {
		t.Errorf("%d runs have payloads, want %d", len(stored), runs)
	}
}

// A run that is refused for hours has a key that is as good as new whenever it may begin: keys without a run are swept.
func TestAttemptsToBeginARunRenewItsKey(t *testing.T) {
	t.Parallel()
	p, _ := newNotes(t, master(t, "a"))
	p.apply(t, encryption.Encrypt)
	p.apply(t, encryption.RunKeys)
	p.sealed(t, "wrun_1", "refused")
	for range 3 {
		testdb.Exec(t, p.pool, `UPDATE run_keys SET created_at = now() - interval '59 min'`)
		p.late.Add(int64(6 * time.Minute)) // until the process asks again
		stored := p.sealed(t, "wrun_1", "secret")
		testdb.In(p.pool).Want(t, "keys that are new", 1,
			`SELECT count(*) FROM run_keys WHERE created_at > now() - interval '1 min'`)
		if text, err := p.opened("wrun_1", stored); err != nil || text != "secret" {
			t.Errorf("the payload is %q, %v", text, err)
		}
	}
}

// Who names the run of another project leaves no key for it.
func TestRunsOfOtherProjectsGetNoKey(t *testing.T) {
	t.Parallel()
	p, _ := newNotes(t, master(t, "a"))
	p.apply(t, encryption.Encrypt)
	p.apply(t, encryption.RunKeys)
	testdb.In(p.pool).AddRuns(t, "other", "dpl", 1, "")
	if err := p.Prepare(string(home)); err != nil {
		t.Fatal(err)
	}
	for run, want := range map[string]int{"wrun_1": 0, "wrun_2": 1} {
		if err := p.PrepareRuns(string(home), run, []string{run}); err != nil {
			t.Fatal(err)
		}
		testdb.In(p.pool).Want(t, "keys of "+run, want, `SELECT count(*) FROM run_keys WHERE run_id = $1`, run)
	}
	if b, err := p.Seal(atrest.Payload{Place: placeIn("wrun_1"), Project: string(home), Bytes: []byte("x")}); err == nil {
		t.Errorf("a payload in the run of another project is stored as %q", b)
	}
}

// A run that may have payloads of the project's key is not shredded alone.
func TestRunsBeforeRunKeysAreNotShredded(t *testing.T) {
	t.Parallel()
	p, _ := newNotes(t, master(t, "a"))
	if _, err := p.shred(t.Context(), "wrun_1"); !errors.Is(err, encryption.ErrNoRunKey) {
		t.Errorf("without a key: %v", err)
	}
	p.apply(t, encryption.Encrypt)
	p.apply(t, encryption.RunKeys)
	p.sealed(t, "wrun_1", "secret")
	err := pg.InTx(t.Context(), p.pool, func(tx pgx.Tx) error {
		_, err := encryption.ShredRun(t.Context(), tx, &entities.Run{ID: "wrun_1", Project: home, CreatedAt: time.Now()})
		return err
	})
	if !errors.Is(err, encryption.ErrNoRunKey) {
		t.Errorf("a run of before: %v", err)
	}
}
