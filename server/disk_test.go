package server

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// TestFullDiskMakesServerUnready: after single statements and batches, and only for a while.
func TestFullDiskMakesServerUnready(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), RoleAPI)
	mustStart(t, s)
	base := "http://" + s.addr
	var shift atomic.Int64
	s.disk.now = func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
	ready := func() (int, string) {
		got := servertest.Request(t, http.MethodGet, base+"/readyz", "")
		body, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		return got.StatusCode, string(body)
	}
	if _, err := s.pool.Exec(t.Context(), `
		CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
		CREATE TRIGGER full_disk BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION full_disk();
		CREATE TRIGGER full_disk BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION full_disk()`); err != nil {
		t.Fatal(err)
	}
	if code, body := ready(); code != http.StatusOK {
		t.Fatalf("before: got %d %s", code, body)
	}
	for name, write := range map[string]func() int{
		"statement": func() int {
			return servertest.Request(t, http.MethodPost, base+"/sdk/queues-proxy/api/v3/topic/__wkf_step_a", "x", "Vqs-Deployment-Id", "shop").StatusCode
		},
		"batch": func() int {
			var b pgx.Batch
			b.Queue(`SELECT 1`)
			b.Queue(`INSERT INTO runs (id) VALUES ('x')`)
			if s.pool.SendBatch(t.Context(), &b).Close() == nil {
				t.Error("the trigger does not fire")
			}
			return http.StatusServiceUnavailable
		},
	} {
		if code := write(); code != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d, want a failure", name, code)
		}
		if code, body := ready(); code != http.StatusServiceUnavailable || !strings.Contains(body, "disk is full") {
			t.Errorf("%s: got %d %s, want 503", name, code, body)
		}
		shift.Add(int64(diskFullFor))
		if code, body := ready(); code != http.StatusOK {
			t.Errorf("%s, later: got %d %s", name, code, body)
		}
	}
	// Other errors do not make the server unready.
	if _, err := s.pool.Exec(t.Context(), `SELECT 1 / 0`); err == nil {
		t.Error("1 / 0 succeeds")
	}
	if code, body := ready(); code != http.StatusOK {
		t.Errorf("after another error: got %d %s", code, body)
	}
}

// TestStatementsOfTheServerHaveDeadlines, whatever else is installed in its pool.
func TestStatementsOfTheServerHaveDeadlines(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), RoleAPI)
	mustStart(t, s)
	tracer := s.pool.Config().ConnConfig.Tracer
	ctx := tracer.TraceQueryStart(t.Context(), nil, pgx.TraceQueryStartData{})
	defer tracer.TraceQueryEnd(ctx, nil, pgx.TraceQueryEndData{})
	if _, ok := ctx.Deadline(); !ok {
		t.Error("a statement has no deadline")
	}
}
