package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

func TestGauges(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	gauges := func() Gauges {
		t.Helper()
		g, err := r.Gauges(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	none := map[entities.RunStatus]int64{entities.RunPending: 0, entities.RunRunning: 0}
	blocked := map[string]int64{"diverged": 0, "encode": 0, "panic": 0, "server_panic": 0, "other": 0}
	if diff := cmp.Diff(Gauges{OpenRuns: none, BlockedRuns: blocked}, gauges()); diff != "" {
		t.Errorf("of nothing (-want +got):\n%s", diff)
	}
	fill(t, r, 100) // half have ended, half of the others have a message
	r.Exec(t, `UPDATE runs SET status = 'pending', started_at = NULL WHERE id = 'wrun_0000000001'`)
	r.Exec(t, `UPDATE runs SET status = 'pending', started_at = NULL WHERE id = 'wrun_0000000003'`)
	messages := r.Count(t, `SELECT count(*) FROM messages`)
	for i, sql := range []string{
		`UPDATE messages SET lease = 'rh_' || id, due_at = now() + interval '1 m'`,
		`UPDATE messages SET parked_at = now(), lease = ''`,
	} {
		r.Exec(t, sql+` WHERE id IN (SELECT id FROM messages WHERE lease = '' AND parked_at IS NULL ORDER BY id LIMIT $1)`, 3+i)
	}
	r.Exec(t, `
		UPDATE messages SET blocked = jsonb_build_object('code', CASE WHEN parked_at IS NULL THEN 'diverged' ELSE 'any' || id END)
		WHERE id IN (SELECT id FROM messages WHERE parked_at IS NOT NULL UNION (SELECT id FROM messages WHERE lease <> '' LIMIT 1))`)
	blocked["diverged"], blocked["other"] = 1, 4
	got := gauges()
	want := Gauges{
		BlockedRuns:     blocked,
		WaitingMessages: int64(messages - 7), LeasedMessages: 3, ParkedMessages: 4,
		OpenRuns: map[entities.RunStatus]int64{entities.RunPending: 2, entities.RunRunning: 48},
	}
	got.OldestDue = 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOldestDue counts due messages without a ticket and unused tickets, but no delayed or leased messages.
func TestOldestDue(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sql  string
		want time.Duration
	}{
		"no ticket out":     {`UPDATE messages SET due_at = now() - interval '1 h'`, time.Hour},
		"ticket waits":      {`UPDATE river_job SET scheduled_at = now() - interval '2 h'`, 2 * time.Hour},
		"lease ran out":     {`UPDATE messages SET lease = 'rh_1', due_at = now() - interval '1 h'`, time.Hour},
		"leased":            {`UPDATE messages SET lease = 'rh_1', due_at = now() + interval '1 m'`, 0},
		"parked":            {`UPDATE messages SET parked_at = now(), due_at = now() - interval '1 h'`, 0},
		"delayed":           {`UPDATE messages SET due_at = now() + interval '1 h'`, 0},
		"ticket is at work": {`UPDATE river_job SET state = 'running', scheduled_at = now() - interval '1 h'`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withoutHints(t, testdb.New(t))
			r.send(t)
			r.issue(t)
			if tt.want == 0 && name != "ticket is at work" {
				r.Exec(t, `DELETE FROM river_job`)
			}
			r.Exec(t, tt.sql)
			g, err := r.Gauges(t.Context())
			if err != nil || g.OldestDue < tt.want || g.OldestDue > tt.want+testdb.Timeout {
				t.Errorf("got %s, %v, want about %s", g.OldestDue, err, tt.want)
			}
			if tt.want == 0 && g.OldestDue > time.Minute {
				t.Errorf("got %s, want next to nothing", g.OldestDue)
			}
		})
	}
}

// TestGaugesHaveBoundedCost: the gauges read only indexes, and count up to their limit.
func TestGaugesHaveBoundedCost(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	fill(t, r, 50_000)
	r.Exec(t, `INSERT INTO run_wakes (run_id, stranded_at) SELECT id, now() FROM runs WHERE completed_at IS NULL`)
	r.Exec(t, `
		INSERT INTO river_job (args, kind, max_attempts, queue, state, finalized_at)
		SELECT '{}', 'deliver', 3, $1, (CASE i % 2 WHEN 0 THEN 'completed' ELSE 'available' END)::river_job_state,
			CASE i % 2 WHEN 0 THEN now() END
		FROM generate_series(1, 20000) i`, tickets.Queue)
	r.Exec(t, `ANALYZE`)
	g, err := r.Gauges(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Gauges{
		WaitingMessages: gaugeLimit, StrandedRuns: gaugeLimit, OldestDue: g.OldestDue,
		OpenRuns:    map[entities.RunStatus]int64{entities.RunPending: 0, entities.RunRunning: gaugeLimit},
		BlockedRuns: map[string]int64{"diverged": 0, "encode": 0, "panic": 0, "server_panic": 0, "other": 0},
	}
	if diff := cmp.Diff(want, g); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.Exec(t, `UPDATE messages SET parked_at = now(), blocked = '{"code":"any"}'`)
	r.Exec(t, `ANALYZE`)
	if g, err := r.Gauges(t.Context()); err != nil || g.ParkedMessages != gaugeLimit || g.WaitingMessages != 0 ||
		g.BlockedRuns["other"] != gaugeLimit {
		t.Errorf("parked: got %+v, %v", g, err)
	}
	if plan := r.explain(t, blockedSQL, blockedCodes, gaugeLimit); !strings.Contains(plan, "messages_blocked_idx") {
		t.Errorf("counts blocked runs without their index:\n%s", plan)
	}
	plan := r.explain(t, gaugesSQL, gaugeLimit)
	for _, table := range []string{"messages", "run_wakes", "river_job"} {
		if strings.Contains(plan, "Seq Scan on "+table) || !strings.Contains(plan, " on "+table) {
			t.Errorf("scans %s:\n%s", table, plan)
		}
	}
}
