package eventlog

import (
	"errors"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// TestDecideCancellation: what a request to cancel leads to in each state of a run, and how the run ends then.
func TestDecideCancellation(t *testing.T) {
	t.Parallel()
	driven := created
	driven.Data.Driver = entities.DriverServer
	late := asked
	late.Data.ErrorCode, late.Data.Reason = "timeout", "timeout"
	shorter, longer := asked, asked
	shorter.Grace, longer.Grace = time.Second, time.Hour
	shorterLate := late
	shorterLate.Grace = time.Second
	alive := func(r ...Request) []Request { return append([]Request{driven, started}, r...) }
	runDecideTests(t, map[string]decideTest{
		"a running run is asked":                     {alive(), asked, types{"cancel_requested"}, nil},
		"a run that has not started ends":            {[]Request{driven}, asked, types{"run_cancelled"}, nil},
		"its timeout fails it":                       {[]Request{driven}, late, types{"run_failed"}, nil},
		"a run of the SDK cannot be asked":           {[]Request{created, started}, asked, nil, ErrGraceUnsupported},
		"an ended run is a conflict":                 {alive(completed), asked, nil, entities.ErrConflict},
		"a missing run is not found":                 {nil, asked, nil, entities.ErrRunNotFound},
		"a longer grace changes nothing":             {alive(asked), longer, nil, nil},
		"a shorter grace counts":                     {alive(asked), shorter, types{"cancel_requested"}, nil},
		"nobody has asked":                           {alive(), asAsked, nil, entities.ErrInvalid},
		"it ends as cancelled":                       {alive(asked), asAsked, types{"run_cancelled"}, nil},
		"it fails if its timeout asked":              {alive(late), asAsked, types{"run_failed"}, nil},
		"the last of several requests counts":        {alive(asked, shorterLate), asAsked, types{"run_failed"}, nil},
		"the timeout's grace is cut short":           {alive(late, shorter), asAsked, types{"run_cancelled"}, nil},
		"ending it twice is a conflict":              {alive(asked, asAsked), asAsked, nil, entities.ErrConflict},
		"it may complete nevertheless":               {alive(asked), completed, types{"run_completed"}, nil},
		"it may be cancelled at once":                {alive(asked), cancelled, types{"run_cancelled"}, nil},
		"it may still run steps":                     {alive(asked), step("step_created"), types{"step_created"}, nil},
		"a wait is cancelled":                        {alive(sleep("wait_created")), sleep("wait_cancelled"), types{"wait_cancelled"}, nil},
		"a wait that is over is a conflict":          {alive(sleep("wait_created"), sleep("wait_completed")), sleep("wait_cancelled"), nil, entities.ErrConflict},
		"a cancelled wait does not end":              {alive(sleep("wait_created"), sleep("wait_cancelled")), sleep("wait_completed"), nil, entities.ErrConflict},
		"a cancelled wait is not created again":      {alive(sleep("wait_created"), sleep("wait_cancelled")), sleep("wait_created"), nil, entities.ErrConflict},
		"a step is cancelled":                        {alive(step("step_created")), dropped, types{"step_failed"}, nil},
		"a result that comes late is a conflict":     {alive(step("step_created"), dropped), step("step_completed"), nil, entities.ErrConflict},
		"a step that does not exist cannot be ended": {alive(), dropped, nil, entities.ErrStepNotFound},
	})
}

// TestEndAsAskedHasTheReason of the request that counts, and the error only if a timeout asked.
func TestEndAsAskedHasTheReason(t *testing.T) {
	t.Parallel()
	driven, twice, late := created, asked, asked
	driven.Data.Driver = entities.DriverServer
	twice.Data.Reason = "ordered twice"
	late.Data.ErrorCode, late.Data.Reason = "timeout", "timeout"
	end := asAsked
	end.Payload = []byte("late")
	for _, tt := range []struct {
		ask                   Request
		reason, code, payload string
	}{{twice, "ordered twice", "", ""}, {late, "", "timeout", "late"}} {
		s := newMemoryRun(t, driven, started, tt.ask)
		events, err := s.append(end)
		if err != nil || len(events) != 1 {
			t.Fatalf("got events %v and error %v", events, err)
		}
		e := events[0]
		if e.Data.Reason != tt.reason || e.Data.ErrorCode != tt.code || string(e.Payload) != tt.payload {
			t.Errorf("the run ended with %+v and payload %q, want %+v", e.Data, e.Payload, tt)
		}
		if got := s.snapshot.Run.ErrorCode; got != tt.code {
			t.Errorf("the run's error code is %q, want %q", got, tt.code)
		}
	}
}

// TestWorkOfCancellations: a request has the run invoked, and ended when its grace is over. What the function has
// cancelled itself does not wake it.
func TestWorkOfCancellations(t *testing.T) {
	t.Parallel()
	driven := created
	driven.Data.Driver = entities.DriverServer
	child := step("step_created")
	child.Data.Step = &entities.StepSpec{ChildID: "wrun_child"}
	notNeeded := dropped
	notNeeded.Grace, notNeeded.Data.Reason = time.Minute, "not needed"
	s := newMemoryRun(t, driven, started, step("step_created"), sleep("wait_created"))
	for name, tt := range map[string]struct {
		ask  []Request
		want []message.Message
	}{
		"ask":  {[]Request{asked}, []message.Message{{Work: message.WorkRun}, {Work: message.WorkCancel, Delay: time.Minute}}},
		"step": {[]Request{dropped}, nil},
		"wait": {[]Request{sleep("wait_cancelled")}, nil},
		"child": {
			[]Request{forStep(child, "kid"), forStep(notNeeded, "kid")},
			[]message.Message{{RunID: "wrun_child", Work: message.WorkCancel, Subject: "1m0s", Body: []byte("not needed")}},
		},
	} {
		f := facts{Snapshot: s.snapshot, history: history{}}
		d := decideAll(f, tt.ask, s.at)
		for _, o := range d.outcomes {
			if o.Err != nil {
				t.Errorf("%s: %v", name, o.Err)
			}
		}
		if len(d.messages) != len(tt.want) {
			t.Errorf("%s: got messages %+v, want %+v", name, d.messages, tt.want)
			continue
		}
		for i, m := range d.messages {
			want := tt.want[i]
			if want.RunID == "" {
				want.RunID = theRun
			}
			if m.RunID != want.RunID || m.Work != want.Work || m.Subject != want.Subject || m.Delay != want.Delay ||
				string(m.Body) != string(want.Body) {
				t.Errorf("%s: got message %+v, want %+v", name, m, want)
			}
		}
		if open := name == "child"; open && d.after.Steps["kid"].CompletedAt != nil {
			t.Error("the step of a child ended before the child")
		}
	}
}

func forStep(r Request, id string) Request {
	r.CorrelationID = id
	return r
}

// TestNoGraceIsInvalid: it would end the run in the past.
func TestNoGraceIsInvalid(t *testing.T) {
	t.Parallel()
	r := asked
	r.Grace = 0
	if err := r.validate(day); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("got error %v, want ErrInvalid", err)
	}
}
