package telemetry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// fakePoolStat is an idle pool.
type fakePoolStat struct{}

func (fakePoolStat) AcquiredConns() int32           { return 0 }
func (fakePoolStat) IdleConns() int32               { return 1 }
func (fakePoolStat) ConstructingConns() int32       { return 0 }
func (fakePoolStat) MaxConns() int32                { return 20 }
func (fakePoolStat) AcquireCount() int64            { return 7 }
func (fakePoolStat) AcquireDuration() time.Duration { return 1500 * time.Millisecond }
func (fakePoolStat) EmptyAcquireCount() int64       { return 1 }
func (fakePoolStat) CanceledAcquireCount() int64    { return 0 }

// fakeReplica is a replica that is too far behind.
type fakeReplica struct{}

func (fakeReplica) Lag() time.Duration             { return time.Minute }
func (fakeReplica) Problem() error                 { return errors.New("too far behind") }
func (fakeReplica) Answers(a cluster.Answer) int64 { return int64(a) }

// clock is a fake clock.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time           { return time.Unix(0, c.at.Load()) }
func (c *clock) advance(by time.Duration) { c.at.Add(int64(by)) }

// newTelemetry returns a telemetry with fake sources, which the options may replace.
func newTelemetry(options ...func(*Options)) *Telemetry {
	o := Options{
		Slots: 100,
		Gauges: func(context.Context) (queue.Gauges, error) {
			return queue.Gauges{BlockedRuns: map[string]int64{"diverged": 1}, OpenRuns: map[entities.RunStatus]int64{entities.RunPending: 0, entities.RunRunning: 3}}, nil
		},
		Pool:       func() PoolStat { return fakePoolStat{} },
		ShareWaits: func() (int64, time.Duration) { return 3, 2500 * time.Millisecond }, Now: (&clock{}).now, Commits: fakeCommits{}, Replica: fakeReplica{},
		Build:           Build{"v1", "3f20b23", "go1.26"},
		CertificateEnds: func() time.Time { return time.Unix(1_800_000_000, 0) }, ArchiveFailures: func() int64 { return 2 },
	}
	for _, change := range options {
		change(&o)
	}
	return New(o)
}

// busyTelemetry returns a telemetry that has observed one append, one delivery and one request.
func busyTelemetry(t *testing.T) *Telemetry {
	t.Helper()
	o := newTelemetry()
	_, appended := o.Append(t.Context(), "wrun_1", []eventlog.Request{{Type: entities.EventRunCompleted}})
	appended(eventlog.Appended{
		Events: []entities.Event{{RunID: "wrun_1", Type: entities.EventRunCompleted}}, Run: &entities.Run{ID: "wrun_1"},
	})
	_, delivered := o.Deliver(t.Context(), queue.Delivery{Work: message.WorkRun}, time.Second)
	delivered(queue.Delivered{Outcome: queue.OutcomeDone})
	_, answered := o.Request(t.Context(), Request{Method: "GET", Route: "/v1/runs/:id"})
	answered(200)
	return o
}

// scrape parses the response of GET /metrics.
func scrape(t *testing.T, o *Telemetry) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	o.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("got %d, %v", w.Code, err)
	}
	return families
}

// documentedMetric matches a table row of docs/metrics.md: name, type, labels, meaning.
var documentedMetric = regexp.MustCompile("(?m)^\\| `(stepwell_[a-z_]+)` \\| ([a-z]+) \\|(.*?)\\| .+ \\|$")

var quoted = regexp.MustCompile("`([a-z]+)`")

// TestMetricsAreDocumented: docs/metrics.md lists exactly our metrics, with their types and labels.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	text := check.Value(os.ReadFile("../../docs/metrics.md"))(t)
	want := map[string]string{}
	for _, row := range documentedMetric.FindAllStringSubmatch(string(text), -1) {
		var labels []string
		for _, label := range quoted.FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, label[1])
		}
		slices.Sort(labels)
		want[row[1]] = row[2] + " " + strings.Join(labels, ",")
	}
	got := map[string]string{}
	for name, family := range scrape(t, busyTelemetry(t)) {
		if !strings.HasPrefix(name, "stepwell_") {
			continue
		}
		var labels []string
		for _, pair := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, pair.GetName())
		}
		slices.Sort(labels)
		got[name] = strings.ToLower(family.GetType().String()) + " " + strings.Join(labels, ",")
	}
	check.Equal(t, "metrics", got, want)
	if len(got) < 20 {
		t.Errorf("got %d metrics, want at least 20", len(got))
	}
}

// TestAlertsNameMetrics: each metric in an alert of docs/metrics.md exists, and each fault that an operator must see
// has an alert.
func TestAlertsNameMetrics(t *testing.T) {
	t.Parallel()
	text := check.Value(os.ReadFile("../../docs/metrics.md"))(t)
	_, alerts, _ := strings.Cut(string(text), "## Alerts")
	families := scrape(t, busyTelemetry(t))
	for _, name := range regexp.MustCompile(`stepwell_[a-z_]+`).FindAllString(alerts, -1) {
		base := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
		if families[name] == nil && families[base] == nil {
			t.Errorf("an alert has %s, which is no metric", name)
		}
	}
	for _, alert := range []string{"Down", "RequestsFail", "RequestsRefused", "VersionsDiffer", "CertificateEnds", "ArchiveFails"} {
		if !strings.Contains(alerts, "- alert: Stepwell"+alert) {
			t.Errorf("there is no alert Stepwell%s", alert)
		}
	}
}

func TestMetricNamesFollowConventions(t *testing.T) {
	t.Parallel()
	problems := check.Value(testutil.GatherAndLint(busyTelemetry(t).Registry()))(t)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestLabelValuesAreBounded: arbitrary input cannot create new series.
func TestLabelValuesAreBounded(t *testing.T) {
	t.Parallel()
	o := newTelemetry()
	before := series(t, o)
	for i := range 100 {
		odd := string(rune('a'+i%26)) + time.Duration(i).String()
		_, appended := o.Append(t.Context(), entities.RunID(odd), []eventlog.Request{{Type: entities.EventType(odd)}})
		appended(eventlog.Appended{Err: errors.New(odd)})
		_, delivered := o.Deliver(t.Context(), queue.Delivery{Work: message.Work(odd), DeploymentID: odd, ID: odd}, 0)
		delivered(queue.Delivered{Outcome: queue.OutcomeFailed, Why: odd})
		_, answered := o.Request(t.Context(), Request{ID: odd, Method: odd, RunID: entities.RunID(odd)})
		answered(404)
	}
	if got := series(t, o) - before; got != 4 { // appends, deliveries, waits, requests
		t.Errorf("%d new series, want 4", got)
	}
}

func series(t *testing.T, o *Telemetry) int {
	t.Helper()
	n := 0
	for name, family := range scrape(t, o) {
		if strings.HasPrefix(name, "stepwell_") {
			n += len(family.GetMetric())
		}
	}
	return n
}

func TestAppendOutcome(t *testing.T) {
	t.Parallel()
	conflict := &entities.TransitionError{Kind: "step", Refusal: entities.Conflict}
	for _, tt := range []struct {
		name string
		a    eventlog.Appended
		want string
	}{
		{"written", eventlog.Appended{Events: make([]entities.Event, 1)}, "written"},
		{"written in part", eventlog.Appended{Events: make([]entities.Event, 1), Refused: conflict}, "written"},
		{"repeated", eventlog.Appended{}, "repeated"},
		{"refused", eventlog.Appended{Refused: conflict}, "refused"},
		{"refused with its batch", eventlog.Appended{Err: &eventlog.RefusedError{Err: conflict}}, "refused"},
		{"stale", eventlog.Appended{Err: message.ErrStale}, "refused"},
		{"nothing left", eventlog.Appended{Err: engine.ErrNothingLeft}, "refused"},
		{"name taken", eventlog.Appended{Err: sqlStateError("23505")}, "refused"},
		{"disk full", eventlog.Appended{Err: sqlStateError("53100")}, "error"},
		{"gone", eventlog.Appended{Err: context.Canceled}, "error"},
	} {
		check.Equal(t, tt.name, appendOutcome(tt.a), tt.want)
	}
}

// sqlStateError is a database error.
type sqlStateError string

func (s sqlStateError) Error() string    { return string(s) }
func (s sqlStateError) SQLState() string { return string(s) }

// TestDatabaseGaugesAreCached: concurrent scrapes share one query until it expires, and no stale gauges are reported
// while the database is down.
func TestDatabaseGaugesAreCached(t *testing.T) {
	t.Parallel()
	var c clock
	var queries atomic.Int64
	var down atomic.Bool
	o := newTelemetry(func(o *Options) {
		o.Now = c.now
		o.Gauges = func(ctx context.Context) (queue.Gauges, error) {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the query has no deadline")
			}
			queries.Add(1)
			if down.Load() {
				return queue.Gauges{}, errors.New("down")
			}
			return queue.Gauges{StrandedRuns: 2, OldestDue: 1500 * time.Millisecond}, nil
		}
	})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { scrape(t, o) })
	}
	all.Wait()
	check.Equal(t, "queries", queries.Load(), 1)
	got := scrape(t, o)
	check.Equal(t, "stranded", got["stepwell_runs_stranded"].GetMetric()[0].GetGauge().GetValue(), 2)
	check.Equal(t, "oldest", got["stepwell_messages_oldest_due_seconds"].GetMetric()[0].GetGauge().GetValue(), 1.5)
	down.Store(true)
	c.advance(gaugesTTL)
	got = scrape(t, o)
	if v := got["stepwell_database_up"].GetMetric()[0].GetGauge().GetValue(); v != 0 ||
		got["stepwell_runs_stranded"] != nil || got["stepwell_events_total"] == nil {
		t.Errorf("while the database is down: up is %v, %d metrics", v, len(got))
	}
	down.Store(false)
	c.advance(gaugesTTL)
	if v := scrape(t, o)["stepwell_database_up"].GetMetric()[0].GetGauge().GetValue(); v != 1 || queries.Load() != 3 {
		t.Errorf("when the database is back: up is %v after %d queries, want 1 after 3", v, queries.Load())
	}
}

// TestLogHandlerAddsContextFields: each field is added once, and the line's own run wins.
func TestLogHandlerAddsContextFields(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := slog.New(LogHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))).With("a", 1)
	var disabled *Telemetry
	ctx, _ := disabled.Request(t.Context(), Request{ID: "r1", RunID: "wrun_1"})
	logger.InfoContext(ctx, "one")
	logger.InfoContext(ctx, "two", "run", "wrun_2")
	logger.InfoContext(t.Context(), "three")
	want := "level=INFO msg=one a=1 request=r1 run=wrun_1\nlevel=INFO msg=two a=1 run=wrun_2 request=r1\nlevel=INFO msg=three a=1\n"
	check.Equal(t, "the log", out.String(), want)
	if RequestID(ctx) != "r1" || RequestID(t.Context()) != "" {
		t.Errorf("request IDs: %q, %q", RequestID(ctx), RequestID(t.Context()))
	}
}

// TestTraceIDIsDerivedFromRunID: it is the run's ULID; IDs without one get a valid, distinct trace ID too.
func TestTraceIDIsDerivedFromRunID(t *testing.T) {
	t.Parallel()
	const id = "wrun_01JD5A8R8D0000000000000001"
	bits := ulid.MustParseStrict(id[len("wrun_"):])
	if got := traceID(id); [16]byte(got) != [16]byte(bits) {
		t.Errorf("got %s, want %x", got, bits[:])
	}
	seen := map[string]entities.RunID{}
	for _, id := range []entities.RunID{
		"wrun_00000000000000000000000000", "wrun_7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "wrun_8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "wrun_x", "x", "_",
		"wrun_01JD5A8R8D0000000000000001", "wrun_01JD5A8R8D0000000000000002",
	} {
		trace, span := traceID(id), runSpanID(id)
		if !trace.IsValid() || !span.IsValid() {
			t.Errorf("%s: got %s, %s", id, trace, span)
		}
		for _, key := range []string{trace.String(), span.String()} {
			if other, twice := seen[key]; twice {
				t.Errorf("%s and %s share %s", id, other, key)
			}
			seen[key] = id
		}
	}
}

// TestSamplingDecisionIsPerRun: every server and every span of a run get the same decision, at the configured ratio.
func TestSamplingDecisionIsPerRun(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ least, most int }{
		"": {1000, 1000}, "always_on": {1000, 1000}, "parentbased_always_off": {0, 0}, "traceidratio": {150, 350},
		"parentbased_traceidratio": {150, 350},
	} {
		first, other := newTraces(t, name, "0.25"), newTraces(t, name, "0.25")
		random := rand.New(rand.NewPCG(1, 2))
		sampled := 0
		for range 1000 {
			var ulid [26]byte
			for i := range ulid {
				ulid[i] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[random.IntN(32)]
			}
			ulid[0] = '0'
			id := entities.RunID("wrun_" + string(ulid[:]))
			run := first.runSpanContext(id)
			if !run.Equal(other.runSpanContext(id)) {
				t.Fatalf("%s: two servers decide differently on %s", name, id)
			}
			ctx, span := first.start(t.Context(), id, "x")
			span.End()
			if _, inside := first.start(ctx, id, "y"); span.SpanContext().IsSampled() != run.IsSampled() ||
				inside.SpanContext().IsSampled() != run.IsSampled() {
				t.Fatalf("%s: a span of %s is not sampled like its run", name, id)
			}
			if run.IsSampled() {
				sampled++
			}
		}
		if sampled < want.least || sampled > want.most {
			t.Errorf("%s: %d of 1000 runs are sampled, want %d to %d", name, sampled, want.least, want.most)
		}
	}
	for name, arg := range map[string]string{"half": "", "traceidratio": "2", "parentbased_traceidratio": "x", "parentbased": ""} {
		if _, err := ParseSampler(name, arg); err == nil {
			t.Errorf("ParseSampler(%q, %q) succeeds", name, arg)
		}
	}
	if _, err := ParseSampler("traceidratio", "NaN"); err == nil {
		t.Error("ParseSampler accepts NaN as a ratio")
	}
}

func newTraces(t *testing.T, name, arg string) *Traces {
	t.Helper()
	s := check.Value(ParseSampler(name, arg))(t)
	return NewTraces(s)
}

// fakeCommits is a database whose last commit was 3 s ago.
type fakeCommits struct{}

func (fakeCommits) Age() time.Duration     { return 3 * time.Second }
func (fakeCommits) FeedLag() time.Duration { return 0 }
