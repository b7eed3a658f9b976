package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const traceDeployment = "bench-trace"

// exchange is a request and its answer, as seen by a proxy between app and server. Times are in milliseconds.
type exchange struct {
	From   string  `json:"from"` // the sender: the app, or the delivering server
	Method string  `json:"method"`
	Path   string  `json:"path"`
	Status int     `json:"status"`
	At     float64 `json:"at"` // since the first request
	Took   float64 `json:"took"`
}

const (
	fromApp    = "app"
	fromServer = "server"
)

func (e exchange) end() float64 { return e.At + e.Took }

// recorder records the traffic between app and server.
type recorder struct {
	mu      sync.Mutex
	began   time.Time
	all     []exchange
	servers []*http.Server
}

// between starts a proxy for the target and returns its URL.
func (r *recorder) between(ctx context.Context, from, target string) (string, error) {
	to, err := url.Parse(target)
	if err != nil {
		return "", fmt.Errorf("record: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("record: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.Proxy, transport.DisableCompression = 1024, nil, true
	forward := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host
		},
	}
	s := &http.Server{ReadHeaderTimeout: timeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		at := time.Now()
		status := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		forward.ServeHTTP(status, q)
		r.add(at, exchange{From: from, Method: q.Method, Path: normalizePath(q.URL.Path), Status: status.status,
			Took: milliseconds(time.Since(at))})
	})}
	r.servers = append(r.servers, s)
	go func() { _ = s.Serve(l) }() // ends with close
	return "http://" + l.Addr().String(), nil
}

// statusWriter records the status.
type statusWriter struct {
	http.ResponseWriter

	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap gives handlers access to Flush.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (r *recorder) add(at time.Time, e exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() || at.Before(r.began) {
		shift := milliseconds(r.began.Sub(at)) // for requests that started later but ended earlier
		for i := range r.all {
			r.all[i].At += shift
		}
		r.began = at
	}
	e.At = milliseconds(at.Sub(r.began))
	r.all = append(r.all, e)
}

// take returns the exchanges recorded since the last call, in the order of their starts.
func (r *recorder) take() []exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all, r.began = nil, time.Time{}
	slices.SortStableFunc(all, func(a, b exchange) int { return cmp.Compare(a.At, b.At) })
	return all
}

func (r *recorder) close() {
	for _, s := range r.servers {
		_ = s.Close()
	}
}

// The variable parts of paths: IDs of the SDK, names of workflows and steps in topics, and receipt handles.
var (
	someID    = regexp.MustCompile(`\b([a-z]+)_[0-9A-HJKMNP-TV-Z]{26}\b`)
	someName  = regexp.MustCompile(`/__wkf_([a-z]+)_[^/]+`)
	someLease = regexp.MustCompile(`/lease/[^/]+`)
)

// normalizePath replaces the variable parts of a path, so that paths are short and the same for all runs.
func normalizePath(path string) string {
	path = someID.ReplaceAllString(path, "{$1}")
	path = someName.ReplaceAllString(path, "/__wkf_${1}_{name}")
	return someLease.ReplaceAllString(path, "/lease/{receipt}")
}

// shares divides the time of a run, in milliseconds.
type shares struct {
	Server float64 // a request of the app is in flight
	App    float64 // a delivery is in flight, but no request of the app
	Queue  float64 // neither: a message waits for its delivery
}

// sharesUntil divides the time from the first request until the given time.
func sharesUntil(all []exchange, until float64) shares {
	times := []float64{0, until}
	for _, e := range all {
		times = append(times, e.At, e.end())
	}
	slices.Sort(times)
	var s shares
	for i, from := range times[:len(times)-1] {
		to := min(times[i+1], until)
		if from < 0 || to <= from {
			continue
		}
		requested, called := false, false
		for _, e := range all {
			if e.At <= from && e.end() >= to {
				requested = requested || e.From == fromApp
				called = called || e.From == fromServer
			}
		}
		switch {
		case requested:
			s.Server += to - from
		case called:
			s.App += to - from
		default:
			s.Queue += to - from
		}
	}
	return s
}

// ended returns the time at which the app had the answer that the run has ended.
func ended(all []exchange) (float64, bool) {
	i := slices.IndexFunc(all, func(e exchange) bool {
		return e.From == fromApp && strings.HasSuffix(e.Path, "/status") && e.Status/100 == 2
	})
	if i < 0 {
		return 0, false
	}
	return all[i].end(), true
}

// gaps returns, for each exchange, the time since the app last received an answer or a message. Before a request of the
// app, that is the app's own time.
func gaps(all []exchange) []float64 {
	before := make([]float64, len(all))
	for i, e := range all {
		received := 0.0
		for j, other := range all {
			at := other.end()
			if other.From == fromServer {
				at = other.At
			}
			if j != i && at <= e.At {
				received = max(received, at)
			}
		}
		before[i] = e.At - received
	}
	return before
}

// traceApp traces runs of a separate app, one at a time, with a recorder between app and server.
func (b *bench) traceApp(ctx context.Context, dir string, server *client) (rows []row, err error) {
	var r recorder
	defer r.close()
	serverProxy, err := r.between(ctx, fromApp, server.url)
	if err != nil {
		return nil, err
	}
	a, err := startApp(ctx, dir, "traced app", stepwellEnvironment(serverProxy, traceDeployment)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	appProxy, err := r.between(ctx, fromServer, a.url)
	if err != nil {
		return nil, err
	}
	if err := server.deploy(ctx, traceDeployment, appProxy); err != nil {
		return nil, err
	}
	if _, err := a.measure(ctx, "runs", measurement{Workflow: "three", Times: b.sdk.warm, InFlight: 1}); err != nil {
		return nil, err
	}
	for _, workflow := range []string{"one", "three", "ten", "wide"} {
		one, err := traceRuns(ctx, a, &r, workflow, b.sdk.traced)
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		rows = append(rows, one)
	}
	return rows, nil
}

// kinds sums up the app's requests by method and path, with refused requests separately, in order of first occurrence.
func kinds(all []exchange) []statement {
	var sums []statement
	at := map[string]int{}
	for _, e := range all {
		if e.From != fromApp {
			continue
		}
		what := e.Method + " " + e.Path
		if e.Status/100 != 2 {
			what += " → " + strconv.Itoa(e.Status)
		}
		i, ok := at[what]
		if !ok {
			i = len(sums)
			at[what] = i
			sums = append(sums, statement{Query: what})
		}
		sums[i].Calls++
		sums[i].Took += e.Took
	}
	return sums
}

// tracePause is long enough for the requests after the end of a run.
const tracePause = 200 * time.Millisecond

// traceRuns traces a number of runs, sums up their shares, and keeps the trace of the run with the median duration.
func traceRuns(ctx context.Context, a *app, r *recorder, workflow string, times int) (row, error) {
	of := row{Case: "trace", Variant: workflow, Counts: map[string]float64{}}
	got := newSample()
	type traced struct {
		took float64
		all  []exchange
	}
	var runs []traced
	for range times {
		time.Sleep(tracePause)
		r.take()
		m, err := a.measure(ctx, "runs", measurement{Workflow: workflow, Times: 1, InFlight: 1})
		if err != nil {
			return of, err
		}
		time.Sleep(tracePause)
		all := r.take()
		until, ok := ended(all)
		if !ok {
			return of, fmt.Errorf("no end of a run of %s among %d requests", workflow, len(all))
		}
		s := sharesUntil(all, until)
		of.Counts["server"] += s.Server
		of.Counts["app"] += s.App
		of.Counts["queue"] += s.Queue
		for _, e := range all {
			of.Counts["requests of the "+e.From]++
		}
		runs = append(runs, traced{until, all})
		got.Latency.record(time.Duration(m.Latencies[0] * float64(time.Millisecond)))
	}
	got.Ops = int64(times)
	slices.SortFunc(runs, func(a, b traced) int { return cmp.Compare(a.took, b.took) })
	of = of.with(got)
	of.Trace = runs[len(runs)/2].all
	var every []exchange
	for _, run := range runs {
		every = append(every, run.all...)
	}
	of.Profile = kinds(every)
	say("traced %s: p50 %.1f ms", workflow, of.Latency.P50)
	return of, nil
}
