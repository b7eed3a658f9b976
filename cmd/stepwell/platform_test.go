package main

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// platform runs servers in function mode as Lambda does: each handles one request at a time, and is frozen in between.
// Requests wait for a free server.
type platform struct {
	*httptest.Server
	db *pgx.Conn // the test's own connection

	free chan *instance

	mu   sync.Mutex
	open map[*instance]string // the paths of the requests in progress
	own  []http.Header        // of the servers' requests to themselves
}

// instance is a server of a platform.
type instance struct {
	child
	proxy  http.Handler
	killed atomic.Bool
}

// kill kills the server. It takes no more requests.
func (i *instance) kill(t *testing.T) {
	t.Helper()
	i.killed.Store(true)
	i.signal(t, syscall.SIGKILL)
}

const drainKey = "sk_drain_0123456789abcdef"

// newPlatform starts frozen servers, each with a pool of one connection.
func newPlatform(t *testing.T, dsn string, instances int) *platform {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["enable_seqscan"] = "off" // as for servers: see testdb.Indexed
	db, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	p := &platform{db: db, free: make(chan *instance, instances), open: map[*instance]string{}}
	p.Server = httptest.NewServer(http.HandlerFunc(p.route))
	t.Cleanup(p.CloseClientConnections)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("pool_max_conns", "1")
	u.RawQuery = query.Encode()
	for range instances {
		c := serveInChild(t, u.String(),
			"STEPWELL_ROLE=function", "STEPWELL_PUBLIC_URL="+p.URL, "STEPWELL_API_KEY="+drainKey, "STEPWELL_OPEN=false",
			"STEPWELL_SHUTDOWN_GRACE=10s", "STEPWELL_ALLOW_ADDRESSES=loopback")
		base, err := url.Parse(strings.TrimSuffix(c.base, "/sdk"))
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(base)
		proxy.FlushInterval = -1
		proxy.ErrorLog = log.New(io.Discard, "", 0) // tests kill servers
		i := &instance{child: c, proxy: proxy}
		i.signal(t, syscall.SIGSTOP)
		p.free <- i
	}
	return p
}

// route forwards a request to a free server, which is unfrozen for it.
func (p *platform) route(w http.ResponseWriter, r *http.Request) {
	i := <-p.free
	p.mu.Lock()
	p.open[i] = r.URL.Path
	if r.UserAgent() == "stepwell" {
		p.own = append(p.own, r.Header.Clone())
	}
	p.mu.Unlock()
	_ = i.Signal(syscall.SIGCONT)
	defer func() { // the proxy panics if the server dies during a response
		_ = i.Signal(syscall.SIGSTOP)
		p.mu.Lock()
		delete(p.open, i)
		p.mu.Unlock()
		if !i.killed.Load() {
			p.free <- i
		}
	}()
	// The request continues after the client has disconnected.
	i.proxy.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
}

// serving returns the servers that handle a request for the path.
func (p *platform) serving(path string) []*instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*instance
	for i, at := range p.open {
		if at == path {
			list = append(list, i)
		}
	}
	return list
}

// quiet waits until no request is in progress, and checks that the frozen servers hold nothing: all sessions are idle
// and belong to the pools, and no process is registered. Postgres may take a moment to notice a closed session.
func (p *platform) quiet(t *testing.T) {
	t.Helper()
	p.until(t, "no request is in progress", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.open) == 0
	})
	p.until(t, "nothing is open between requests", func() bool {
		return p.is(t, `
			SELECT count(*) <= $1 AND count(*) FILTER (WHERE state <> 'idle') = 0
				AND (SELECT count(*) FROM stepwell.processes) = 0
			FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'stepwell'`, cap(p.free))
	})
}

// until waits for a condition.
func (p *platform) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(waitLimit)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", waitLimit, what)
		}
	}
}

// is reports whether a query returns true.
func (p *platform) is(t *testing.T, query string, args ...any) bool {
	t.Helper()
	var yes bool
	if err := p.db.QueryRow(t.Context(), `SELECT coalesce((`+query+`), false)`, args...).Scan(&yes); err != nil {
		t.Fatal(err)
	}
	return yes
}

// events returns the types and correlation IDs of a run's events.
func (p *platform) events(t *testing.T, runID string) []string {
	t.Helper()
	rows, err := p.db.Query(t.Context(), `
		SELECT trim(type || ' ' || coalesce(correlation_id, '')) FROM stepwell.events WHERE run_id = $1 ORDER BY seq`, runID)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// count returns how often an event occurs.
func count(events []string, event string) int {
	return len(slices.DeleteFunc(slices.Clone(events), func(e string) bool { return e != event }))
}
