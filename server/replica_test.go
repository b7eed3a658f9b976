package server

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// TestReplicaIsOnlyReadFrom: what reads from a replica can write nothing, also if the address is that of the primary.
func TestReplicaIsOnlyReadFrom(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := newServer(t, dsn, RoleAll)
	s.ReadDatabaseURL = dsn
	mustStart(t, s)
	testdb.Eventually(t, "lists say how late they are", func() bool {
		return servertest.Request(t, http.MethodGet, "http://"+s.addr+"/v1/runs", "").Header.Get(incoming.ReplicaLag) != ""
	})
	_, err := s.replicaPool.Exec(t.Context(), `DELETE FROM runs`)
	const readOnly = "25006"
	if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != readOnly {
		t.Errorf("a write on the replica's connections: %v", err)
	}
}

// TestReplicaThatCannotWork: a server in function mode, or with an address that is none, does not start.
func TestReplicaThatCannotWork(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	for role, url := range map[Role]string{RoleFunction: dsn, RoleAPI: "postgres://%"} {
		s := newServer(t, dsn, role)
		s.ReadDatabaseURL = url
		if err := s.Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "STEPWELL_READ_DATABASE_URL: ") {
			t.Errorf("role %s: got %v", role, err)
		}
	}
	s := newServer(t, dsn, RoleWorker) // with the environment of the others
	s.ReadDatabaseURL = dsn
	mustStart(t, s)
	if s.replica != nil {
		t.Error("a worker, which answers no reads, has a replica")
	}
}
