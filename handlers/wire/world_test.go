package wire_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// delivered is a call of an app.
type delivered struct {
	path   string
	header http.Header
	answer
	respond chan reply
}

// reply is what an app answers a call with.
type reply struct {
	status int
	header []string
	body   []byte
}

// ownApp is an app with a client of its own, and the worker that delivers to it.
type ownApp struct {
	client

	calls chan delivered
}

const worldType = "application/vnd.stepwell.world"

// newOwnApp starts a server, a worker, and an app whose answers the test gives.
func newOwnApp(t *testing.T) *ownApp {
	t.Helper()
	a := &ownApp{client: client{newServer(t), next}, calls: make(chan delivered, 100)}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		read := answer{http.StatusOK, http.Header{"Content-Type": {framesType}}, body}
		d := delivered{r.URL.Path, r.Header, read, make(chan reply)}
		a.calls <- d
		select {
		case got := <-d.respond:
			for i := 0; i < len(got.header); i += 2 {
				w.Header().Set(got.header[i], got.header[i+1])
			}
			w.WriteHeader(got.status)
			_, _ = w.Write(got.body)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(app.Close)
	startWorker(t, a.server, app.URL)
	return a
}

// startWorker starts a worker on the server's database, which delivers to the app.
func startWorker(t *testing.T, s *server, url string) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	hub := pg.NewHub(s.pool, migrations.DefaultSchema+".hints", logger)
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() { hub.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	q := check.Value(queue.New(s.pool, migrations.DefaultSchema, hub))(t)
	check.Value(q.PutDeployment(t.Context(), entities.DefaultProject, "dpl_x", url))(t)
	allowed := check.Value(egress.Parse(egress.Loopback))(t)
	w := check.Value(q.NewWorker(migrations.DefaultSchema, queue.WorkerOptions{
		Deliveries: 20, MaxDeliveries: 50, BodyMemory: 64 << 20, Grace: time.Second, Logger: logger, Allowed: allowed,
		World: handlers.World(handlers.Options{
			Pool: s.pool, Log: eventlog.New(s.pool, hub, q, s.clock), Queue: q, Logger: logger,
		}),
	}))(t)
	check.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { _ = w.Stop(t.Context()) })
}

// next waits for a call.
func (a *ownApp) next(t *testing.T) delivered {
	t.Helper()
	select {
	case d := <-a.calls:
		return d
	case <-time.After(30 * time.Second):
		t.Fatal("waited 30 s for a call")
		panic("unreachable")
	}
}

// own answers like a client of its own, with a commit.
func (d delivered) own(frames ...[]byte) {
	d.respond <- reply{200, []string{
		"Stepwell-World", "1", "Stepwell-Process", "p1", "Content-Type", worldType,
	}, joined(frames...)}
}

// wake sends a message about the run to its workflow.
func (a *ownApp) wake(t *testing.T, runID string) string {
	t.Helper()
	return a.mustEnqueue(t, flowTopic, "wake", "X-Vercel-Workflow-Run-Id", runID)
}

// introduced returns an app whose first delivery has told the server about its client, and a run that has started.
func introduced(t *testing.T) (a *ownApp, runID string) {
	t.Helper()
	a = newOwnApp(t)
	runID = a.newRunNext(t)
	id := a.wake(t, runID)
	first := a.next(t)
	if first.header.Get("Stepwell-World") != "1" || string(first.body) != "wake" ||
		first.header.Get("Content-Type") != "application/cbor" {
		t.Fatalf("the first delivery is not plain: %v %q", first.header, first.body)
	}
	first.own(commitHead(t, runID), commitEnd(t, field{"ack", true}))
	a.gone(t, id)
	return a, runID
}

// gone waits until the message has been deleted.
func (a *ownApp) gone(t *testing.T, id string) {
	t.Helper()
	a.eventually(t, "gone", `SELECT NOT EXISTS (SELECT FROM messages WHERE id = $1)`, id)
}

// eventually waits until the query about the message or the run with the ID returns true.
func (a *ownApp) eventually(t *testing.T, what, query, id string) {
	t.Helper()
	for range 3000 {
		var ok bool
		check.NoError(t, a.pool.QueryRow(t.Context(), query, id).Scan(&ok))
		if ok {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: waited, but not: %s", id, what)
}

// log decodes a delivery with its run: the head, the message, the events and the end.
func (d delivered) log(t *testing.T) (head map[string]any, message string, events []event, end map[string]any) {
	t.Helper()
	if got := d.header.Get("Content-Type"); got != worldType {
		t.Fatalf("Content-Type: got %q, body %q", got, d.body)
	}
	frames := d.frames(t)
	last := len(frames) - 1
	return frames[0].meta, frames[0].body, frames[1:last], frames[last].meta
}

// TestPostponedMessageComesAgainWithoutAFailure: an answer, or a commit with the receipt, may ask for the same message
// again without having failed. A commit about a lease that is over changes nothing.
func TestPostponedMessageComesAgainWithoutAFailure(t *testing.T) {
	t.Parallel()
	a, run := introduced(t)
	id := a.wake(t, run)
	postponed := commitEnd(t, field{"retryAfter", 0}, field{"postponed", true})
	first := a.next(t)
	first.own(commitHead(t, run), postponed)
	second := a.next(t)
	receipt := second.header.Get("Ce-Vqsreceipthandle")
	for range 2 {
		wantStatus(t, a.commit(t, commitHead(t, run), commitEnd(t, field{"retryAfter", 3600}, field{"postponed", true},
			field{"topic", flowTopic}, field{"receipt", receipt})), http.StatusOK)
	}
	second.own(commitHead(t, run), postponed)
	for i, d := range []delivered{first, second} {
		check.Equal(t, "message", d.header.Get("Ce-Vqsmessageid"), id)
		check.Equal(t, "count", d.header.Get("Ce-Vqsdeliverycount"), []string{"1", "2"}[i])
	}
	a.eventually(t, "postponed", `SELECT lease = '' AND last_error = '' AND first_failed_at IS NULL AND delivery_count = 2
		AND due_at > now() + interval '50 minutes' FROM messages WHERE id = $1`, id)
}

func TestDeliveryCarriesTheRun(t *testing.T) {
	t.Parallel()
	a, id := introduced(t)
	message := a.wake(t, id)
	second := a.next(t)
	head, body, events, end := second.log(t)
	check.Equal(t, "message", body, "wake")
	check.Equal(t, "type", head["contentType"], any("application/cbor"))
	run := a.get(t, "/v2/runs/"+id+"?remoteRefBehavior=lazy").cbor(t)
	check.Equal(t, "run", head["run"], any(run))
	log := a.log(t, id)
	check.Equal(t, "events", seqs(t, events), seqs(t, log))
	for i, e := range log {
		check.Equal(t, "event", events[i].meta, e.meta)
		check.Equal(t, "payload", events[i].body, e.body)
	}
	check.Equal(t, "end", end, map[string]any{"_end": uint64(1), "hasMore": false, "next": "eid:" + eventID(2)})
	if _, ok := head["after"]; ok {
		t.Error("the whole log has an after")
	}
	second.own(commitHead(t, id), framed(t, "step_created", "devl[3]", stepMeta("step_1")...),
		sentMessage(t, stepTopic, "step_1", field{"runId", id}), commitEnd(t, field{"ack", true}))

	// A step gets the run without the log.
	step := a.next(t)
	a.gone(t, message)
	check.Equal(t, "path", step.path, "/.well-known/workflow/v1/step")
	head, body, events, end = step.log(t)
	check.Equal(t, "run", head["run"].(map[string]any)["runId"], any(id))
	check.Equal(t, "message", body, "wake")
	check.Equal(t, "events", len(events), 0)
	check.Equal(t, "end", end, map[string]any{"_end": uint64(1), "hasMore": false})
	step.own(commitHead(t, id), commitEnd(t, field{"ack", true}))

	// The process that was told the log gets what it does not know.
	a.wake(t, id)
	third := a.next(t)
	head, _, events, end = third.log(t)
	check.Equal(t, "after", head["after"], any(uint64(2)))
	check.Equal(t, "run", head["run"], any(a.get(t, "/v2/runs/"+id+"?remoteRefBehavior=lazy").cbor(t)))
	check.Equal(t, "events", seqs(t, events), []int{3})
	check.Equal(t, "next", end["next"], any("eid:"+eventID(3)))
	third.own(commitHead(t, id), framed(t, "run_completed", "devl[9]"), commitEnd(t, field{"ack", true}))

	// A run that has ended has no log to replay.
	a.wake(t, id)
	ended := a.next(t)
	head, _, events, end = ended.log(t)
	check.Equal(t, "status", head["run"].(map[string]any)["status"], any("completed"))
	check.Equal(t, "events", len(events), 0)
	check.Equal(t, "end", end, map[string]any{"_end": uint64(1), "hasMore": false})
	ended.own(commitHead(t, id), commitEnd(t, field{"ack", true}))
}

func TestDeliveryOfAnUnknownRun(t *testing.T) {
	t.Parallel()
	a, _ := introduced(t)
	id := newID("wrun_")
	message := a.wake(t, id)
	d := a.next(t)
	head, body, events, _ := d.log(t)
	if _, ok := head["run"]; ok || body != "wake" || len(events) > 0 {
		t.Errorf("got head %v, body %q, %d events", head, body, len(events))
	}
	d.own(commitHead(t, id), commitEnd(t, field{"ack", true}))
	a.gone(t, message)
}

// TestTwoDeliveriesStartARunOnce: both see the same start.
func TestTwoDeliveriesStartARunOnce(t *testing.T) {
	t.Parallel()
	a, _ := introduced(t)
	id := newID("wrun_")
	a.must(t, id, "run_created", []byte("devl[1]"), creationNext("workflow//./a//b")...)
	const racers = 4
	for range racers {
		a.wake(t, id)
	}
	var starts []any
	for range racers {
		d := a.next(t)
		head, _, events, _ := d.log(t)
		run := head["run"].(map[string]any)
		check.Equal(t, "status", run["status"], any("running"))
		check.Equal(t, "events", seqs(t, events), []int{1, 2})
		starts = append(starts, run["startedAt"])
		defer d.own(commitHead(t, id), commitEnd(t, field{"ack", true}))
	}
	for _, at := range starts {
		check.Equal(t, "startedAt", at, starts[0])
	}
	check.Equal(t, "events", len(a.log(t, id)), 2)
}

func TestDeliveryOfALongLog(t *testing.T) {
	t.Parallel()
	a, id := introduced(t)
	for range 10 {
		var items []byte
		for range 250 {
			items = append(items, framed(t, "attr_set", "", field{"changes", []any{map[string]any{"key": "a", "value": "1"}}})...)
		}
		a.results(t, commitHead(t, id), items)
	}
	a.wake(t, id)
	d := a.next(t)
	_, _, events, end := d.log(t)
	check.Equal(t, "events", len(events), 1000)
	check.Equal(t, "end", end, map[string]any{"_end": uint64(1), "hasMore": true, "next": "eid:" + eventID(1000)})
	d.own(commitHead(t, id), commitEnd(t, field{"ack", true}))
}

// TestDeliveryOfACurrentRunLeavesOutTheInputsOfSteps, which only replays of earlier versions get. It has all
// other payloads, and the log itself keeps them.
func TestDeliveryOfACurrentRunLeavesOutTheInputsOfSteps(t *testing.T) {
	t.Parallel()
	a, _ := introduced(t)
	for version, want := range map[uint16][]string{
		8: {"devl[1]", "", "", "", "devl[5]"}, 7: {"devl[1]", "", "devl[3]", "", "devl[5]"},
	} {
		of := field{"specVersion", version}
		id := newID("wrun_")
		a.must(t, id, "run_created", []byte("devl[1]"), append(creation("workflow//./a//b"), of)...)
		a.must(t, id, "run_started", nil, of)
		a.must(t, id, "step_created", []byte("devl[3]"), append(stepMeta("step_1"), of)...)
		a.must(t, id, "step_started", nil, append(stepMeta("step_1"), of)...)
		a.must(t, id, "step_completed", []byte("devl[5]"), append(stepMeta("step_1"), of)...)
		a.wake(t, id)
		d := a.next(t)
		_, _, events, _ := d.log(t)
		var got []string
		for _, e := range events {
			got = append(got, e.body)
		}
		check.Equal(t, "payloads", got, want)
		check.Equal(t, "input", a.log(t, id)[2].body, "devl[3]")
		d.own(commitHead(t, id), commitEnd(t, field{"ack", true}))
	}
}

func TestDeliveryOfALargeLog(t *testing.T) {
	t.Parallel()
	a, id := introduced(t)
	large := strings.Repeat("x", 700<<10)
	a.must(t, id, "step_started", []byte(large), append(stepMeta("step_1"), ofNext)...)
	a.must(t, id, "step_completed", []byte(large), append(stepMeta("step_1"), ofNext)...)
	a.wake(t, id)
	d := a.next(t)
	_, _, events, end := d.log(t)
	check.Equal(t, "events", seqs(t, events), []int{1, 2, 3, 4})
	check.Equal(t, "hasMore", end["hasMore"], any(true))
	d.own(commitHead(t, id), commitEnd(t, field{"ack", true}))
}

// TestAnotherClientGetsTheMessageAgain: an answer without the header makes the server forget the client.
func TestAnotherClientGetsTheMessageAgain(t *testing.T) {
	t.Parallel()
	a, id := introduced(t)
	message := a.wake(t, id)
	d := a.next(t)
	d.log(t)
	d.respond <- reply{status: http.StatusBadRequest}
	again := a.next(t)
	check.Equal(t, "message", again.header.Get("Ce-Vqsmessageid"), message)
	check.Equal(t, "count", again.header.Get("Ce-Vqsdeliverycount"), "1")
	check.Equal(t, "body", string(again.body), "wake")
	again.own(commitHead(t, id), commitEnd(t, field{"ack", true}))
	a.gone(t, message)
	a.wake(t, id)
	plain := a.next(t) // for a minute
	check.Equal(t, "body", string(plain.body), "wake")
	plain.own(commitHead(t, id), commitEnd(t, field{"ack", true}))
}

// TestAnswerThatIsRefusedKeepsTheMessage: nothing but a whole and accepted commit acknowledges.
func TestAnswerThatIsRefusedKeepsTheMessage(t *testing.T) {
	t.Parallel()
	a, id := introduced(t)
	step := framed(t, "step_created", "devl[3]", stepMeta("step_1")...)
	done := commitEnd(t, field{"ack", true})
	whole := joined(commitHead(t, id), step, done)
	for _, tt := range []struct {
		name, why string
		body      []byte
		events    int
	}{
		{"a refused event", "step_none", joined(commitHead(t, id), step,
			framed(t, "step_completed", "", stepMeta("step_none")...), done), 3},
		{"cut", "the answer was refused: malformed", whole[:len(whole)-1], 3},
		{"cut between frames", "the answer was refused: malformed", joined(commitHead(t, id), step), 3},
		{"an unknown frame", "the answer was refused: frame 1", joined(commitHead(t, id), frame(t, meta(t, field{"odd", true}), nil), done), 3},
		{"another run", "the answer was refused: it is about another run", joined(commitHead(t, newID("wrun_")), done), 3},
		{"no outcome", "has neither ack nor retryAfter", joined(commitHead(t, id), commitEnd(t)), 3},
		{"too large", "larger than 4 MiB", joined(commitHead(t, id), framed(t, "step_created", strings.Repeat("x", 4<<20), stepMeta("step_2")...), done), 3},
		{"a failure of its own", "the app failed: no", joined(commitHead(t, id),
			framed(t, "step_created", "devl[3]", stepMeta("step_3")...), commitEnd(t, field{"retryAfter", uint16(3600)}, field{"reason", "no"})), 4},
	} {
		message := a.wake(t, id)
		a.next(t).own(tt.body)
		a.eventually(t, "failed", `SELECT coalesce((SELECT last_error <> '' FROM messages WHERE id = $1), true)`, message)
		var why string
		var count int
		if err := a.pool.QueryRow(t.Context(), `
			UPDATE messages SET due_at = now() + interval '1 hour' WHERE id = $1 RETURNING last_error, delivery_count`, message,
		).Scan(&why, &count); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if !strings.Contains(why, tt.why) || count != 1 {
			t.Errorf("%s: got error %q after %d deliveries, want %q", tt.name, why, count, tt.why)
		}
		check.Equal(t, tt.name, len(a.log(t, id)), tt.events)
	}
}

// TestAnswerAfterTheLeaseIsApplied: the items count, and the acknowledgement does nothing.
func TestAnswerAfterTheLeaseIsApplied(t *testing.T) {
	t.Parallel()
	a, id := introduced(t)
	message := a.wake(t, id)
	d := a.next(t)
	testdb.Exec(t, a.pool, `UPDATE messages SET lease = 'rh_other', holder = '' WHERE id = $1`, message)
	d.own(commitHead(t, id), framed(t, "step_created", "devl[3]", stepMeta("step_1")...), commitEnd(t, field{"ack", true}))
	a.eventually(t, "the step is in the log", `SELECT last_seq = 3 FROM runs WHERE id = $1`, id)
	a.eventually(t, "kept", `SELECT lease = 'rh_other' FROM messages WHERE id = $1`, message)
}

// TestStaleCacheIsNotBelieved if the app has been told more by another process.
func TestStaleCacheIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	hub := pg.NewHub(s.pool, migrations.DefaultSchema+".hints", slog.New(slog.DiscardHandler))
	q := check.Value(queue.New(s.pool, migrations.DefaultSchema, hub))(t)
	id := entities.RunID(newID("wrun_"))
	stale, other := eventlog.New(s.pool, hub, q, s.clock), eventlog.New(s.pool, hub, q, s.clock)
	for _, step := range []struct {
		log *eventlog.Log
		eventlog.Request
	}{
		{stale, eventlog.Request{
			Type: entities.EventRunCreated, Data: entities.EventData{DeploymentID: "dpl_x", WorkflowName: "w"},
		}},
		{stale, eventlog.Request{Type: entities.EventRunStarted}},
		{other, eventlog.Request{
			Type: entities.EventStepCreated, CorrelationID: "step_1", Data: entities.EventData{StepName: "s"},
		}},
	} {
		step.RunID, step.SpecVersion = id, 3
		check.Value(step.log.Append(t.Context(), entities.DefaultProject, step.Request))(t)
	}
	d := queue.Delivery{Project: entities.DefaultProject, RunID: id, Topic: flowTopic, LeasedSeq: 2}
	if _, ok := stale.Cached(t.Context(), d.Project, id, d.LeasedSeq); !ok {
		t.Fatal("the cache is not stale: the test shows nothing")
	}
	app := handlers.World(handlers.Options{Pool: s.pool, Log: stale, Queue: q, Logger: slog.New(slog.DiscardHandler)})
	_, upTo, err := app.Body(t.Context(), d, 3)
	if err != nil || upTo != 3 {
		t.Errorf("the delivery tells the log up to %d, error %v; want 3", upTo, err)
	}
}
