package limit_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	home     entities.Project = "home"
	stranger entities.Project = "stranger"
)

func openStore(t *testing.T) (*limit.Store, *pgxpool.Pool) {
	t.Helper()
	pool := testdb.Pool(t)
	return limit.NewStore(pool, func() time.Time { return start }), pool
}

func TestLimitsAreKeptByProject(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t)
	want := limit.Limit{
		Project: home, Name: "stripe", CreatedAt: start, UpdatedAt: start,
		Spec: limit.Spec{PerKey: 5, Total: 200, Rate: 100, Per: time.Minute, Burst: 10, Fair: true, OnFull: limit.Reject},
	}
	if _, err := s.Put(t.Context(), home, "stripe", limit.Spec{PerKey: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), home, "stripe", want.Spec); err != nil {
		t.Fatal(err)
	}
	got, err := s.Limit(t.Context(), home, "stripe")
	got.CreatedAt, got.UpdatedAt = got.CreatedAt.UTC(), got.UpdatedAt.UTC()
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("limit differs (-want +got), error %v:\n%s", err, diff)
	}
	if _, err := s.Limit(t.Context(), stranger, "stripe"); !errors.Is(err, limit.ErrNotFound) {
		t.Errorf("another project: got error %v, want ErrNotFound", err)
	}
	list, next, err := s.List(t.Context(), home, pg.Page{Limit: 1})
	if err != nil || len(list) != 1 || next != "" {
		t.Errorf("got list %v, next %q, error %v; want one limit", list, next, err)
	}
	if err := s.Delete(t.Context(), stranger, "stripe", true); !errors.Is(err, limit.ErrNotFound) {
		t.Errorf("deleting that of another project: got error %v, want ErrNotFound", err)
	}
	if err := s.Delete(t.Context(), home, "stripe", false); err != nil {
		t.Error(err)
	}
}

func TestWrongLimitsAreRefused(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t)
	for name, spec := range map[string]limit.Spec{
		"no bound":         {},
		"negative":         {PerKey: -1},
		"too many":         {Total: limit.MaxSlots + 1},
		"rate without per": {Rate: 1},
		"per without rate": {PerKey: 1, Per: time.Second},
		"burst over rate":  {Rate: 2, Per: time.Second, Burst: 3},
		"short window":     {Rate: 1, Per: time.Millisecond},
		"unknown on full":  {PerKey: 1, OnFull: "skip"},
		"oldest of all":    {Total: 1, OnFull: limit.CancelOldest},
	} {
		if _, err := s.Put(t.Context(), home, "l", spec); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got error %v, want ErrInvalid", name, err)
		}
	}
	if _, err := s.Put(t.Context(), home, "a b", limit.Spec{PerKey: 1}); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("name with a space: got error %v, want ErrInvalid", err)
	}
}

func TestLimitInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t)
	if _, err := s.Put(t.Context(), home, "l", limit.Spec{PerKey: 1}); err != nil {
		t.Fatal(err)
	}
	p := limit.Policy{Project: home, Workflow: "w", Limits: []limit.PolicyUse{{Name: "l", Key: "key"}}}
	if _, err := s.PutPolicy(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		err := s.Delete(t.Context(), home, "l", force)
		if !errors.Is(err, limit.ErrInUse) || !strings.Contains(err.Error(), "policy of workflow w ") {
			t.Errorf("a policy names it, force %v: got error %v, want ErrInUse with its workflow", force, err)
		}
	}
	if _, err := s.Limit(t.Context(), home, "l"); err != nil {
		t.Errorf("after the refusal: %v", err)
	}
	p.Limits[0].Name = "other"
	if _, err := s.PutPolicy(t.Context(), p); !errors.Is(err, limit.ErrNotFound) {
		t.Errorf("a policy with an unknown limit: got error %v, want ErrNotFound", err)
	}
	if err := s.DeletePolicy(t.Context(), home, "w"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeletePolicy(t.Context(), home, "w"); !errors.Is(err, limit.ErrPolicyNotFound) {
		t.Errorf("deleting it again: got error %v, want ErrPolicyNotFound", err)
	}
	if err := s.Delete(t.Context(), home, "l", false); err != nil {
		t.Error(err)
	}
}

func TestPolicyGivesRunsTheirLimits(t *testing.T) {
	t.Parallel()
	p := limit.Policy{Workflow: "w", Limits: []limit.PolicyUse{
		{Name: "a", Key: "attributes.user", Tenant: `attributes["the tenant"]`},
		{Name: "b", Key: "key"},
		{Name: "c", Key: "'eu'", Cost: 2},
		{Name: "d"},
	}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	subject := limit.Subject{UniqueKey: "k", Attributes: map[string]string{"user": "u", "the tenant": "t"}}
	got, err := p.Uses(subject, []entities.LimitUse{{Name: "d", Key: "own"}})
	want := []entities.LimitUse{
		{Name: "d", Key: "own"}, {Name: "a", Key: "u", Tenant: "t"}, {Name: "b", Key: "k"}, {Name: "c", Key: "eu", Cost: 2},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("limits differ (-want +got), error %v:\n%s", err, diff)
	}
	delete(subject.Attributes, "user")
	if _, err := p.Uses(subject, nil); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("without the attribute: got error %v, want ErrInvalid", err)
	}
	for _, key := range []string{"attributes", "attributes.", "attributes[a]", "attributes['a", "run.key", "'", "'a'b'", "1"} {
		p.Limits = []limit.PolicyUse{{Name: "a", Key: key}}
		if err := p.Validate(); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("key %s: got error %v, want ErrInvalid", key, err)
		}
	}
}

// TestUsageTellsWhoHoldsAndWhoWaits checks what the people see who ask why something waits.
func TestUsageTellsWhoHoldsAndWhoWaits(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t)
	spec := limit.Spec{PerKey: 1, Rate: 2, Per: time.Hour, Burst: 1}
	if _, err := s.Put(t.Context(), home, "l", spec); err != nil {
		t.Fatal(err)
	}
	err := pg.InTxBatch(t.Context(), pool, func(b *pgx.Batch) {
		for i, run := range []string{"wrun_1", "wrun_2", "wrun_3"} {
			b.Queue(`
				INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq,
					created_at, updated_at)
				VALUES ($1, $2, 'd', 'w', 'pending', 2, '{}', 1, now(), now())`, run, home)
			b.Queue(`
				INSERT INTO permits (holder, project, name, key, tenant, cost, run_id, created_at, rank_at, granted_at)
				VALUES ($1, $2, 'l', 'k', '', 1, $1, $3, $3, CASE WHEN $4 THEN now() END)`,
				run, home, start.Add(time.Duration(i)*time.Second), i == 0)
		}
		b.Queue(`
			INSERT INTO limit_clocks (project, name, kind, key, at) VALUES ($1, 'l', 'rate', 'k', now() + interval '1 hour')`,
			home)
	})
	if err != nil {
		t.Fatal(err)
	}
	usage, next, err := s.Usage(t.Context(), home, "l", pg.Page{Limit: 10})
	if err != nil || next != "" || len(usage) != 1 || usage[0].Key != "k" || usage[0].Held != 1 || usage[0].Waiting != 2 ||
		usage[0].OldestWait == nil || !usage[0].OldestWait.Equal(start.Add(time.Second)) {
		t.Errorf("got usage %+v, next %q, error %v; want one held and two that wait since 12:00:01", usage, next, err)
	}
	holders, err := s.Holders(t.Context(), home, "l", "k", 10)
	if err != nil || len(holders) != 1 || holders[0].RunID != "wrun_1" {
		t.Errorf("got holders %+v, error %v; want wrun_1", holders, err)
	}
	waiting, err := s.Waiting(t.Context(), home, "l", "k", 1)
	if err != nil || len(waiting) != 1 || waiting[0].RunID != "wrun_2" {
		t.Errorf("got waiting %+v, error %v; want wrun_2 first", waiting, err)
	}
	awaited, err := limit.AwaitedBy(t.Context(), pool, home, []string{"wrun_3"}, 10, 10)
	if err != nil || len(awaited) != 1 {
		t.Fatalf("got %+v, error %v; want the one slot that wrun_3 waits for", awaited, err)
	}
	if a := awaited[0]; a.Ahead != 1 || a.Held != 1 || a.HeldInAll != 1 || a.HasRoom() || a.RateAt == nil || a.Limit.PerKey != 1 {
		t.Errorf("got %+v; want one ahead, one held, no room, and a rate that allows it later", a)
	}
	if err := s.Delete(t.Context(), home, "l", false); !errors.Is(err, limit.ErrInUse) {
		t.Errorf("deleting it: got error %v, want ErrInUse", err)
	}
	if _, err := pool.Exec(t.Context(), `DELETE FROM runs`); err != nil {
		t.Fatal(err)
	}
	if waiting, err := s.Waiting(t.Context(), home, "l", "k", 1); err != nil || len(waiting) > 0 {
		t.Errorf("after the runs are gone: got %+v, error %v; want nobody", waiting, err)
	}
}

func TestOldClocksAreDeleted(t *testing.T) {
	t.Parallel()
	_, pool := openStore(t)
	exec(t, pool, `
		INSERT INTO limit_clocks (project, name, kind, key, at)
		VALUES ($1, 'l', 'rate', 'old', now() - interval '2 hours'), ($1, 'l', 'rate', 'new', now())`, home)
	if err := limit.DeleteOldClocks(t.Context(), pg.NewPool(pool)); err != nil {
		t.Fatal(err)
	}
	var left string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(key, ' ') FROM limit_clocks`).Scan(&left); err != nil || left != "new" {
		t.Errorf("%q are left, error %v; want new", left, err)
	}
}

// TestALimitIsNotMadeTooSmallForWhatWaits: that would wait for ever. A run that holds its slots needs no more, but a
// step waits for them again before its next attempt.
func TestALimitIsNotMadeTooSmallForWhatWaits(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t)
	put := func(spec limit.Spec) error {
		_, err := s.Put(t.Context(), home, "l", spec)
		return err
	}
	if err := put(limit.Spec{PerKey: 5}); err != nil {
		t.Fatal(err)
	}
	wait(t, pool, 0, 2, use("l", "k"))
	exec(t, pool, `UPDATE permits SET cost = 5, granted_at = now() WHERE run_id = 'wrun_000000'`)
	exec(t, pool, `UPDATE permits SET cost = 3 WHERE granted_at IS NULL`)
	for _, tooSmall := range []limit.Spec{{PerKey: 2}, {Total: 2}, {Rate: 5, Per: time.Minute, Burst: 2}} {
		if err := put(tooSmall); !errors.Is(err, limit.ErrInUse) {
			t.Errorf("%+v: got error %v, want ErrInUse", tooSmall, err)
		}
	}
	if l, err := s.Limit(t.Context(), home, "l"); err != nil || l.PerKey != 5 {
		t.Errorf("got %+v, error %v; want the limit as it was", l, err)
	}
	if err := put(limit.Spec{PerKey: 3}); err != nil {
		t.Errorf("a limit with enough slots: %v", err)
	}
	exec(t, pool, `UPDATE permits SET cost = 4 WHERE granted_at IS NULL`)
	if err := put(limit.Spec{PerKey: 3, Total: 9}); err != nil {
		t.Errorf("a limit that is as large as before: %v", err)
	}
	exec(t, pool, `
		INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, ticket, due_at)
		VALUES ('msg_1', $1, 't', 'd', 'wrun_000001', '', '', now(), 1, now())`, home)
	exec(t, pool, `
		UPDATE permits SET cost = 3, holder = 'msg_1', message_id = 'msg_1', granted_at = now() WHERE granted_at IS NULL`)
	if err := put(limit.Spec{PerKey: 1}); !errors.Is(err, limit.ErrInUse) {
		t.Errorf("with a step that holds three: got error %v, want ErrInUse", err)
	}
	exec(t, pool, `DELETE FROM permits WHERE message_id IS NOT NULL`)
	if err := put(limit.Spec{PerKey: 1}); err != nil {
		t.Errorf("with nothing that waits: %v", err)
	}
}
