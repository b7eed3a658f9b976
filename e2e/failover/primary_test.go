package failover

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestReadOnlyNodeIsLeft demotes the node that a server is connected to, without cutting its connections, after another
// one was promoted.
func TestReadOnlyNodeIsLeft(t *testing.T) {
	t.Parallel()
	a := newNode(t, nil)
	b := a.newStandby()
	a.awaitStandby("async")
	s := startServer(t, databaseURL(t, "", a, b))
	a.awaitWorker()
	s.mustStartRun("before", time.Second)

	a.setReadOnly(true)
	b.promote()
	demoted := time.Now()
	id := s.mustStartRun("after", time.Second)
	if took := time.Since(demoted); took > time.Minute { // a second or two, but for busy machines
		t.Errorf("the server left the read-only node after %s", took)
	}
	if !query[bool](b, `SELECT EXISTS (SELECT FROM stepwell.runs WHERE id = $1)`, id) {
		t.Errorf("run %s is not on the new primary", id)
	}
	eventually(t, "no session is left on the read-only node", func() bool { return a.sessions() == 0 })
	s.awaitReadiness(http.StatusOK)
}

// TestServerStartsOnTheWritableNode gives a server a list of nodes whose first is a standby.
func TestServerStartsOnTheWritableNode(t *testing.T) {
	t.Parallel()
	a := newNode(t, nil)
	b := a.newStandby()
	for _, parameters := range []string{"", "&target_session_attrs=read-write", "&target_session_attrs=primary"} {
		s := startServer(t, databaseURL(t, parameters, b, a))
		s.mustStartRun("run"+parameters, time.Second)
		// A session that finds out that the node is a standby ends at once, but may just have begun.
		eventually(t, "the server has no session on the standby", func() bool { return b.sessions() == 0 })
		s.Stop(t)
	}
}

// TestStalePrimaryIsRefused lets a former primary come back after another node was promoted. It accepts writes, but the
// server must not write to it, also when the new primary is away.
func TestStalePrimaryIsRefused(t *testing.T) {
	t.Parallel()
	a := newNode(t, nil)
	b := a.newStandby()
	a.awaitStandby("async")
	address := databaseURL(t, "", a, b)
	s := startServer(t, address)
	a.awaitWorker()
	s.mustStartRun("first", time.Second)
	a.kill()
	b.promote()
	s.mustStartRun("second", time.Second)

	a.start() // as a primary, on the old timeline
	before := query[int](a, `SELECT count(*) FROM stepwell.runs`)
	b.cut()
	s.mustStartRun("third", time.Second)
	b.stop()
	refusedByServer := false
	reason := "a former primary: its timeline is 1, that of the newest primary 2"
	eventually(t, "the server refuses the former primary", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, got := s.startRun(ctx, "fourth")
		refusedByServer = refusedByServer || got.Status == http.StatusServiceUnavailable
		return refusedByServer && strings.Contains(s.Output(), reason)
	})
	s.awaitReadiness(http.StatusServiceUnavailable)
	b.start()
	s.mustStartRun("fourth", time.Second)

	// A server that starts now sees both, and takes the newer one.
	other := startServer(t, address)
	other.mustStartRun("fifth", time.Second)
	if after := query[int](a, `SELECT count(*) FROM stepwell.runs`); after != before {
		t.Errorf("%d runs were written to the former primary", after-before)
	}
	if n := query[int](b, `SELECT count(*) FROM stepwell.runs`); n != 5 {
		t.Errorf("the new primary has %d runs, want 5", n)
	}
}

// sessions is the number of the server's sessions on the node.
func (n *node) sessions() int {
	n.t.Helper()
	return query[int](n, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stepwell'`)
}
