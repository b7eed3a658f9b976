package rest_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// copied is an API that reads from a replica. The replica is another database here, with runs of its own, so that it is
// seen where an answer comes from.
type copied struct {
	api

	there   api
	replica *cluster.Replica
}

// newCopied returns an API whose replica has just been looked at. Options change the pool of the replica.
func newCopied(t *testing.T, options ...func(*pgxpool.Config)) *copied {
	t.Helper()
	c := &copied{there: newAPI(t)}
	c.api = newAPI(t, func(o *handlers.Options) {
		pool := testdb.Connect(t, c.there.pool.Config().ConnString(), options...)
		schema := func(ctx context.Context) error { return migrations.CheckPool(ctx, pool, migrations.DefaultSchema) }
		c.replica = cluster.NewReplica(pool, o.Pool, schema, time.Now,
			slog.New(slog.NewTextHandler(t.Output(), nil)))
		o.Replica = c.replica
	})
	for _, pool := range []*pgxpool.Pool{c.pool, c.there.pool} {
		testdb.Exec(t, pool, `UPDATE feed_epochs SET id = 'same' WHERE number > 0`)
	}
	c.beat(t, 0)
	return c
}

// beat gives the replica a heartbeat of some time ago, and looks at it.
func (c *copied) beat(t *testing.T, ago time.Duration) {
	t.Helper()
	testdb.Exec(t, c.there.pool, `DELETE FROM processes`)
	testdb.Exec(t, c.there.pool, `
		INSERT INTO processes (id, host, session_key, beat_at) VALUES ('p', 'h', 1, now() - $1::interval)`, ago)
	c.replica.Look(t.Context())
}

// end makes a run with a step that has ended.
func (a api) end(t *testing.T) entities.RunID {
	t.Helper()
	id := a.sdkRun(t, "order")
	a.event(t, id, entities.EventRunStarted)
	a.event(t, id, entities.EventRunFailed, with(`{"message":"no"}`))
	return id
}

// lateRoutes are the requests that the replica answers, those about a run for one that has ended there.
var lateRoutes = []string{
	"/v1/runs", "/v1/runs?include=reason", "/v1/runs?need=waiting", "/v1/runs?orderBy=need", "/v1/runs/count",
	"/v1/runs/count?need=stuck", "/v1/search?text=order", "/v1/hooks", "/v1/waits", "/v1/archive/runs", "/v1/stats/runs",
	"/v1/stats/steps", "/v1/stats/failures", "/v1/failures", "/v1/workflows", "/v1/signals", "/v1/messages",
	"/v1/messages/count",
	"/v1/runs/ID/why", "/v1/runs/ID/counts", "/v1/runs/ID/children", "/v1/runs/ID/steps", "/v1/runs/ID/hooks",
	"/v1/runs/ID/waits", "/v1/runs/ID/events", "/v1/runs/ID/timeline", "/v1/runs/ID/timeline/names",
}

// TestLateReadsAreTheReplicasAlone: reads that may be late ask the primary for nothing.
func TestLateReadsAreTheReplicasAlone(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	open, ended := c.there.sdkRun(t, "order"), c.there.end(t)
	for _, path := range lateRoutes {
		before := c.pool.Stat().AcquireCount()
		answer := c.serve(http.MethodGet, strings.Replace(path, "ID", string(ended), 1), "")
		if lag := answer.Header().Get(incoming.ReplicaLag); answer.Code != http.StatusOK || lag == "" {
			t.Errorf("%s: %d, lag %q: %s", path, answer.Code, lag, answer.Body)
		}
		if asked := c.pool.Stat().AcquireCount() - before; asked > 0 {
			t.Errorf("%s asked the primary %d times", path, asked)
		}
		route, _, _ := strings.Cut(strings.Replace(path, "ID", "{id}", 1), "?")
		op, _ := openAPI().find("get", route)
		if _, described := op.at(op.location, "responses", "200", "headers", incoming.ReplicaLag); !described {
			t.Errorf("the document does not say that %s may be late", route)
		}
	}
	check.Equal(t, "runs of the list", ids(c.all(t, "/v1/runs", "10")), []entities.RunID{ended, open})
	check.Equal(t, "failures of the replica", c.replica.Answers(cluster.FailedThere), int64(0))
}

// TestReadsOfOneRunAreThePrimarys: a run that has been started is found at once, and one that is open in the replica may
// have gone on.
func TestReadsOfOneRunAreThePrimarys(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	started := c.sdkRun(t, "order")
	for _, path := range lateRoutes {
		if !strings.Contains(path, "ID") {
			continue
		}
		path = strings.Replace(path, "ID", string(started), 1)
		answer := c.serve(http.MethodGet, path, "")
		if lag := answer.Header().Get(incoming.ReplicaLag); answer.Code != http.StatusOK || lag != "" {
			t.Errorf("%s: %d, lag %q: %s", path, answer.Code, lag, answer.Body)
		}
	}
	check.Equal(t, "status of the run", c.get(t, "/v1/runs/"+string(started))["status"], any("pending"))
	open, ended := c.there.sdkRun(t, "order"), c.there.end(t)
	c.send(t, http.MethodGet, "/v1/runs/"+string(open)+"/events", "", http.StatusNotFound)
	c.send(t, http.MethodGet, "/v1/runs/"+string(ended), "", http.StatusNotFound)
}

// TestReplicaThatMustNotBeReadFrom: lists are the primary's, and the readiness says why.
func TestReplicaThatMustNotBeReadFrom(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*testing.T, *copied){
		"too far behind": func(t *testing.T, c *copied) { c.beat(t, cluster.MaxReplicaLag+time.Second) },
		"of another database": func(t *testing.T, c *copied) {
			testdb.Exec(t, c.there.pool, `UPDATE feed_epochs SET id = 'other' WHERE number > 0`)
		},
		"another schema": func(t *testing.T, c *copied) {
			testdb.Exec(t, c.there.pool, `DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`)
		},
		"does not answer": func(t *testing.T, c *copied) { testdb.Exec(t, c.there.pool, `DROP TABLE processes`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCopied(t)
			here := c.sdkRun(t, "order")
			c.there.sdkRun(t, "order")
			check.Equal(t, "readiness", c.serve(http.MethodGet, "/readyz", "").Body.String(), `{"status":"ok"}`+"\n")
			spoil(t, c)
			c.replica.Look(t.Context())
			answer := c.serve(http.MethodGet, "/v1/runs", "")
			if answer.Header().Get(incoming.ReplicaLag) != "" || !strings.Contains(answer.Body.String(), string(here)) {
				t.Errorf("the list is %s", answer.Body)
			}
			if ready := c.serve(http.MethodGet, "/readyz", ""); ready.Code != http.StatusOK || !strings.Contains(ready.Body.String(), name) {
				t.Errorf("ready: %d %s", ready.Code, ready.Body)
			}
			check.Equal(t, "answers of the primary", c.replica.Answers(cluster.NotThere), int64(1))
		})
	}
}

// failing makes the statements of a pool fail that read runs.
type failing struct{}

func (failing) TraceQueryStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "FROM runs") {
		_ = conn.PgConn().Conn().Close()
	}
	return ctx
}

func (failing) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestFailedReadIsRepeatedAtThePrimary: a replica that dies during a read costs nobody an answer, and is not asked again
// before it was looked at.
func TestFailedReadIsRepeatedAtThePrimary(t *testing.T) {
	t.Parallel()
	c := newCopied(t, func(p *pgxpool.Config) { p.ConnConfig.Tracer = failing{} })
	here := c.sdkRun(t, "order")
	for range 2 {
		check.Equal(t, "runs", ids(c.all(t, "/v1/runs", "10")), []entities.RunID{here})
	}
	check.Equal(t, "answers after a failure", c.replica.Answers(cluster.FailedThere), int64(1))
	check.Equal(t, "answers without", c.replica.Answers(cluster.NotThere), int64(1))
	c.replica.Look(t.Context())
	check.Equal(t, "problem of the replica", c.replica.Problem(), nil)
	c.send(t, http.MethodGet, "/v1/runs?status=none", "", http.StatusBadRequest)
}
