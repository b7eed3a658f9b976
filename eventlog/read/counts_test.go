package read

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestPartsAreCountedUpToALimit counts the parts of a run with 100,000 events among others, and of one that has some of
// each kind. Neither reads more than a bounded part, and no statement scans a table.
func TestPartsAreCountedUpToALimit(t *testing.T) {
	t.Parallel()
	pool := testdb.Connect(t, testdb.Indexed(t))
	for _, sql := range []string{
		`INSERT INTO deployments (project, id, url) VALUES ('default', 'shop', 'http://shop.test')`,
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, driver, last_seq, created_at,
				updated_at, started_at, parent_id)
			SELECT 'wrun_' || i, 'default', 'shop', 'order', 'running', 6, 'server', 100000, now(), now(), now(),
				CASE WHEN i > 7000 THEN '' WHEN i > 5 THEN 'wrun_1' WHEN i > 2 THEN 'wrun_2' ELSE '' END
			FROM generate_series(1, 9000) i`,
		`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
			SELECT 'wrun_' || r, 's' || s, 'charge', 'pending', 1, 6, s, now(), now()
			FROM generate_series(1, 2) r, generate_series(1, CASE r WHEN 1 THEN 33000 ELSE 4 END) s`,
		`INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
			SELECT 'wrun_' || r, 'h' || h, 'default', 't' || r || '-' || h, false, 6, 21, now()
			FROM generate_series(1, 2) r, generate_series(1, CASE r WHEN 1 THEN 5000 ELSE 2 END) h`,
		`INSERT INTO waits (run_id, id, project, status, spec_version, resume_at, created_at, updated_at)
			SELECT 'wrun_' || r, 'w' || w, 'default', 'waiting', 6, now(), now(), now()
			FROM generate_series(1, 2) r, generate_series(1, CASE r WHEN 1 THEN 5000 ELSE 1000 END) w`,
		`INSERT INTO streams (project, name, run_id, chunks, created_at)
			SELECT 'default', 'wrun_' || r || '-' || s, 'wrun_' || r, 0, now()
			FROM generate_series(1, 2) r, generate_series(1, CASE r WHEN 1 THEN 5000 ELSE 5 END) s`,
		`INSERT INTO run_store (run_id, key, seq, value)
			SELECT 'wrun_' || r, 'k' || k, 1, '1' FROM generate_series(1, 2) r, generate_series(1, CASE r WHEN 1 THEN 1500 ELSE 6 END) k`,
		`INSERT INTO messages (id, project, topic, deployment_id, run_id, work, subject, content_type, body, expires_at, due_at)
			SELECT 'msg_' || r || '-' || m, 'default', '', 'shop', 'wrun_' || r, CASE WHEN m % 2 = 0 THEN 'step' ELSE '' END, 's' || m,
				'', '', now() + interval '1 d', now() + interval '1 h'
			FROM generate_series(1, 2) r, generate_series(1, CASE r WHEN 1 THEN 8000 ELSE 7 END) m`,
		`ANALYZE`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%v: %s", err, sql)
		}
	}
	l := New(pool, nil, time.Now)
	const more = MaxParts + 1
	for id, want := range map[entities.RunID]PartCounts{
		"wrun_1": {Steps: more, Hooks: more, Waits: more, Children: more, Streams: more, Values: more, Messages: 2 * more},
		"wrun_2": {Steps: 4, Hooks: 2, Waits: 1000, Children: 3, Streams: 5, Values: 6, Messages: 7},
		"wrun_9": {},
	} {
		run := entities.Run{ID: id, Project: entities.DefaultProject, DeploymentID: "shop"}
		got, err := l.CountParts(t.Context(), run)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", id, err, diff)
		}
		const most = 3000 // of about ten thousand rows at most
		if blocks := testdb.Blocks(t, pool, partsSQL, run.ID, run.Project, run.DeploymentID, more); blocks > most {
			t.Errorf("%s: %d blocks touched, want at most %d", id, blocks, most)
		} else {
			t.Logf("%s: %d blocks", id, blocks)
		}
	}
	other, err := l.CountParts(t.Context(), entities.Run{ID: "wrun_2", Project: "other", DeploymentID: "shop"})
	if err != nil || other.Streams != 0 || other.Messages != 3 {
		t.Errorf("another project: got %+v, %v", other, err)
	}
}
