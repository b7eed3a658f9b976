package eventlog

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
)

// each appends requests for the run with messages, and returns the error of each outcome.
func (f *fixture) each(t *testing.T, id entities.RunID, o AppendOptions, requests ...Request) ([]error, error) {
	t.Helper()
	outcomes, err := f.AppendEach(t.Context(), home, id, requests, o)
	errs := make([]error, len(outcomes))
	for i, o := range outcomes {
		errs[i] = o.Err
	}
	return errs, err
}

func TestEachRequestHasItsOutcome(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"))
	errs, err := f.each(t, id, AppendOptions{},
		on(id, "step_created", "step_1"), // exists
		on(id, "step_started", "step_1"), // as if sent alone
		on(id, "step_created", "step_2"),
		on(id, "step_created", "step_2"),
		hookCreated(id, "hook_1", "T"), on(id, "hook_disposed", "hook_1"), hookCreated(id, "hook_1", "T"),
		on(id, "attr_set", "attr_1"), on(id, "attr_set", "attr_1"),
		onRun(id, "run_completed"), onRun(id, "run_started"),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := []error{
		entities.ErrConflict, nil, nil, entities.ErrConflict, nil, nil, entities.ErrConflict, nil, entities.ErrConflict,
		nil, entities.ErrRunEnded,
	}
	for i, w := range want {
		if !errors.Is(errs[i], w) || (w == nil) != (errs[i] == nil) {
			t.Errorf("request %d: got %v, want %v", i, errs[i], w)
		}
	}
	types := []entities.EventType{
		"run_created", "run_started", "step_created", "step_started", "step_created", "hook_created", "hook_disposed",
		"attr_set", "run_completed",
	}
	if diff := cmp.Diff(types, f.types(t, id)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	f.wantVerified(t, id)
}

// TestEachIsAllOrNothing: after a refusal that is not only late, and after a failure at the last statement, there is no
// trace of the requests before.
func TestEachIsAllOrNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	log := f.events(t, id)
	var refusal *RefusedError
	_, err := f.each(t, id, AppendOptions{Messages: messages},
		on(id, "step_created", "step_1"), on(id, "step_completed", "step_none"), on(id, "step_created", "step_2"))
	if !errors.As(err, &refusal) || refusal.Index != 1 || !errors.Is(err, entities.ErrStepNotFound) {
		t.Errorf("got %v, want the refusal of the second request", err)
	}
	_, err = f.each(t, id, AppendOptions{Messages: messages},
		on(id, "step_created", "step_1"), on(id, "run_created", "x\x00"))
	if !errors.As(err, &refusal) || refusal.Index != 1 || !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("got %v, want the second request to be invalid", err)
	}
	if _, err = f.each(t, id, AppendOptions{With: UnderLock{Write: fails}}, on(id, "step_created", "step_1")); !hasFailed(err) {
		t.Errorf("got %v, want the error of the last statement", err)
	}
	if diff := cmp.Diff(log, f.events(t, id)); diff != "" {
		t.Errorf("the log changed (-before +after):\n%s", diff)
	}
	_, err = f.each(t, newRunID(), AppendOptions{}, on(id, "step_created", "step_1"))
	if !errors.Is(err, entities.ErrRunNotFound) {
		t.Errorf("got %v, want that the run is not found", err)
	}
}

// TestOptionsCountWithoutEvents: messages are sent, and Finish is called, although all requests come too late.
func TestOptionsCountWithoutEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"))
	finished := false
	errs, err := f.each(t, id, AppendOptions{With: UnderLock{Write: func(b *pgx.Batch) {
		b.Queue(`UPDATE runs SET updated_at = updated_at WHERE id = $1`, id)
		finished = true
	}}}, on(id, "step_created", "step_1"))
	if err != nil || !errors.Is(errs[0], entities.ErrConflict) || !finished {
		t.Errorf("got %v, %v, finished is %v", errs, err, finished)
	}
}

func TestMarkedRequestIsWrittenOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"))
	ask := on(id, "step_started", "step_1")
	ask.Extra = []byte("\xa1\x68writeKey\x61x")
	first := f.must(t, ask)
	again := ask
	again.Mark = []byte("\x68writeKey\x61x")
	if got := f.must(t, again); !got.Repeated || got.Event.Seq != first.Event.Seq || got.Step.Attempt != 1 {
		t.Errorf("repeated: got %+v", got)
	}
	again.Mark = []byte("\x68writeKey\x61y")
	if got := f.must(t, again); got.Repeated || got.Step.Attempt != 2 {
		t.Errorf("another mark: got %+v", got)
	}
	again.Mark = []byte("\x68writeKey\x61x")
	_, err := f.Append(t.Context(), "another project", again)
	if !errors.Is(err, entities.ErrRunNotFound) {
		t.Errorf("another project's repetition: got %v, want that there is no such run", err)
	}
}
