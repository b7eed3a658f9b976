package eventlog

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// orphans inserts n streams of the run that does not exist, which began so long ago.
func (f *fixture) orphans(t *testing.T, n int, prefix, age string) {
	t.Helper()
	f.exec(t, `
		INSERT INTO streams (project, name, run_id, chunks, created_at, before_run)
		SELECT $1, $2 || n, $3, 0, now() - $4::interval, true FROM generate_series(1, $5) n`,
		home, prefix, someRun, age, n)
}

// one returns a function that writes a chunk to a stream of the home project.
func (r replica) one(t *testing.T, run entities.RunID, name entities.StreamName) func() error {
	return func() error { return r.Write(t.Context(), home, run, name, [][]byte{{1}}) }
}

// TestProjectHasSoManyStreamsOfNoRun refuses what begins one more, and nothing else.
func TestProjectHasSoManyStreamsOfNoRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r, run := newReplica(t, f.pool), f.run(t)
	f.orphans(t, read.MaxOrphans-1, "strm_", "1 day")
	for _, tt := range []struct {
		what string
		do   func() error
		want error
	}{
		{"the last", r.one(t, someRun, "last"), nil},
		{"one more", r.one(t, someRun, "more"), read.ErrTooManyOrphans},
		{"one more, closed", func() error { return r.Close(t.Context(), home, someRun, "more") }, read.ErrTooManyOrphans},
		{"of another project", func() error { return r.Write(t.Context(), stranger, run, "theirs", nil) }, nil},
		{"of a run", r.one(t, run, "of a run"), nil},
		{"further chunks", r.one(t, someRun, "last"), nil},
		{"the end", func() error { return r.Close(t.Context(), home, someRun, "last") }, nil},
		{"after the end", r.one(t, someRun, "last"), nil},
	} {
		if err := tt.do(); !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", tt.what, err, tt.want)
		}
	}
	if s, err := r.Info(t.Context(), home, "more"); err != nil || s.ID != 0 {
		t.Errorf("got %+v and error %v of the stream that was refused, want none", s, err)
	}
}

// TestStreamsWhoseRunExistsByNowMakeRoom, as do answers to health checks that are an hour old.
func TestStreamsWhoseRunExistsByNowMakeRoom(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r, run := newReplica(t, f.pool), newRunID()
	if err := r.one(t, run, "before its run")(); err != nil {
		t.Fatal(err)
	}
	f.orphans(t, read.MaxOrphans-3, "strm_", "1 day")
	f.orphans(t, 1, "__health_check__old", "2 hours")
	f.orphans(t, 1, "__health_check__new", "1 minute")
	f.must(t, runCreated(run))
	for _, tt := range []struct {
		name entities.StreamName
		want error
	}{{"first", nil}, {"second", nil}, {"third", read.ErrTooManyOrphans}} {
		if err := r.one(t, someRun, tt.name)(); !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", tt.name, err, tt.want)
		}
	}
	for name, want := range map[entities.StreamName]bool{
		"before its run": true, "__health_check__old1": false, "__health_check__new1": true,
	} {
		if s, err := r.Info(t.Context(), home, name); err != nil || (s.ID != 0) != want {
			t.Errorf("%s: got %+v and error %v, want it there: %t", name, s, err, want)
		}
	}
}

// TestRacingStreamsOfNoRunDoNotExceedTheBound has two servers.
func TestRacingStreamsOfNoRunDoNotExceedTheBound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	servers, free := []replica{newReplica(t, f.pool), newReplica(t, f.pool)}, 3
	f.orphans(t, read.MaxOrphans-free, "strm_", "1 day")
	var racing sync.WaitGroup
	var accepted atomic.Int64
	for i := range racers {
		racing.Go(func() {
			switch err := servers[i%2].one(t, someRun, entities.StreamName(fmt.Sprint("racer ", i)))(); {
			case err == nil:
				accepted.Add(1)
			case !errors.Is(err, read.ErrTooManyOrphans):
				t.Error(err)
			}
		})
	}
	racing.Wait()
	if n := accepted.Load(); n != int64(free) {
		t.Errorf("got %d streams, want %d", n, free)
	}
}
