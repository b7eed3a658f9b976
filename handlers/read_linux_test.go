package handlers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// BenchmarkReadLog measures the reading of a log, page by page, each as large as it can be: by the Workflow SDK's
// protocol, by the API, and by a process for itself.
func BenchmarkReadLog(b *testing.B) {
	e, pool, _ := newEcho(b, "")
	log := read.New(pool, pg.NewLocalHub(), time.Now)
	pages := func(path string, cursor func(seq int) string) func(entities.RunID, int) {
		return func(run entities.RunID, events int) {
			for seq := 0; seq < events; seq += 1000 {
				path := fmt.Sprintf(path, run)
				if seq > 0 {
					path += cursor(seq)
				}
				get(b, e, path, min(1000, events-seq)*100)
			}
		}
	}
	for _, events := range []int{10, 100, 1000, 10_000} {
		run := longLog(b, pool, events)
		for _, by := range []struct {
			name string
			read func(run entities.RunID, events int)
		}{
			{"wire", pages("/sdk/v4/runs/%s/events?remoteRefBehavior=resolve&sortOrder=asc", func(seq int) string {
				return fmt.Sprintf("&cursor=eid:evnt_%026d", seq)
			})},
			{"v1", pages("/v1/runs/%s/events?limit=1000", func(seq int) string { return fmt.Sprintf("&cursor=%d", seq) })},
			{"process", func(run entities.RunID, events int) {
				page := pg.Page{Limit: 1000}
				for seq := 0; seq < events; seq += 1000 {
					got, err := log.Prefix(b.Context(), run, int64(events), page)
					if err != nil || len(got.Events) != min(1000, events-seq) {
						b.Fatalf("got %d events, error %v", len(got.Events), err)
					}
					page.Cursor = read.EventCursor(got.Events[len(got.Events)-1])
				}
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", by.name, events), func(b *testing.B) {
				testdb.Measure(b, pool, 1, func() { by.read(run, events) })
			})
		}
	}
}

// BenchmarkRead measures the requests by which the dashboard and the Workflow SDK read runs, one by one.
func BenchmarkRead(b *testing.B) {
	e, pool, _ := newEcho(b, "")
	run, long := longLog(b, pool, 100), longLog(b, pool, 10_000)
	var short entities.RunID
	for range 200 {
		short = longLog(b, pool, 12)
	}
	for _, request := range []struct{ name, path string }{
		{"runs", "/v1/runs?limit=50"},
		{"run", "/v1/runs/%s?payloads=false"},
		{"timeline", "/v1/runs/%s/timeline?limit=500"},
		{"timeline/12", "/v1/runs/" + string(short) + "/timeline?limit=500"},
		{"timeline/10000", "/v1/runs/" + string(long) + "/timeline?limit=500"},
		{"log", "/v1/runs/%s/events"},
		{"log/12", "/v1/runs/" + string(short) + "/events"},
		{"wire-run", "/sdk/v2/runs/%s"},
		{"wire-steps", "/sdk/v2/runs/%s/steps"},
		{"wire-runs", "/sdk/v2/runs?limit=50"},
	} {
		path := request.path
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, run)
		}
		b.Run(request.name, func(b *testing.B) {
			testdb.Measure(b, pool, 1, func() { get(b, e, path, 100, echo.HeaderAcceptEncoding, "gzip") })
		})
	}
}

// get sends a request whose answer has at least so many bytes.
func get(b *testing.B, e http.Handler, path string, least int, header ...string) {
	b.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := discard{header: http.Header{}}
	if e.ServeHTTP(&w, r); w.status != http.StatusOK || w.bytes < least {
		b.Fatalf("%s: status %d, %d bytes", path, w.status, w.bytes)
	}
}

// longLog creates a run with a log of so many events, of steps as a workflow writes them, and returns its ID.
func longLog(b *testing.B, pool *pgxpool.Pool, events int) entities.RunID {
	b.Helper()
	hub := pg.NewLocalHub()
	q, err := queue.New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		b.Fatal(err)
	}
	log := eventlog.New(pool, hub, q, time.Now)
	run := entities.NewRunID(time.Now())
	if _, err := log.Append(b.Context(), entities.DefaultProject, eventlog.Request{
		RunID: run, Type: entities.EventRunCreated, SpecVersion: 5,
		Data: entities.EventData{DeploymentID: "dpl_1", WorkflowName: "orders"},
	}); err != nil {
		b.Fatal(err)
	}
	appendAll := func(requests []eventlog.Request) {
		outcomes, err := log.AppendBatch(b.Context(), entities.DefaultProject, run, requests)
		if err != nil {
			b.Fatal(err)
		}
		for _, o := range outcomes {
			if o.Err != nil {
				b.Fatal(o.Err)
			}
		}
	}
	data := entities.EventData{StepName: "step//./workflows/orders//charge"}
	for left := events - 1; left > 0; {
		var begin, end []eventlog.Request
		for i := range min(333, (left+2)/3) {
			at := time.Now()
			step := func(event entities.EventType, payload string) eventlog.Request {
				return eventlog.Request{
					Type: event, CorrelationID: fmt.Sprintf("step_%026d", left-i), SpecVersion: 5, OccurredAt: &at, Data: data,
					Payload: []byte(payload),
				}
			}
			begin = append(begin, step(entities.EventStepCreated, `devl[{"args":1,"closureVars":-1,"thisVal":-1},[2,3],1,2]`),
				step(entities.EventStepStarted, ""))
			end = append(end, step(entities.EventStepCompleted, `devl[3]`))
		}
		for _, requests := range [][]eventlog.Request{begin, end} {
			if requests = requests[:min(left, len(requests))]; len(requests) > 0 {
				appendAll(requests)
				left -= len(requests)
			}
		}
	}
	return run
}

// discard is a response of which only the status and the size are kept.
type discard struct {
	header        http.Header
	status, bytes int
}

func (d *discard) Header() http.Header    { return d.header }
func (d *discard) WriteHeader(status int) { d.status = status }
func (d *discard) Flush()                 {}

func (d *discard) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}
