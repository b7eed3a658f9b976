package handlers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// BenchmarkReadLog measures what a server needs to answer with a log, page by page: by the Workflow SDK's protocol and by
// the API, each with its largest pages. The processor time is that of this process, without Postgres.
func BenchmarkReadLog(b *testing.B) {
	e, pool, _ := newEcho(b, "")
	for _, events := range []int{10, 100, 1000, 10_000} {
		run := longLog(b, pool, events)
		for _, by := range []struct {
			name, path string
			next       func(lastSeq int) string
		}{
			{"wire", "/sdk/v4/runs/%s/events?remoteRefBehavior=resolve&sortOrder=asc", func(seq int) string {
				return fmt.Sprintf("&cursor=eid:evnt_%026d", seq)
			}},
			{"v1", "/v1/runs/%s/events?limit=1000", func(seq int) string {
				return fmt.Sprintf("&cursor=%d", seq)
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", by.name, events), func(b *testing.B) {
				measure(b, func() {
					for seq := 0; seq < events; seq += 1000 {
						path := fmt.Sprintf(by.path, run)
						if seq > 0 {
							path += by.next(seq)
						}
						get(b, e, path, min(1000, events-seq)*100)
					}
				})
			})
		}
	}
}

// BenchmarkRunPage measures what a server needs for the page of a run: the run, and the first page of its log.
func BenchmarkRunPage(b *testing.B) {
	e, pool, _ := newEcho(b, "")
	for _, events := range []int{10, 100, 1000} {
		run := longLog(b, pool, events)
		b.Run(strconv.Itoa(events), func(b *testing.B) {
			measure(b, func() {
				get(b, e, fmt.Sprintf("/v1/runs/%s", run), 100, echo.HeaderAcceptEncoding, "gzip")
				get(b, e, fmt.Sprintf("/v1/runs/%s/events", run), 100, echo.HeaderAcceptEncoding, "gzip")
			})
		})
	}
}

// measure measures a function, and the processor time that it takes.
func measure(b *testing.B, do func()) {
	b.Helper()
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		do()
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
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

// processorTime returns how long processors have worked for this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
