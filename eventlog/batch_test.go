package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// batch appends a valid batch, and returns the outcome of each request: the position of its
// event, or the error's text.
func (f *fixture) batch(t *testing.T, id entities.RunID, requests ...Request) []string {
	t.Helper()
	outcomes, err := f.AppendBatch(t.Context(), home, id, requests)
	if err != nil {
		t.Fatal(err)
	}
	return outcomeTexts(outcomes)
}

func outcomeTexts(outcomes []Outcome) []string {
	var list []string
	for _, o := range outcomes {
		refused := (*entities.TransitionError)(nil)
		switch {
		case errors.As(o.Err, &refused):
			list = append(list, string(refused.Refusal))
		case o.Err != nil:
			list = append(list, o.Err.Error())
		default:
			list = append(list, fmt.Sprintf("%s at %d", o.Event.Type, o.Event.Seq))
		}
	}
	return list
}

// createAndStart returns the pair that creates a step and starts it.
func createAndStart(stepID string) []Request {
	r := onRun("", entities.EventStepStarted)
	r.CorrelationID = stepID
	return []Request{on("", entities.EventStepCreated, stepID), r}
}

func TestBatchOutcomesBySection3_13(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	retrying := step("step_retrying")
	retrying.Data.RetryAfter = ptr(day.Add(90e9))
	tests := map[string]struct {
		before []Request // after created and started
		ask    []Request
		want   []string
	}{
		"one": {nil, []Request{step("step_created")}, []string{"step_created at 3"}},
		"several, in their order": {
			nil,
			[]Request{sleep("wait_created"), on("", "step_created", "b"), on("", "step_created", "a")},
			[]string{"wait_created at 3", "step_created at 4", "step_created at 5"},
		},
		"a refused request uses no position": {
			[]Request{step("step_created")},
			[]Request{on("", "step_created", "a"), step("step_created"), on("", "step_created", "b")},
			[]string{"step_created at 4", "conflict", "step_created at 5"},
		},
		"all refused": {
			[]Request{step("step_created"), sleep("wait_created")}, []Request{step("step_created"), sleep("wait_created")},
			[]string{"conflict", "conflict"},
		},
		"creations with starts": {
			nil, slices.Concat(createAndStart("a"), createAndStart("b")),
			[]string{"step_created at 3", "step_started at 4", "step_created at 5", "step_started at 6"},
		},
		"a refused creation with start between two": {
			[]Request{step("step_created")}, slices.Concat(createAndStart("a"), createAndStart("step_1"), createAndStart("b")),
			[]string{
				"step_created at 4", "step_started at 5", "conflict", "conflict", "step_created at 6", "step_started at 7",
			},
		},
		"a creation with start of a running step": {
			[]Request{step("step_created"), step("step_started")}, createAndStart("step_1"), []string{"conflict", "conflict"},
		},
		"a creation with start after the end": {[]Request{completed}, createAndStart("a"), []string{"conflict", "conflict"}},
		"everything after the end": {
			[]Request{step("step_created"), step("step_started"), completed},
			[]Request{step("step_completed"), on("", "step_completed", "a"), sleep("wait_created"), completed},
			[]string{"step_completed at 6", "ended", "conflict", "conflict"},
		},
		"events after the end in the same batch": {
			[]Request{step("step_created"), step("step_started")},
			[]Request{on("", "step_created", "a"), completed, on("", "step_created", "b"), step("step_completed")},
			[]string{"step_created at 5", "run_completed at 6", "conflict", "step_completed at 7"},
		},
		"a wait that the end in the same batch deletes": {
			nil, []Request{sleep("wait_created"), failed}, []string{"wait_created at 3", "run_failed at 4"},
		},
		"events of missing entities": {
			nil, []Request{step("step_started"), sleep("wait_completed"), on("", "step_completed", "a")},
			[]string{"missing", "conflict", "missing"},
		},
		"a step that is not due yet": {
			[]Request{step("step_created"), retrying}, []Request{on("", "step_created", "a"), step("step_started")},
			[]string{"step_created at 5", "step step_1 may not start for another 1m30s"},
		},
		"results of several steps": {
			[]Request{on(theRun, "step_created", "a"), on(theRun, "step_created", "b"), on(theRun, "step_created", "c")},
			[]Request{on("", "step_completed", "c"), on("", "step_failed", "a"), on("", "step_retrying", "b")},
			[]string{"step_completed at 6", "step_failed at 7", "step_retrying at 8"},
		},
		"a step and a wait with the same ID": {
			nil, []Request{on("", "step_created", "x"), on("", "wait_created", "x")},
			[]string{"step_created at 3", "wait_created at 4"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := f.run(t, append([]Request{started}, test.before...)...)
			before := f.events(t, id)
			if diff := cmp.Diff(test.want, f.batch(t, id, test.ask...)); diff != "" {
				t.Errorf("outcomes differ (-want +got):\n%s", diff)
			}
			f.wantFold(t, id)
			events := f.events(t, id)
			if diff := cmp.Diff(before, events[:len(before)]); diff != "" {
				t.Errorf("earlier events changed (-before +after):\n%s", diff)
			}
			written := 0
			for _, outcome := range test.want {
				if strings.Contains(outcome, " at ") {
					written++
				}
			}
			if got := len(events) - len(before); got != written {
				t.Errorf("%d events were appended, want %d", got, written)
			}
		})
	}
}

// wantFold fails the test unless the run's log is dense and its rows are the fold of it.
func (f *fixture) wantFold(t *testing.T, id entities.RunID) {
	t.Helper()
	events := f.events(t, id)
	wantDense(t, events)
	if diff := cmp.Diff(fold(events), f.rows(t, id)); diff != "" {
		t.Errorf("rows are not the fold of the log (-fold +rows):\n%s", diff)
	}
}

func TestBatchResultsReflectStateAfterEachEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	asked := append(createAndStart("a"), on("", "step_created", "x"), on("", "wait_created", "x"), completed)
	outcomes, err := f.AppendBatch(t.Context(), home, id, asked)
	if err != nil {
		t.Fatal(err)
	}
	if asked[0].RunID != "" {
		t.Error("the caller's requests were modified")
	}
	for i, o := range outcomes {
		if got, want := o.Run.LastSeq, int64(3+i); got != want || o.Event.Seq != want {
			t.Errorf("outcome %d: run at position %d, event at %d, want %d", i, got, o.Event.Seq, want)
		}
		if ended := i == len(outcomes)-1; o.Run.Status.Ended() != ended {
			t.Errorf("outcome %d: the run is %s", i, o.Run.Status)
		}
		if hasStep, hasWait := o.Step != nil, o.Wait != nil; hasStep != (i < 3) || hasWait != (i == 3) || o.Hook != nil {
			t.Errorf("outcome %d has step %v, wait %v, hook %v", i, o.Step, o.Wait, o.Hook)
		}
		if o.Repeated || o.StepCreated {
			t.Errorf("outcome %d is repeated or created a step: %+v", i, o)
		}
	}
	if got := outcomes[0].Step; got.Status != entities.StepPending || got.Attempt != 0 {
		t.Errorf("after its creation the step is %s with attempt %d", got.Status, got.Attempt)
	}
	if got := outcomes[1].Step; got.Status != entities.StepRunning || got.Attempt != 1 || got.StartedAt == nil {
		t.Errorf("after its start the step is %s with attempt %d", got.Status, got.Attempt)
	}
}

func TestInvalidBatchesAreRejectedBySection3_13(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"), hook("hook_created"))
	before := f.events(t, id)
	other := onRun("", entities.EventRunFailed)
	other.CorrelationID = "another"
	tests := map[string][]Request{
		"none":                    {},
		"run_created":             {runCreated(id)},
		"run_started":             {started},
		"run_cancelled":           {cancelled},
		"attr_set":                {on("", "attr_set", "attr_1")},
		"hook_created":            {hookCreated("", "hook_2", "T")},
		"hook_received":           {hook("hook_received")},
		"hook_disposed":           {hook("hook_disposed")},
		"hook_conflict":           {on("", "hook_conflict", "hook_1")},
		"noop":                    {on("", "noop", "")},
		"an unknown event":        {on("", "step_exploded", "a")},
		"no event":                {on("", "", "a")},
		"a lazy start":            {lazyStart("", "a")},
		"a start with an input":   {withoutName(lazyStart("", "a"))},
		"two starts of a step":    {step("step_started"), step("step_started")},
		"two creations of a step": {on("", "step_created", "a"), on("", "step_created", "a")},
		"a creation and start in the wrong order":         {createAndStart("a")[1], createAndStart("a")[0]},
		"a creation and start with another event between": {createAndStart("a")[0], on("", "step_created", "b"), createAndStart("a")[1]},
		"a creation and two starts":                       append(createAndStart("a"), createAndStart("a")[1]),
		"a creation, a start and an end":                  append(createAndStart("a"), on("", "step_completed", "a")),
		"two creations and starts of a step":              append(createAndStart("a"), createAndStart("a")...),
		"two events of a wait":                            {sleep("wait_created"), sleep("wait_completed")},
		"two ends":                                        {completed, failed},
		"two ends with different correlation IDs":         {completed, other},
		"an end with an invalid correlation ID":           {func() Request { r := completed; r.CorrelationID = "a/b"; return r }()},
		"a step without a name":                           {withoutName(step("step_created"))},
		"an invalid request after a valid one":            {on("", "step_created", "a"), on("", "step_created", "")},
		"an invalid time after a valid request":           {on("", "step_created", "a"), func() Request { r := sleep("wait_created"); r.Data.ResumeAt = nil; return r }()},
		"an invalid text after a valid request":           {on("", "step_created", "a"), func() Request { r := failed; r.Data.ErrorCode = "\x00"; return r }()},
		"more than the limit":                             slices.Repeat([]Request{on("", "step_created", "a")}, MaxBatch+1),
		"a forbidden type after a valid request":          {on("", "step_created", "a"), hook("hook_received")},
	}
	for name, batch := range tests {
		t.Run(name, func(t *testing.T) {
			if outcomes, err := f.AppendBatch(t.Context(), home, id, batch); !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("got outcomes %v and error %v, want ErrInvalid", outcomeTexts(outcomes), err)
			}
			if diff := cmp.Diff(before, f.events(t, id)); diff != "" {
				t.Errorf("the log changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestBatchOfMaximumSizeIsAppended(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	var batch []Request
	for i := range MaxBatch {
		batch = append(batch, on("", "step_created", fmt.Sprintf("step_%03d", i)))
	}
	for i, got := range f.batch(t, id, batch...) {
		if want := fmt.Sprintf("step_created at %d", i+3); got != want {
			t.Fatalf("event %d: got %s, want %s", i, got, want)
		}
	}
	f.wantFold(t, id)
}

func TestBatchForMissingRunFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	for name, test := range map[string]struct {
		project entities.Project
		id      entities.RunID
	}{
		"no such run":                   {home, newRunID()},
		"a run of another project (I9)": {stranger, id},
		"an ID that no run has":         {home, "nobody"},
	} {
		outcomes, err := f.AppendBatch(t.Context(), test.project, test.id, createAndStart("a"))
		if !errors.Is(err, entities.ErrRunNotFound) || outcomes != nil {
			t.Errorf("%s: got %v and error %v, want ErrRunNotFound", name, outcomeTexts(outcomes), err)
		}
	}
	if got := len(f.events(t, id)); got != 2 {
		t.Errorf("the log has %d events, want 2", got)
	}
}

func TestFailedBatchRollsBackEverything(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"), sleep("wait_created"), hook("hook_created"))
	seen := 0
	broken := f.with(queueFunc(func(ctx context.Context, tx pgx.Tx, _ *pgx.Batch, m []message.Message) (func(error), error) {
		if len(m) != 2 {
			t.Errorf("the queue got %d messages, want those of the two accepted requests", len(m))
		}
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM events`).Scan(&seen); err != nil {
			return nil, err
		}
		return nil, errBroken
	}))
	batch := append(createAndStart("a"), step("step_created"), sleep("wait_completed"), completed)
	for _, i := range []int{0, 2, 4} { // the second of these is refused
		batch[i].Messages = messages
	}
	before, log := f.rows(t, id), f.events(t, id)
	outcomes, err := broken.AppendBatch(t.Context(), home, id, batch)
	if !errors.Is(err, errBroken) || outcomes != nil {
		t.Errorf("got %v and error %v, want no outcomes and the error of the queue", outcomeTexts(outcomes), err)
	}
	if seen != len(log)+4 {
		t.Errorf("when the queue failed there were %d events, want %d", seen, len(log)+4)
	}
	if diff := cmp.Diff(before, f.rows(t, id)); diff != "" {
		t.Errorf("rows changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(log, f.events(t, id)); diff != "" {
		t.Errorf("the log changed (-before +after):\n%s", diff)
	}
	want := []string{
		"step_created at 6", "step_started at 7", "conflict", "wait_completed at 8", "run_completed at 9",
	}
	if diff := cmp.Diff(want, f.batch(t, id, batch...)); diff != "" {
		t.Errorf("outcomes of the repeated batch differ (-want +got):\n%s", diff)
	}
	f.wantFold(t, id)
}

// TestI4ConcurrentIdenticalBatchesHaveOneWinnerPerEvent also checks that the batch which creates a step starts it too.
func TestI4ConcurrentIdenticalBatchesHaveOneWinnerPerEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	var batch []Request
	for i := range 8 {
		batch = append(batch, createAndStart(fmt.Sprint("step_", i))...)
	}
	batch = append(batch, sleep("wait_created"))
	outcomes := make([][]Outcome, racers)
	for i, err := range race(func(i int) (err error) {
		// Each racer has its own order.
		mine := append(slices.Clone(batch[2*(i%8):]), batch[:2*(i%8)]...)
		outcomes[i], err = f.AppendBatch(t.Context(), home, id, mine)
		for j, o := range outcomes[i] {
			if o.Err != nil && !errors.Is(o.Err, entities.ErrConflict) {
				return fmt.Errorf("event %d: %w", j, o.Err)
			}
		}
		return err
	}) {
		if err != nil {
			t.Errorf("racer %d: %v", i, err)
		}
	}
	won := map[string]int{}
	for i, racer := range outcomes {
		owner := map[string]bool{}
		for _, o := range racer {
			if o.Err != nil {
				continue
			}
			won[string(o.Event.Type)+" "+o.Event.CorrelationID]++
			if o.Event.Type == entities.EventStepCreated {
				owner[o.Event.CorrelationID] = true
			} else if o.Event.Type == entities.EventStepStarted && !owner[o.Event.CorrelationID] {
				t.Errorf("racer %d started %s, which another racer created", i, o.Event.CorrelationID)
			}
		}
	}
	if len(won) != len(batch) {
		t.Errorf("%d events were appended, want %d: %v", len(won), len(batch), won)
	}
	for what, n := range won {
		if n != 1 {
			t.Errorf("%s was appended %d times", what, n)
		}
	}
	if got, want := len(f.events(t, id)), 2+len(batch); got != want {
		t.Errorf("the log has %d events, want %d", got, want)
	}
	f.wantFold(t, id)
}

// TestI1ConcurrentBatchesAndSingleAppendsKeepLogDense checks that there is no deadlock, and that the log stays dense.
func TestI1ConcurrentBatchesAndSingleAppendsKeepLogDense(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, hook("hook_created"))
	var mu sync.Mutex
	accepted := 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		accepted += n
	}
	for i, err := range race(func(i int) error {
		for j := range 4 {
			name := func(k int) string { return fmt.Sprintf("step_%d_%d_%d", i%4, j, k) }
			switch i % 3 {
			case 0: // batches that contend with those of other racers
				outcomes, err := f.AppendBatch(t.Context(), home, id, slices.Concat(createAndStart(name(0)), createAndStart(name(1)), createAndStart(name(2))))
				if err != nil {
					return err
				}
				for _, o := range outcomes {
					if o.Err == nil {
						count(1)
					}
				}
			case 1: // the same steps, alone, in the other order
				for k := 2; k >= 0; k-- {
					switch _, err := f.Append(t.Context(), home, lazyStart(id, name(k))); {
					case err == nil:
						count(2)
					case !errors.Is(err, entities.ErrConflict):
						return err
					}
				}
			default:
				if _, err := f.Append(t.Context(), home, on(id, "hook_received", "hook_1")); err != nil {
					return err
				}
				count(1)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("racer %d: %v", i, err)
		}
	}
	if got, want := len(f.events(t, id)), 3+accepted; got != want {
		t.Errorf("the log has %d events, want %d", got, want)
	}
	f.wantFold(t, id)
}
