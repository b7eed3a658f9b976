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

// exchange is a request and its answer, as somebody between app and server sees them. Times are in milliseconds.
type exchange struct {
	From   string  `json:"from"` // who asked: the app, or the server that delivers
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

// recorder stands between app and server and notes what they say.
type recorder struct {
	mu      sync.Mutex
	began   time.Time
	all     []exchange
	servers []*http.Server
}

// between passes requests on to the target, and returns where it takes them.
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
	s := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		at := time.Now()
		status := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		forward.ServeHTTP(status, q)
		r.add(at, exchange{From: from, Method: q.Method, Path: tidyPath(q.URL.Path), Status: status.status,
			Took: milliseconds(time.Since(at))})
	})}
	r.servers = append(r.servers, s)
	go func() { _ = s.Serve(l) }() // ends by Close
	return "http://" + l.Addr().String(), nil
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter

	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets who answers flush.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (r *recorder) add(at time.Time, e exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() || at.Before(r.began) {
		shift := milliseconds(r.began.Sub(at)) // of those that began later and ended sooner
		for i := range r.all {
			r.all[i].At += shift
		}
		r.began = at
	}
	e.At = milliseconds(at.Sub(r.began))
	r.all = append(r.all, e)
}

// take returns what was recorded since it was last asked, in the order in which it began.
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

// An ID of the SDK, the name of what a message is for, and what it is acknowledged with.
var (
	someID    = regexp.MustCompile(`\b([a-z]+)_[0-9A-HJKMNP-TV-Z]{26}\b`)
	someName  = regexp.MustCompile(`/__wkf_([a-z]+)_[^/]+`)
	someLease = regexp.MustCompile(`/lease/[^/]+`)
)

// tidyPath makes a path short enough for a table, and the same for all runs.
func tidyPath(path string) string {
	path = someID.ReplaceAllString(path, "{$1}")
	path = someName.ReplaceAllString(path, "/__wkf_${1}_{name}")
	return someLease.ReplaceAllString(path, "/lease/{receipt}")
}

// shares are whose turn it was, in milliseconds.
type shares struct {
	Server float64 // that had requests of the app's to answer
	App    float64 // that had something in its hands, and asked nothing
	Queue  float64 // in which neither was, and a message was on its way
}

// sharesUntil divides the time from the first request until then.
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
		asked, called := false, false
		for _, e := range all {
			if e.At <= from && e.end() >= to {
				asked = asked || e.From == fromApp
				called = called || e.From == fromServer
			}
		}
		switch {
		case asked:
			s.Server += to - from
		case called:
			s.App += to - from
		default:
			s.Queue += to - from
		}
	}
	return s
}

// ended is when the app had the answer to what ends a run.
func ended(all []exchange) (float64, bool) {
	i := slices.IndexFunc(all, func(e exchange) bool {
		return e.From == fromApp && strings.HasSuffix(e.Path, "/run_completed") && e.Status/100 == 2
	})
	if i < 0 {
		return 0, false
	}
	return all[i].end(), true
}

// gaps are how long before each exchange the app heard something last: an answer, or a message delivered to it. Of what
// the app asks that is time of its own.
func gaps(all []exchange) []float64 {
	before := make([]float64, len(all))
	for i, e := range all {
		heard := 0.0
		for j, other := range all {
			at := other.end()
			if other.From == fromServer {
				at = other.At
			}
			if j != i && at <= e.At {
				heard = max(heard, at)
			}
		}
		before[i] = e.At - heard
	}
	return before
}

// traceApp runs an app of its own on the server, with somebody in between who notes what they say, and one run at a
// time.
func (b *bench) traceApp(ctx context.Context, dir string, server *client) (rows []row, err error) {
	var r recorder
	defer r.close()
	way, err := r.between(ctx, fromApp, server.url)
	if err != nil {
		return nil, err
	}
	a, err := startApp(ctx, dir, "traced app", stepwellEnvironment(way, traceDeployment)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	back, err := r.between(ctx, fromServer, a.url)
	if err != nil {
		return nil, err
	}
	if err := server.deploy(ctx, traceDeployment, back); err != nil {
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

// kinds sums up the requests of the app by what they are, and apart those that were refused, in the order in which they
// come first. Calls and times are those of all together.
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

// aMoment is enough for what comes after the end of a run.
const aMoment = 200 * time.Millisecond

// traceRuns sums up whose turn it was in so many runs, and keeps the trace of one of them, which is the middle one by
// the time it took.
func traceRuns(ctx context.Context, a *app, r *recorder, workflow string, times int) (row, error) {
	of := row{Case: "trace", Variant: workflow, Counts: map[string]float64{}}
	got := newSample()
	type traced struct {
		took float64
		all  []exchange
	}
	var runs []traced
	for range times {
		time.Sleep(aMoment)
		r.take()
		m, err := a.measure(ctx, "runs", measurement{Workflow: workflow, Times: 1, InFlight: 1})
		if err != nil {
			return of, err
		}
		time.Sleep(aMoment)
		all := r.take()
		until, ok := ended(all)
		if !ok {
			return of, fmt.Errorf("saw no end of a run of %s among %d requests", workflow, len(all))
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
