package limiter_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/limit"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/limiter"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// TestLimiterGoesOnAfterRefusals: more steps are refused than one pass considers, and one look is enough for all.
func TestLimiterGoesOnAfterRefusals(t *testing.T) {
	t.Parallel()
	const steps, home = 600, entities.Project("home")
	pool, err := migrations.Pool(t.Context(), testdb.New(t), migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := limit.NewStore(pool, time.Now)
	if _, err := store.Put(t.Context(), home, "full", limit.Spec{PerKey: 1, OnFull: limit.Reject, Paused: true}); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{`
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at,
			updated_at)
		VALUES ('wrun_1', 'home', 'd', 'w', 'running', 2, '{}', 1, now(), now())`, `
		INSERT INTO messages (id, project, topic, deployment_id, run_id, work, subject, content_type, body, expires_at, due_at)
		SELECT 'm' || i, 'home', 's', 'd', 'wrun_1', 'step', i, '', '', now() + interval '1 day', now() + interval '1 day'
		FROM generate_series(1, 600) AS i`, `
		INSERT INTO permits (holder, message_id, run_id, project, name, key, tenant, cost, created_at, rank_at)
		SELECT id, id, 'wrun_1', 'home', 'full', '', '', 1, now(), now() FROM messages`} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var refused atomic.Int64
	l := limiter.New(pool, pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler)), func(_ *pgx.Batch, _ entities.Project, decided []limit.Granted) func(error) {
		return func(error) {
			if refused.Add(int64(len(decided))) == steps {
				cancel()
			}
		}
	}, func(context.Context) error { return nil })
	l.LookAtAll()
	l.Run(ctx, slog.New(slog.DiscardHandler))
	if n := refused.Load(); n != steps {
		t.Errorf("%d steps were refused after one look, want all %d", n, steps)
	}
}
