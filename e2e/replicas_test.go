package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// replicas is two servers on one database, and an app for each SDK line. A balancer sends the apps' requests to the
// servers in turn. Each server reaches the apps through its own HTTP proxy, which counts its deliveries.
type replicas struct {
	servers   [2]*server
	delivered [2]atomic.Int64
	balancer  *tap
	apps      map[string]*app // by host
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{apps: map[string]*app{}}
	deployed := make(chan struct{}) // closed once the apps are running
	dsn := testdb.Empty(t)
	for i := range r.servers {
		counter := newProxy(t, "http://nowhere.test", func(http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				<-deployed
				r.delivered[i].Add(1)
				forwardTo(t, r.apps[req.Host].url()).ServeHTTP(w, req)
			}
		})
		r.servers[i] = newReplica(t, dsn, "HTTP_PROXY="+counter.URL)
		r.servers[i].proxied = true
	}
	var turn atomic.Int64
	either := newProxy(t, r.servers[0].url(), func(first http.Handler) http.HandlerFunc {
		both := [2]http.Handler{first, forwardTo(t, r.servers[1].url())}
		return func(w http.ResponseWriter, req *http.Request) {
			both[turn.Add(1)%2].ServeHTTP(w, req)
		}
	})
	r.balancer = newTap(t, either.URL)
	for _, l := range sdkLines {
		// Go does not use proxies for local addresses, so the apps have names that only the proxies can resolve.
		host := l.name + ".replicas.test"
		r.apps[host] = newApp(t, appOptions{line: l, stepwell: r.balancer.URL, deployment: l.named("replicated")})
		r.servers[0].register(t, l.named("replicated"), "http://"+host)
	}
	close(deployed)
	return r
}

// TestReplicas starts both servers on an empty database, and checks that both work.
func TestReplicas(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	r := newReplicas(t)
	t.Run("lines", func(t *testing.T) {
		for _, a := range r.apps {
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				r.everything(t, a)
			})
			if a.atLeast(beta55) {
				t.Run(a.name+" waits for returnValue", func(t *testing.T) {
					t.Parallel()
					r.returnValues(t, a)
				})
			}
		}
	})
	one, two := r.delivered[0].Load(), r.delivered[1].Load()
	t.Logf("the servers made %d and %d deliveries", one, two)
	if one == 0 || two == 0 {
		t.Errorf("the servers made %d and %d deliveries; want some from both", one, two)
	}
}

// everything writes and reads a stream and continues runs through both servers.
func (r *replicas) everything(t *testing.T, a *app) {
	lines := bufio.NewScanner(a.openStream(t, a.run(t, "stream", 20, 20, "letters"), 0))
	var fans, everything []string
	token := func(i int) string { return a.named(fmt.Sprint("replica ", i)) }
	for i := range 2 {
		fans = append(fans, a.run(t, "fanout", 20))
		everything = append(everything, a.run(t, "everything", token(i)))
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
		a.resume(t, token(i), i)
	}
	for _, id := range fans {
		a.want(t, id, 190)
		r.servers[0].wantThreads(t, id, "20 × add: created started completed", "run: created started completed")
		a.wantCounts(t, id, map[string]int{"add": 20})
	}
	for i, id := range everything {
		a.wantEverything(t, r.servers[1], id, i)
	}
}

// returnValues checks that one long poll for a run's status is answered as soon as the run ends, even if the run ends
// at the other server. A second request would come one second later.
func (r *replicas) returnValues(t *testing.T, a *app) {
	var runs []string
	answers := make(chan response, 4)
	token := func(i int) string { return a.named(fmt.Sprint("value ", i)) }
	for i := range cap(answers) {
		id := a.run(t, "hookHold", token(i))
		a.hook(t, id)
		runs = append(runs, id)
		go func() { answers <- request(t, http.MethodGet, a.url()+"/runs/"+id+"/value", nil) }()
	}
	for i, id := range runs {
		r.balancer.awaitRequest(t, id, "/status")
		a.resume(t, token(i), i)
	}
	for range runs {
		(<-answers).want(t, http.StatusOK)
	}
	for _, id := range runs {
		ended := r.servers[0].log(t, id).of("run_completed")[0].CreatedAt
		r.balancer.wantLongPoll(t, id, ended)
	}
}

// wantLongPoll checks that one request for the run's status, sent before the run ended, was held until then, and no
// longer.
func (tp *tap) wantLongPoll(t *testing.T, runID string, ended time.Time) {
	t.Helper()
	var asked []*call
	eventually(t, "the status of "+runID+" is answered", func() bool {
		asked = tp.of(runID, "/status")
		return len(asked) > 0
	})
	late := asked[0].at.Sub(ended)
	t.Logf("the answer came %s after the run's end", late)
	var run runEntity
	if err := wireCBOR.Unmarshal(asked[0].answer.Bytes(), &run); err != nil {
		t.Fatal(err)
	}
	held := asked[0].took
	if len(asked) != 1 || run.Status != "completed" || held < late || late > 5*time.Second {
		t.Errorf("%d requests for the status of %s; the first was held for %s, and answered %s, %s after the end",
			len(asked), runID, held, run.Status, late)
	}
	if wait := asked[0].URL.Query().Get("waitMs"); strings.TrimLeft(wait, "0123456789") != "" || wait == "" {
		t.Errorf("waitMs=%q", wait)
	}
}
