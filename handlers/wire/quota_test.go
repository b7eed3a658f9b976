package wire_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// limit sets the daily starts of the default project.
func (s *server) limit(t *testing.T, starts int64) {
	t.Helper()
	change := func(l admin.Limits) admin.Limits {
		l.DailyStarts = &starts
		return l
	}
	projects := access.NewProjects(s.pool, s.clock)
	check.Value(projects.Put(t.Context(), entities.DefaultProject, change))(t)
}

// TestStartQuota starts runs as the Workflow SDK does: with a run_created, a first message at the same time, and a
// run_started that makes up for a lost run_created. All of them are refused beyond the quota, until the day is over.
func TestStartQuota(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	c.limit(t, 1)
	under := c.startedRun(t)
	refused := func(what string, got answer) {
		t.Helper()
		if got.status != http.StatusTooManyRequests || !bytes.Contains(got.body, []byte(`"code":"start_quota"`)) ||
			got.header.Get("Retry-After") != "80297" { // 22:18:17
			t.Errorf("%s: got %d, Retry-After %s: %s", what, got.status, got.header.Get("Retry-After"), got.body)
		}
	}
	started := newID("wrun_")
	ofRun := func(id string) []string { return []string{"X-Vercel-Workflow-Run-Id", id} }
	create := func(id string) answer {
		return c.post(t, id, "run_created", []byte("devl[1]"), creation("workflow//./a//b")...)
	}
	start := func(id string) answer {
		return c.post(t, id, "run_started", []byte("devl[1]"), creation("workflow//./a//b")...)
	}
	refused("run_created", create(started))
	refused("run_started", start(started))
	refused("message", c.enqueue(t, flowTopic, "body", ofRun(started)...))
	refused("batch", c.sendBatch(t, flowTopic, multipartOf(part{body: "body"}))) // of a run that does not exist

	// The run under way goes on, and a repeated creation gets the answer that it always gets.
	c.must(t, under, "step_created", []byte("devl[1]"), field{"correlationId", "step_1"}, field{"stepName", "s"})
	c.mustEnqueue(t, flowTopic, "body", ofRun(under)...)
	if got := create(under); got.status != http.StatusConflict {
		t.Errorf("repeated: got %d %s", got.status, got.body)
	}
	if got := start(under); got.status != http.StatusOK {
		t.Errorf("started again: got %d %s", got.status, got.body)
	}

	c.advance(admin.Day(t0).Add(24 * time.Hour).Sub(t0))
	c.mustEnqueue(t, flowTopic, "body", ofRun(started)...)
	if got := start(started); got.status != http.StatusOK {
		t.Errorf("on the next day: got %d %s", got.status, got.body)
	}
}
