package handlers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// BenchmarkReadLog measures what a server needs to answer with a log of 10,000 events, page by page: by the Workflow
// SDK's protocol and by the API, each with its largest pages. The processor time is that of this process, without
// Postgres.
func BenchmarkReadLog(b *testing.B) {
	e, pool, _ := newEcho(b, "")
	run := longLog(b, pool)
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
		b.Run(by.name, func(b *testing.B) {
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				for seq := 0; seq < benchmarkEvents; seq += 1000 {
					path := fmt.Sprintf(by.path, run)
					if seq > 0 {
						path += by.next(seq)
					}
					w := discard{header: http.Header{}}
					e.ServeHTTP(&w, httptest.NewRequest(http.MethodGet, path, nil))
					if w.status != http.StatusOK || w.bytes < 100_000 {
						b.Fatalf("%s: status %d, %d bytes", path, w.status, w.bytes)
					}
				}
			}
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// benchmarkEvents is about how many events the log has.
const benchmarkEvents = 10_000

// longLog creates a run with a log of steps, as a workflow writes them, and returns its ID.
func longLog(b *testing.B, pool *pgxpool.Pool) entities.RunID {
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
	const atOnce = 333
	for first := 1; first < benchmarkEvents-3*atOnce; first += 3 * atOnce {
		var begin, end []eventlog.Request
		for i := range atOnce {
			at := time.Now()
			step := func(event entities.EventType, payload string) eventlog.Request {
				return eventlog.Request{
					Type: event, CorrelationID: fmt.Sprintf("step_%026d", first+i), SpecVersion: 5, OccurredAt: &at, Data: data,
					Payload: []byte(payload),
				}
			}
			begin = append(begin, step(entities.EventStepCreated, `devl[{"args":1,"closureVars":-1,"thisVal":-1},[2,3],1,2]`),
				step(entities.EventStepStarted, ""))
			end = append(end, step(entities.EventStepCompleted, `devl[3]`))
		}
		appendAll(begin)
		appendAll(end)
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
