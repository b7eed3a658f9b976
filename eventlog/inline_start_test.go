package eventlog

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

// serverRun returns the run_created of a run that the server continues.
func serverRun(id entities.RunID) Request {
	r := runCreated(id)
	r.Data.Driver = entities.DriverServer
	return r
}

// serverStep returns the step_created of a step whose execution the server requests.
func serverStep(id entities.RunID, stepID string) Request {
	r := on(id, "step_created", stepID)
	r.Data.Step = &entities.StepSpec{DeploymentID: "dpl_1", AttemptTimeoutMS: 1000, MaxAttempts: 1}
	return r
}

// waitUntil returns the wait_created of a wait that ends at the time.
func waitUntil(id entities.RunID, waitID string, until time.Time) Request {
	r := on(id, "wait_created", waitID)
	r.Data.ResumeAt = &until
	return r
}

// inlineStartTest is work that starts with an append.
type inlineStartTest struct {
	before, asked []Request
	due           []entities.Wait
	start         InlineStart
	want          []string // the events of the start
	unrecorded    bool
}

func inlineStartTests() map[string]inlineStartTest {
	const child = entities.RunID("wrun_00000000000000000000000001")
	spec := func(change func(*entities.StepSpec)) Request {
		r := serverStep(theRun, "step_1")
		change(r.Data.Step)
		return r
	}
	family := serverStep(theRun, "step_1")
	born := serverRun(child)
	family.Child = &born
	run := InlineStart{RunID: theRun, Work: message.WorkRun, Events: 10}
	step1 := InlineStart{RunID: theRun, Work: message.WorkStep, Subject: "step_1"}
	is := func(r ...Request) []Request { return r }
	running := is(serverRun(theRun), started)
	return map[string]inlineStartTest{
		"a new run":       {asked: is(serverRun(theRun)), start: run, want: []string{"run_started"}},
		"a pending run":   {before: is(serverRun(theRun)), start: run, want: []string{"run_started"}},
		"a started run":   {before: running, asked: is(serverStep(theRun, "step_1")), start: run},
		"a run that ends": {before: running, asked: is(completed), start: run, unrecorded: true},
		"another run":     {before: running, start: InlineStart{RunID: child, Work: message.WorkRun}, unrecorded: true},
		"a missing run":   {start: run, unrecorded: true},
		"a new child": {
			before: running, asked: is(family), start: InlineStart{RunID: child, Work: message.WorkRun, Events: 10},
			want: []string{"run_started"},
		},
		"waits that are over, earliest first": {
			before: running,
			asked: is(waitUntil(theRun, "new", day), waitUntil(theRun, "later", day.Add(time.Hour)),
				waitUntil(theRun, "over", day), on(theRun, "wait_completed", "over")),
			due: []entities.Wait{
				{RunID: theRun, ID: "b", Status: entities.WaitWaiting, ResumeAt: ptr(day.Add(-time.Second))},
				{RunID: theRun, ID: "a", Status: entities.WaitWaiting, ResumeAt: ptr(day.Add(-time.Second))},
				{RunID: theRun, ID: "z", Status: entities.WaitWaiting, ResumeAt: ptr(day.Add(-time.Minute))},
			},
			start: run, want: []string{"wait_completed z", "wait_completed a", "wait_completed b", "wait_completed new"},
		},
		"a step": {before: running, asked: is(serverStep(theRun, "step_1")), start: step1, want: []string{"step_started step_1"}},
		"one of several steps": {
			before: running, asked: is(serverStep(theRun, "step_0"), serverStep(theRun, "step_1")), start: step1,
			want: []string{"step_started step_1"},
		},
		"a step before its deadline": {
			before: running, asked: is(spec(func(s *entities.StepSpec) { s.Deadline = ptr(day.Add(time.Millisecond)) })),
			start: step1, want: []string{"step_started step_1"},
		},
		"a step past its deadline": {
			before: running, asked: is(spec(func(s *entities.StepSpec) { s.Deadline = ptr(day) })), start: step1, unrecorded: true,
		},
		"a step that has a result": {
			before: running, asked: is(serverStep(theRun, "step_1"), on(theRun, "step_completed", "step_1")), start: step1,
			unrecorded: true,
		},
		"a step that existed before": {
			before: append(running, serverStep(theRun, "step_1")), asked: is(serverStep(theRun, "step_2")), start: step1,
			unrecorded: true,
		},
		"a step of a run that ends": {
			before: running, asked: is(serverStep(theRun, "step_1"), completed), start: step1, unrecorded: true,
		},
		"work whose start is not recorded": {
			before: running, start: InlineStart{RunID: theRun, Work: message.WorkDeadline}, unrecorded: true,
		},
	}
}

// TestInlineStartsAreRecordedWithDecision checks the events that a start adds to a decision, and the fields that it
// sets.
func TestInlineStartsAreRecordedWithDecision(t *testing.T) {
	t.Parallel()
	for name, tt := range inlineStartTests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.run(t)
		})
	}
}

func (tt inlineStartTest) run(t *testing.T) {
	t.Helper()
	before := decideAll(facts{Snapshot: NewSnapshot(home)}, tt.before, day).after
	j := decideAll(facts{Snapshot: before}, tt.asked, day)
	due := map[entities.WaitID]entities.Wait{}
	for _, w := range tt.due {
		due[w.ID] = w
	}
	j.addWaits(due)
	decided := len(j.events)
	b := tt.start
	b.At = day
	j.recordStart(&b, day)
	of := j.forRun(b.RunID)
	if of == nil {
		of = &j
	} else if of != &j {
		decided = 1
	}
	var got []string
	for _, e := range of.events[decided:] {
		got = append(got, string(e.Type))
		if e.CorrelationID != "" {
			got[len(got)-1] += " " + e.CorrelationID
		}
	}
	if !slices.Equal(got, tt.want) {
		t.Errorf("the start adds %q, want %q", got, tt.want)
	}
	switch {
	case (b.Run == nil) != tt.unrecorded:
		t.Errorf("the start has run %+v", b.Run)
	case b.Run == nil:
	case b.Run.LastSeq != of.after.Run.LastSeq || b.Run.Status != entities.RunRunning:
		t.Errorf("the start has run %+v, want %+v", b.Run, of.after.Run)
	case b.Work == message.WorkStep && (b.Step.Attempt != 1 || b.Step.Status != entities.StepRunning ||
		string(b.Step.Created.Payload) != "step input" || b.Step.Created.Data.Step == nil || b.Step.Run.ID != theRun):
		t.Errorf("the start has step %+v", b.Step)
	}
}

// inlineQueue is the queue of a process that starts all work at once.
type inlineQueue struct{ starts []*InlineStart }

func (q *inlineQueue) Enqueue(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []message.Message,
) ([]*InlineStart, func(error), error) {
	var at time.Time
	if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&at); err != nil {
		return nil, nil, err
	}
	q.starts = nil
	for _, m := range messages {
		if m.Delay == 0 {
			q.starts = append(q.starts, &InlineStart{RunID: m.RunID, Work: m.Work, Subject: m.Subject, At: at, Events: 3})
		}
	}
	return q.starts, func(error) {}, nil
}

func (*inlineQueue) EnqueueOptimistic(*pg.Conditional, []message.Message) ([]*InlineStart, func(error), bool) {
	return nil, nil, false
}

// TestInlineStartCommitsOrRollsBackWithAppend checks that a start and the append that causes it are one transaction.
func TestInlineStartCommitsOrRollsBackWithAppend(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := &inlineQueue{}
	var appends []Appended
	l := New(f.pool, f.hub, q, f.clock.now, WithObserver(observerFunc(func(a Appended) { appends = append(appends, a) })))
	id := newRunID()
	broken := AppendOptions{With: UnderLock{Write: fails}}
	long := time.Unix(0, 0)
	for i, tt := range []struct {
		ask   []Request
		want  types
		works []message.Work
		size  int64 // of the first three events' payloads
	}{
		{[]Request{serverRun(id)}, types{"run_created", "run_started"}, []message.Work{message.WorkRun}, int64(len("input"))},
		{
			[]Request{serverStep(id, "step_1"), serverStep(id, "step_2"), waitUntil(id, "nap", long)},
			types{"step_created", "step_created", "wait_created", "step_started", "step_started", "wait_completed"},
			[]message.Work{message.WorkStep, message.WorkStep, message.WorkRun}, int64(len("input" + "step input")),
		},
		{
			[]Request{on(id, "step_completed", "step_1")}, types{"step_completed"}, []message.Work{message.WorkRun},
			int64(len("input" + "step input")),
		},
	} {
		before, log := f.rows(t, id), f.eventTypes(t, id)
		appends = nil
		if _, err := l.AppendAll(t.Context(), home, id, tt.ask, broken); !hasFailed(err) {
			t.Errorf("%d: got error %v, want that of Finish", i, err)
		}
		if diff := cmp.Diff(before, f.rows(t, id)); diff != "" || len(f.eventTypes(t, id)) != len(log) {
			t.Errorf("%d: the failed append left %v, rows (-before +after):\n%s", i, f.eventTypes(t, id)[len(log):], diff)
		}
		results, err := l.AppendAll(t.Context(), home, id, tt.ask, AppendOptions{})
		if err != nil || len(results) != len(tt.ask) {
			t.Fatalf("%d: %d results, error %v", i, len(results), err)
		}
		f.wantFold(t, id)
		if diff := cmp.Diff(tt.want, f.eventTypes(t, id)[len(log):]); diff != "" {
			t.Errorf("%d: new events differ (-want +got):\n%s", i, diff)
		}
		if len(appends) != 2 || appends[0].Err == nil || len(appends[1].Events) != len(tt.want) {
			t.Errorf("%d: the observer got %d appends, want 2 with %d events in the last", i, len(appends), len(tt.want))
		}
		var works []message.Work
		for _, b := range q.starts {
			works = append(works, b.Work)
			if b.Run == nil || b.Work == message.WorkRun && b.Size != tt.size {
				t.Errorf("%d: %s starts with %+v, want a size of %d", i, b.Work, b, tt.size)
			}
		}
		if !slices.Equal(works, tt.works) {
			t.Errorf("%d: %q start, want %q", i, works, tt.works)
		}
	}
}

// eventTypes reads the types of a run's events; none if the run does not exist.
func (f *fixture) eventTypes(t *testing.T, id entities.RunID) types {
	t.Helper()
	if f.rows(t, id).Run == nil {
		return nil
	}
	return f.types(t, id)
}

// observerFunc is an Observer that is called at the end of each append.
type observerFunc func(Appended)

func (f observerFunc) Append(ctx context.Context, _ entities.RunID, _ []Request) (context.Context, func(Appended)) {
	return ctx, f
}

// TestI4ConcurrentInvocationsCompleteWaitsOnce has many appends start invocations of a run with waits that are over.
func TestI4ConcurrentInvocationsCompleteWaitsOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const racers = 16
	id := newRunID()
	f.must(t, serverRun(id))
	f.must(t, onRun(id, "run_started"))
	over := time.Unix(0, 0)
	for n := range 3 {
		f.must(t, waitUntil(id, fmt.Sprint("nap_", n), over))
	}
	errs := make(chan error, racers)
	for n := range racers {
		go func() {
			l := f.with(&inlineQueue{})
			_, err := l.Append(context.Background(), home, serverStep(id, fmt.Sprint("step_", n)))
			if err == nil {
				_, err = l.Append(context.Background(), home, on(id, "step_completed", fmt.Sprint("step_", n)))
			}
			errs <- err
		}()
	}
	for range racers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	f.wantFold(t, id)
	got := map[entities.EventType]int{}
	for _, e := range f.types(t, id) {
		got[e]++
	}
	want := map[entities.EventType]int{
		"run_created": 1, "run_started": 1, "wait_created": 3, "wait_completed": 3,
		"step_created": racers, "step_started": racers, "step_completed": racers,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
