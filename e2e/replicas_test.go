package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// replicas are two servers on one database, and an app that does not know about it: its requests go to
// either of them in turn, and each reaches it through an HTTP proxy of its own, which counts.
type replicas struct {
	servers   [2]*server
	delivered [2]atomic.Int64
	app       *app
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	// An address that only the proxies know: Go does not use proxies for those of this machine.
	const appURL = "http://app.replicas.test"
	r := &replicas{}
	deployed := make(chan struct{}) // closed once there is an app
	dsn := testdb.Empty(t)
	for i := range r.servers {
		counter := newProxy(t, appURL, func(http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				r.delivered[i].Add(1)
				<-deployed
				forwardTo(t, r.app.url()).ServeHTTP(w, req)
			}
		})
		r.servers[i] = newReplica(t, dsn, "HTTP_PROXY="+counter.URL)
	}
	var turn atomic.Int64
	balancer := newProxy(t, r.servers[0].url(), func(first http.Handler) http.HandlerFunc {
		either := [2]http.Handler{first, forwardTo(t, r.servers[1].url())}
		return func(w http.ResponseWriter, req *http.Request) {
			either[turn.Add(1)%2].ServeHTTP(w, req)
		}
	})
	r.app = newApp(t, appOptions{stepwell: balancer.URL, deployment: "replicated"})
	close(deployed)
	r.servers[0].register(t, "replicated", appURL)
	return r
}

// TestReplicas begins with an empty database. A stream is written and read through either server.
func TestReplicas(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	r := newReplicas(t)
	a := r.app
	lines := bufio.NewScanner(a.openStream(t, a.run(t, "stream", 20, 20, "letters"), 0))
	var fans, everything []string
	for i := range 4 {
		fans = append(fans, a.run(t, "fanout", 20))
		everything = append(everything, a.run(t, "everything", fmt.Sprint("replica ", i)))
	}
	chunks := 0
	for lines.Scan() {
		chunks++
	}
	if chunks != 20 {
		t.Errorf("the stream had %d chunks, want 20", chunks)
	}
	for i, id := range everything {
		a.hook(t, id)
		a.resume(t, fmt.Sprint("replica ", i), i)
	}
	for _, id := range fans {
		a.want(t, id, 190)
		r.servers[0].wantThreads(t, id, "20 × add: created started completed", "run: created started completed")
		a.wantCounts(t, id, map[string]int{"add": 20})
	}
	for i, id := range everything {
		a.wantEverything(t, r.servers[1], id, i)
	}
	one, two := r.delivered[0].Load(), r.delivered[1].Load()
	t.Logf("the servers made %d and %d deliveries", one, two)
	if one == 0 || two == 0 {
		t.Errorf("the servers made %d and %d deliveries; want both to work", one, two)
	}
}
