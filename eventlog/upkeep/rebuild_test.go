package upkeep

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// mustRebuild rebuilds a damaged run and fails the test unless that repairs it.
func (f *fixture) mustRebuild(t *testing.T, id entities.RunID) {
	t.Helper()
	got, err := f.Rebuild(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Changed || len(got.Remaining) > 0 {
		t.Errorf("rebuild did %+v, want changes and no remaining differences", got)
	}
}

func TestRebuildDoesNotWriteCorrectRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.full(t)
	versions := func() (v string) {
		err := f.pool.QueryRow(t.Context(), `
			SELECT string_agg(version, ' ' ORDER BY version) FROM (
				SELECT xmin::text || ctid::text AS version FROM runs UNION ALL SELECT xmin::text || ctid::text FROM steps
				UNION ALL SELECT xmin::text || ctid::text FROM hooks UNION ALL SELECT xmin::text || ctid::text FROM waits
			) rows`).Scan(&v)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := versions()
	if got, err := f.Rebuild(t.Context(), id); err != nil || got.Changed || len(got.Remaining) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if after := versions(); after != before {
		t.Errorf("rows were written: %s, then %s", before, after)
	}
}

// TestRebuildWritesOneRunOnly damages another run as well.
func TestRebuildWritesOneRunOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	one, other := f.full(t), f.full(t)
	f.exec(t, `UPDATE steps SET attempt = 9`)
	f.exec(t, `DELETE FROM hooks`)
	before := f.rows(t, other)
	f.mustRebuild(t, one)
	f.wantSound(t, one)
	if diff := cmp.Diff(before, f.rows(t, other)); diff != "" {
		t.Errorf("the other run changed:\n%s", diff)
	}
}

// TestRebuildReportsATakenToken gives the token to another run while the hook's row is missing.
func TestRebuildReportsATakenToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	loser, winner := f.run(t), f.run(t)
	f.must(t, hookCreated(loser, "h1", "contested"))
	f.must(t, hookCreated(loser, "h2", "other"))
	f.exec(t, `DELETE FROM hooks`)
	f.must(t, hookCreated(winner, "h3", "contested"))
	got, err := f.Rebuild(t.Context(), loser)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s hook h1: it cannot be restored: hook h3 of run %s has its token now", loser, winner)
	if !got.Changed || len(got.Remaining) != 1 || got.Remaining[0].String() != want {
		t.Errorf("got %+v, want %s", got, want)
	}
	f.wantDifferences(t, loser, `hook h1: row: log says exists, row says none`)
	f.wantSound(t, winner)
	// The hook can be restored when the token is free again.
	f.must(t, on(winner, entities.EventHookDisposed, "h3"))
	f.mustRebuild(t, loser)
	f.wantSound(t, loser)
}

// TestRetainedHooksAreRestoredUntilTheyExpire. After that their row is optional: the next claim of the token deletes it
// without an event in the log of the hook's run.
func TestRetainedHooksAreRestoredUntilTheyExpire(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	kept := hookCreated(theRun, "h1", "kept")
	kept.Data.TokenRetentionUntil = ptr(day.Add(time.Hour))
	id := f.run(t, kept, onRun(theRun, entities.EventRunCompleted))
	before := f.rows(t, id)
	if len(before.Hooks) != 1 {
		t.Fatalf("got hooks %v, want one that is retained", before.Hooks)
	}
	f.wantSound(t, id)
	f.exec(t, `DELETE FROM hooks`)
	f.wantDifferences(t, id, `hook h1: row: log says exists, row says none`)
	f.mustRebuild(t, id)
	if diff := cmp.Diff(before, f.rows(t, id)); diff != "" {
		t.Errorf("rows differ after the rebuild (-before +after):\n%s", diff)
	}

	f.clock.move(time.Hour)
	f.wantSound(t, id)
	other := f.run(t, hookCreated(theRun, "h2", "kept"))
	if hooks := f.rows(t, id).Hooks; len(hooks) != 0 {
		t.Fatalf("got hooks %v, want the token taken over", hooks)
	}
	f.wantSound(t, id)
	f.exec(t, `UPDATE runs SET last_seq = 99 WHERE id = $1`, id)
	f.mustRebuild(t, id)
	f.wantSound(t, other)

	// The other way round: an expired row holds the token of a hook that must be restored.
	f.exec(t, `DELETE FROM hooks`)
	f.exec(t, `INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at, expires_at)
		VALUES ($1, 'h1', 'home', 'kept', false, 3, 2, $2, $2)`, id, day)
	f.mustRebuild(t, other)
	f.wantSound(t, other)
}

// TestRebuildRestoresTheFirstOfTwoHooksWithOneToken: such a log of one run is legal.
func TestRebuildRestoresTheFirstOfTwoHooksWithOneToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t)
	f.must(t, hookCreated(id, "h1", "one"))
	f.must(t, hookCreated(id, "h2", "two"))
	f.exec(t, `UPDATE events SET data = data || '{"token": "one"}' WHERE correlation_id = 'h2'`)
	got, err := f.Rebuild(t.Context(), id)
	if err != nil || len(got.Remaining) != 1 || got.Remaining[0].Entity != "hook h2" {
		t.Errorf("got %+v, %v", got, err)
	}
	if hooks := f.rows(t, id).Hooks; len(hooks) != 1 || hooks["h1"].Token != "one" {
		t.Errorf("got hooks %v", hooks)
	}
}

// TestFailedRebuildChangesNothing has the last insertion fail.
func TestFailedRebuildChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.full(t)
	f.exec(t, `UPDATE steps SET attempt = 9`)
	f.exec(t, `ALTER TABLE waits ADD CONSTRAINT no_waits CHECK (id <> 'w2') NOT VALID`)
	before := f.rows(t, id)
	if _, err := f.Rebuild(t.Context(), id); err == nil || !strings.Contains(err.Error(), "no_waits") {
		t.Errorf("got %v, want the refusal of the last row", err)
	}
	if diff := cmp.Diff(before, f.rows(t, id)); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

// TestLongLogsAreFoldedInSpans exceeds both the events of one fetch and the correlation IDs of one span.
func TestLongLogsAreFoldedInSpans(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, onRun(theRun, entities.EventRunStarted))
	const steps = 2*spanSize + 500
	// Every third step is completed, and every tenth correlation ID is a wait's, too.
	f.exec(t, `
		INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data)
		SELECT 'home', $1, 2 + row_number() OVER (ORDER BY part, n), type, 'id_' || n, 3,
			$3::timestamptz + (part * 100000 + n) * interval '1 ms',
			CASE type WHEN 'step_created' THEN '{"stepName": "s"}' ELSE '{"resumeAt": "2026-03-01T13:00:00Z"}' END::jsonb
		FROM generate_series(1, $2) n, (VALUES (1, 'step_created'), (2, 'step_completed'), (3, 'wait_created')) t (part, type)
		WHERE part = 1 OR (part = 2 AND n % 3 = 0) OR (part = 3 AND n % 10 = 0)`, id, steps, day)
	f.mustRebuild(t, id)
	f.wantSound(t, id)
	rows := f.rows(t, id)
	if diff := cmp.Diff(fold(f.events(t, id)), rows); diff != "" {
		t.Errorf("rows are not the fold of the log (-fold +rows):\n%s", diff)
	}
	if len(rows.Steps) != steps || len(rows.Waits) != steps/10 {
		t.Errorf("got %d steps and %d waits", len(rows.Steps), len(rows.Waits))
	}
	// Damage in the first span, at a boundary, in the last span, and after all IDs.
	ids := make([]string, 0, steps)
	for step := range rows.Steps {
		ids = append(ids, string(step))
	}
	slices.Sort(ids)
	damaged := []string{ids[0], ids[spanSize-1], ids[spanSize], ids[steps-1]}
	f.exec(t, `UPDATE steps SET attempt = 5 WHERE id = ANY ($1)`, damaged)
	f.exec(t, `INSERT INTO waits SELECT run_id, 'zzz', status, spec_version, resume_at, created_at, updated_at
		FROM waits WHERE id = 'id_10'`)
	want := []string{}
	for _, step := range damaged {
		want = append(want, "step "+step+": Attempt: log says 0, row says 5")
	}
	f.wantDifferences(t, id, append(want, "wait zzz: row: log says none, row says exists")...)
	f.mustRebuild(t, id)
	f.wantSound(t, id)
	f.must(t, onRun(id, entities.EventRunCompleted))
	f.wantSound(t, id)
}

// TestI2VerifyAndRebuildBesideAppends appends to a run while others verify, damage and rebuild it. Every append must
// succeed, and in the end the rows must be the fold of the log.
func TestI2VerifyAndRebuildBesideAppends(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	damaged, sound := f.run(t), f.run(t)
	const each = 20
	var writers, maintainers sync.WaitGroup
	var done atomic.Bool
	for _, id := range []entities.RunID{damaged, sound} {
		for i := range racers / 2 {
			writers.Go(func() {
				for n := range each {
					if _, err := f.Append(t.Context(), home, on(id, entities.EventStepCreated, fmt.Sprintf("s%d_%d", i, n))); err != nil {
						t.Errorf("append: %v", err)
					}
				}
			})
		}
	}
	verifications, rebuilds := atomic.Int64{}, atomic.Int64{}
	for range 2 {
		maintainers.Go(func() {
			for ok := true; ok; ok = !done.Load() {
				f.wantSound(t, sound)
				verifications.Add(1)
			}
		})
		maintainers.Go(func() {
			for ok := true; ok; ok = !done.Load() {
				// Appends neither repair this damage nor fail because of it.
				f.exec(t, `DELETE FROM steps WHERE run_id = $1 AND created_seq % 2 = 0`, damaged)
				got, err := f.Rebuild(t.Context(), damaged)
				if err != nil || len(got.Remaining) > 0 {
					t.Errorf("rebuild: %+v, %v", got, err)
				}
				rebuilds.Add(1)
			}
		})
	}
	writers.Wait()
	done.Store(true)
	maintainers.Wait()
	if verifications.Load() < 2 || rebuilds.Load() < 2 {
		t.Errorf("got %d verifications and %d rebuilds, want two of each", verifications.Load(), rebuilds.Load())
	}
	if _, err := f.Rebuild(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
	for _, id := range []entities.RunID{damaged, sound} {
		f.wantSound(t, id)
		events := f.events(t, id)
		n := 0
		for i, e := range events {
			if e.Seq != int64(i+1) || i > 0 && e.CreatedAt.Before(events[i-1].CreatedAt) {
				t.Fatalf("event %d has position %d and time %s", i+1, e.Seq, e.CreatedAt)
			}
			if e.Type == entities.EventStepCreated {
				n++
			}
		}
		if n != racers/2*each || len(f.rows(t, id).Steps) != n {
			t.Errorf("got %d events and %d rows of %d steps", n, len(f.rows(t, id).Steps), racers/2*each)
		}
	}
}

// TestRebuildWaitsForTheRunsLock also wants a waiting append to find the new rows.
func TestRebuildWaitsForTheRunsLock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, on(theRun, entities.EventStepCreated, "s1"))
	f.exec(t, `DELETE FROM steps`)
	f.refused(t, on(id, entities.EventStepStarted, "s1"), entities.ErrStepNotFound)
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := store.LockRunOfAny(t.Context(), tx, id); err != nil {
		t.Fatal(err)
	}
	rebuilt := make(chan error, 1)
	go func() {
		got, err := f.Rebuild(t.Context(), id)
		rebuilt <- errors.Join(err, map[bool]error{false: errors.New("nothing changed")}[got.Changed])
	}()
	f.waitForLock(t, rebuilt)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-rebuilt; err != nil {
		t.Fatal(err)
	}
	f.must(t, on(id, entities.EventStepStarted, "s1"))
	f.wantSound(t, id)
}

// TestRebuildForgetsWhatTheRunAwaits: the log does not say it, so verify ignores it, and after a rebuild all new events
// have the run invoked.
func TestRebuildForgetsWhatTheRunAwaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.full(t)
	f.exec(t, `UPDATE runs SET await = jsonb_build_object('seq', last_seq, 'any', '["s"]'::jsonb)`)
	f.wantSound(t, id)
	f.exec(t, `UPDATE steps SET attempt = 9`)
	f.mustRebuild(t, id)
	var awaiting bool
	if err := f.pool.QueryRow(t.Context(), `SELECT await IS NOT NULL FROM runs`).Scan(&awaiting); err != nil || awaiting {
		t.Errorf("the run awaits something: %v, error %v", awaiting, err)
	}
}
