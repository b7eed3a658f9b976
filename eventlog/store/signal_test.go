package store

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestWaitingHooksAndEarlierSignalsAreReadByIndex: of 20,000 hooks, 400 wait for the signal. Each page of them touches
// a few blocks per hook, wherever it begins. The same holds for a hook that looks back at 20,000 signals, of which its
// run has received half.
func TestWaitingHooksAndEarlierSignalsAreReadByIndex(t *testing.T) {
	t.Parallel()
	m := &meter{Pool: testdb.Pool(t)}
	if _, err := m.Exec(t.Context(), `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq,
			created_at, updated_at)
		SELECT 'wrun_' || md5(i::text), 'home', 'dpl_1', 'w', 'running', 2, '{"k": "v"}', 2, now(), now()
		FROM generate_series(1, 20000) i;
		INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at, signal)
		SELECT 'wrun_' || md5(i::text), 'h', 'home', 'T' || i, false, 2, 2, now(),
			CASE WHEN i % 50 = 0 THEN 'rare' WHEN i % 2 = 0 THEN 'often' ELSE '' END
		FROM generate_series(1, 20000) i;
		INSERT INTO signals (project, id, name, data, created_at, keep_until, expires_at)
		SELECT 'home', 'sig_' || i, CASE WHEN i % 25 = 0 THEN 'rare' ELSE 'often' END, '1', now() - i * interval '1 s',
			now() + interval '1 h', now() + interval '1 h'
		FROM generate_series(1, 20000) i;
		INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data)
		SELECT 'home', 'wrun_' || md5('1'), i, 'hook_received', 'h', 2, now(), jsonb_build_object('resumeId', 'sig_' || i || ':h', 'via', 'signal')
		FROM generate_series(2, 20000, 2) i;
		ANALYZE runs; ANALYZE hooks; ANALYZE signals; ANALYZE events`); err != nil {
		t.Fatal(err)
	}
	s := Signal{Project: "home", ID: "sig_now", Name: "rare"}
	var last Waiting
	seen := 0
	for page := range 4 {
		hooks, err := WaitingFor(t.Context(), m, s, last.RunID, last.ID, 100)
		if err != nil || len(hooks) != 100 || hooks[0].Attributes["k"] != "v" || hooks[0].RunID <= last.RunID {
			t.Fatalf("page %d: %d hooks, %v", page, len(hooks), err)
		}
		last, seen = hooks[99], seen+len(hooks)
		if plan := m.explain(t); plan.blocks() > 1500 {
			t.Errorf("page %d touches %d blocks", page, plan.blocks())
		}
	}
	if more, err := WaitingFor(t.Context(), m, s, last.RunID, last.ID, 100); len(more) != 0 || err != nil {
		t.Errorf("after the last: %d hooks, %v", len(more), err)
	}
	if others, err := WaitingFor(t.Context(), m, Signal{Project: "away", ID: s.ID, Name: s.Name}, "", "", 100); len(others) != 0 || err != nil {
		t.Errorf("of another project: %d hooks, %v", len(others), err)
	}
	looking := entities.Hook{
		Project: "home", Signal: "rare", CreatedAt: time.Now(), RunID: "wrun_c4ca4238a0b923820dcc509a6f75849b", CreatedSeq: 30000,
	}
	earlier := func(after SignalPlace, limit int) []Signal {
		t.Helper()
		signals, err := EarlierSignals(t.Context(), m, looking, 24*time.Hour, after, limit)
		if err != nil || len(signals) != limit {
			t.Fatalf("%d signals, %v", len(signals), err)
		}
		return signals
	}
	signals := earlier(SignalPlace{CreatedAt: time.Now().Add(-24 * time.Hour)}, 16)
	for _, s := range signals {
		if i, err := strconv.Atoi(strings.TrimPrefix(string(s.ID), "sig_")); err != nil || i%2 == 0 {
			t.Errorf("%s was received before, %v", s.ID, err)
		}
	}
	t.Logf("EarlierSignals touches %d blocks", m.explain(t).blocks())
	if plan := m.explain(t); plan.blocks() > 200 || len(plan.scans()) > 0 {
		t.Errorf("EarlierSignals touches %d blocks: %v", plan.blocks(), plan.scans())
	}
	if diff := cmp.Diff(signals[15:], earlier(signals[14].Place(), 1)); diff != "" {
		t.Errorf("after the 15th (-want +got):\n%s", diff)
	}
}
