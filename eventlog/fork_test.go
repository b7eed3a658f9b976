package eventlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// logFrom makes a log of texts such as "step_created a". A step "child" is a child run, and "own" is executed by the
// function itself.
func logFrom(lines ...string) []entities.Event {
	var log []entities.Event
	for i, line := range lines {
		typ, id, _ := strings.Cut(line, " ")
		e := entities.Event{
			RunID: "wrun_1", Seq: int64(i + 1), Type: entities.EventType(typ), CorrelationID: id,
			CreatedAt: time.UnixMilli(int64(i)),
		}
		if e.Type == entities.EventStepCreated && id != "own" {
			e.Data.Step = &entities.StepSpec{DeploymentID: "d"}
			if id == "child" {
				e.Data.Step = &entities.StepSpec{ChildID: "wrun_2"}
			}
		}
		e.Data.Driver = entities.DriverServer
		log = append(log, e)
	}
	return log
}

// TestBeforeFailure says how many events are kept by a run that goes on from the failure of another one.
func TestBeforeFailure(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		want int
		log  string
	}{
		"the failed step is asked for anew": {4, "run_created,run_started,step_created a,step_completed a," +
			"step_created b,step_started b,step_failed b,run_failed"},
		"what others have finished meanwhile is kept": {6, "run_created,run_started,step_created a,step_created b," +
			"step_started b,step_completed b,step_failed a,run_failed"},
		"failures of steps that were open together are one": {2, "run_created,run_started,step_created a,step_created b," +
			"step_failed a,step_failed b,run_failed"},
		"a failure that the code has handled is kept": {4, "run_created,run_started,step_created a,step_failed a," +
			"step_created b,step_failed b,run_failed"},
		"without a failed step the function is called again": {4, "run_created,run_started,step_created a," +
			"step_completed a,run_failed"},
		"a cancelled step has not failed the run": {2, "run_created,run_started,run_cancelled"},
		"before the run was asked to cancel": {3, "run_created,run_started,step_created a,cancel_requested," +
			"step_failed a,run_failed"},
		"an early failure has not failed the run": {18, "run_created,run_started,step_created a,step_failed a," +
			strings.Repeat("step_created b,step_completed b,", 7) + "run_failed"},
	} {
		n, err := BeforeFailure(logFrom(strings.Split(test.log, ",")...))
		if err != nil || n != test.want {
			t.Errorf("%s: got %d, error %v, want %d", name, n, err, test.want)
		}
	}
	for _, undo := range []string{"a~undo", "undo:pay.refund", "x.undo:pay.refund"} {
		_, err := BeforeFailure(logFrom("run_created", "run_started", "step_created a", "step_failed a",
			"step_created "+undo))
		wantForkRefused(t, err, entities.ForkUndone, 5)
	}
}

func wantForkRefused(t *testing.T, err error, reason string, seq int64) {
	t.Helper()
	refused, ok := errors.AsType[*entities.ForkRefusedError](err)
	if !ok || refused.Reason != reason || refused.Seq != seq {
		t.Errorf("got error %v, want the reason %s because of event %d", err, reason, seq)
	}
}

// TestCheckKept says with which events no run can begin.
func TestCheckKept(t *testing.T) {
	t.Parallel()
	good := []string{
		"run_created", "run_started", "step_created a", "step_started a", "step_created child", "step_completed child",
	}
	if err := checkKept(logFrom(good...), nil); err != nil {
		t.Error(err)
	}
	wantForkRefused(t, checkKept(logFrom(good[:5]...), nil), entities.ForkOpenChild, 5)
	wantForkRefused(t, checkKept(logFrom("run_created", "cancel_requested"), nil), entities.ForkCancelling, 2)
	wantForkRefused(t, checkKept(logFrom("run_created", "step_created own", "step_started own"), nil), entities.ForkWithin, 2)
	if err := checkKept(logFrom("run_created", "step_created own", "step_retrying own"), nil); err != nil {
		t.Errorf("a step that its function repeats: %v", err)
	}
	if err := checkKept(logFrom("run_created", "run_failed"), nil); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("the end of the run: got error %v", err)
	}
	long := logFrom(append([]string{"run_created"}, make([]string, MaxForkEvents)...)...)
	for i := range long[1:] {
		long[i+1].Type = entities.EventAttrSet
	}
	if err := checkKept(long, nil); !errors.Is(err, entities.ErrForkTooLarge) {
		t.Errorf("%d events: got error %v", len(long), err)
	}
	if err := checkKept(long[:MaxForkEvents], nil); err != nil {
		t.Errorf("%d events: %v", MaxForkEvents, err)
	}
	large := logFrom("run_created", "hook_received h")
	large[1].Payload = make([]byte, MaxForkBytes+1)
	if err := checkKept(large, nil); !errors.Is(err, entities.ErrForkTooLarge) {
		t.Errorf("%d bytes: got error %v", MaxForkBytes+1, err)
	}
}

// TestForkChildren: what starts the open child of the kept events makes them good, up to a number of them.
func TestForkChildren(t *testing.T) {
	t.Parallel()
	kept := logFrom("run_created", "step_created child")
	if err := checkKept(kept, []Request{startAnew(kept[1], kept[0], time.UnixMilli(0))}); err != nil {
		t.Error(err)
	}
	many := logFrom(append([]string{"run_created"}, make([]string, MaxForkChildren+1)...)...)
	for i := range many[1:] {
		many[i+1].Type, many[i+1].CorrelationID = entities.EventStepCreated, fmt.Sprint("child", i)
		many[i+1].Data.Step = &entities.StepSpec{ChildID: "wrun_2"}
	}
	if r, err := new(Log).Fork(t.Context(), "p", Request{}, many); !errors.Is(err, entities.ErrForkTooLarge) {
		t.Errorf("%d open children: got %d requests and error %v", len(many)-1, len(r.Children), err)
	}
}

// TestForksLockTokensInOrder: two forks that need the same tokens must not wait for each other.
func TestForksLockTokensInOrder(t *testing.T) {
	t.Parallel()
	lines := []string{"run_created"}
	for i := range 20 {
		lines = append(lines, fmt.Sprint("hook_created h", i))
	}
	kept := logFrom(lines...)
	for i := range kept {
		kept[i].Data.Token = kept[i].CorrelationID
	}
	if tokens := (&Request{Kept: kept}).keptTokens(); len(tokens) != 20 || !slices.IsSorted(tokens) {
		t.Errorf("the tokens are locked in the order %q", tokens)
	}
}

// TestForkKeepsWhatIsOpen: a run that keeps the start of another one has not started, and what it keeps is open.
func TestForkKeepsWhatIsOpen(t *testing.T) {
	t.Parallel()
	log := logFrom("run_created", "run_started", "step_created a", "step_created b", "step_completed b",
		"step_created own", "step_retrying own", "hook_created h", "wait_created w")
	deadline, retry := time.UnixMilli(2+60_000), time.UnixMilli(500)
	log[2].Data.Step.Deadline, log[6].Data.RetryAfter, log[7].Data.Token = &deadline, &retry, "T"
	now := time.UnixMilli(1_000_000)
	r := Request{
		RunID: "wrun_3", Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven, Kept: log,
		Data: entities.EventData{Driver: entities.DriverServer, DeploymentID: "d", Fork: &entities.Fork{RunID: "wrun_1"}},
	}
	d := decideAll(facts{Snapshot: NewSnapshot("p")}, []Request{r}, now)
	if err := d.outcomes[0].Err; err != nil {
		t.Fatal(err)
	}
	run := d.after.Run
	if run.Status != entities.RunPending || run.StartedAt != nil || !run.CreatedAt.Equal(now) || run.ForkOf != "wrun_1" ||
		run.ForkSeq != 9 || run.LastSeq != 9 || len(d.after.Hooks) != 1 || len(d.after.Waits) != 1 {
		t.Errorf("got %+v with the hooks %v and the waits %v", run, d.after.Hooks, d.after.Waits)
	}
	got := d.events[2].Data.Step.Deadline
	if !got.Equal(now.Add(time.Minute)) || !log[2].Data.Step.Deadline.Equal(deadline) {
		t.Errorf("the step has until %s, want a minute, and the log of the original unchanged", got)
	}
	var work []string
	for _, m := range d.messages {
		work = append(work, fmt.Sprint(m.Work, " ", m.Subject, " ", m.DeploymentID, m.Delay))
	}
	if got, want := fmt.Sprint(work), "[run  d0s step a d0s step own 0s]"; got != want {
		t.Errorf("got the work %s, want %s", got, want)
	}
	held := facts{Snapshot: NewSnapshot("p"), holders: map[string]*entities.Hook{"T": {RunID: "wrun_9", Token: "T"}}}
	refused := decideAll(held, []Request{r}, now)
	wantForkRefused(t, refused.outcomes[0].Err, entities.ForkToken, 8)
	if refused.after.Run != nil || len(refused.events) > 0 {
		t.Errorf("a fork that is refused leaves %+v", refused.after.Run)
	}
}
