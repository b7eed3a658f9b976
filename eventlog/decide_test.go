package eventlog

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

// decideTest is a rule of the protocol: what a request leads to, given the log so far.
type decideTest struct {
	before []Request
	ask    Request
	// want has the types of the appended events. It is empty with a nil err for a repeat.
	want []entities.EventType
	err  error
}

type types = []entities.EventType

// eventsOfExistingStep are the events that need their step to exist.
var eventsOfExistingStep = types{"step_started", "step_completed", "step_failed", "step_retrying"}

func runDecideTests(t *testing.T, rulings map[string]decideTest) {
	t.Helper()
	for name, r := range rulings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMemoryRun(t, r.before...)
			events, err := s.decide(r.ask)
			if r.err == nil && r.want == nil {
				r.err = errRepeated
			}
			if !errors.Is(err, r.err) {
				t.Fatalf("got error %v, want %v", err, r.err)
			}
			if diff := cmp.Diff(r.want, typesOf(events)); diff != "" {
				t.Errorf("events differ (-want +got):\n%s", diff)
			}
			for i, e := range events {
				if got, want := e.Seq, int64(len(s.log)+i+1); got != want {
					t.Errorf("%s is at %d, want %d (I1)", e.Type, got, want)
				}
				if e.RunID != theRun || e.SpecVersion != 3 || !e.CreatedAt.Equal(s.at) {
					t.Errorf("%s has run %s, version %d, time %s", e.Type, e.RunID, e.SpecVersion, e.CreatedAt)
				}
			}
		})
	}
}

func TestDecideRunsBySection3_4To3_6(t *testing.T) {
	t.Parallel()
	runDecideTests(t, map[string]decideTest{
		"3.4 run_created creates":             {nil, created, types{"run_created"}, nil},
		"3.4 run_created twice is a conflict": {[]Request{created}, created, nil, entities.ErrConflict},
		"3.4 run_created after a resilient run_started is a conflict": {
			[]Request{runRepaired(theRun)}, created, nil, entities.ErrConflict,
		},
		"3.4 run_created on an ended run is a conflict": {[]Request{created, failed}, created, nil, entities.ErrConflict},
		"3.5 run_started starts":                        {[]Request{created}, started, types{"run_started"}, nil},
		"3.5 run_started with creation data starts an existing run": {
			[]Request{created}, runRepaired(theRun), types{"run_started"}, nil,
		},
		"3.5 run_started on a running run appends nothing": {[]Request{created, started}, started, nil, nil},
		"3.5 run_started with creation data on a running run appends nothing": {
			[]Request{created, started}, runRepaired(theRun), nil, nil,
		},
		"3.5 run_started without its run and without data is not found": {nil, started, nil, entities.ErrRunNotFound},
		"3.5 run_started without its run but with data creates and starts": {
			nil, runRepaired(theRun), types{"run_created", "run_started"}, nil,
		},
		"3.6 run_completed ends a running run": {[]Request{created, started}, completed, types{"run_completed"}, nil},
		"3.6 run_completed ends a pending run": {[]Request{created}, completed, types{"run_completed"}, nil},
		"3.6 run_failed ends a run":            {[]Request{created, started}, failed, types{"run_failed"}, nil},
		"3.6 run_cancelled ends a run":         {[]Request{created, started}, cancelled, types{"run_cancelled"}, nil},
		"3.6 run_cancelled ends a pending run": {[]Request{created}, cancelled, types{"run_cancelled"}, nil},
		"3.6 run_completed without its run":    {nil, completed, nil, entities.ErrRunNotFound},
		"3.6 run_failed without its run":       {nil, failed, nil, entities.ErrRunNotFound},
		"3.6 run_cancelled without its run":    {nil, cancelled, nil, entities.ErrRunNotFound},
	})
}

func TestDecideResilientStartNeedsAllItsDataBySection3_5(t *testing.T) {
	t.Parallel()
	without := func(change func(*Request)) Request {
		r := runRepaired(theRun)
		change(&r)
		return r
	}
	runDecideTests(t, map[string]decideTest{
		"no deployment":  {nil, without(func(r *Request) { r.Data.DeploymentID = "" }), nil, entities.ErrRunNotFound},
		"no workflow":    {nil, without(func(r *Request) { r.Data.WorkflowName = "" }), nil, entities.ErrRunNotFound},
		"no input":       {nil, without(func(r *Request) { r.Payload = nil }), nil, entities.ErrRunNotFound},
		"an empty input": {nil, without(func(r *Request) { r.Payload = []byte{} }), nil, entities.ErrRunNotFound},
	})
}

func TestDecideTerminalRunsBySection3_3(t *testing.T) {
	t.Parallel()
	running := []Request{
		created, started, step("step_created"), step("step_started"),
		on(theRun, "step_created", "pending"),
		on(theRun, "step_created", "done"), on(theRun, "step_completed", "done"),
		on(theRun, "step_created", "broken"), on(theRun, "step_failed", "broken"),
		hook("hook_created"), sleep("wait_created"),
	}
	for _, end := range []Request{completed, failed, cancelled} {
		before := append(running[:len(running):len(running)], end)
		t.Run(string(end.Type), func(t *testing.T) {
			t.Parallel()
			rulings := map[string]decideTest{
				"run_created is a conflict":                             {before, created, nil, entities.ErrConflict},
				"run_started fails with ErrRunEnded":                    {before, started, nil, entities.ErrRunEnded},
				"run_started with creation data fails with ErrRunEnded": {before, runRepaired(theRun), nil, entities.ErrRunEnded},
				"run_completed is a conflict":                           {before, completed, nil, entities.ErrConflict},
				"run_failed is a conflict":                              {before, failed, nil, entities.ErrConflict},
				"step_created is a conflict":                            {before, on(theRun, "step_created", "new"), nil, entities.ErrConflict},
				"hook_created is a conflict":                            {before, on(theRun, "hook_created", "new"), nil, entities.ErrConflict},
				"wait_created is a conflict":                            {before, on(theRun, "wait_created", "new"), nil, entities.ErrConflict},
				"attr_set is a conflict":                                {before, on(theRun, "attr_set", "attr_1"), nil, entities.ErrConflict},
				"hook_received finds no hook":                           {before, hook("hook_received"), nil, entities.ErrHookNotFound},
				"hook_disposed finds no hook":                           {before, hook("hook_disposed"), nil, entities.ErrHookNotFound},
				"wait_completed is a conflict":                          {before, sleep("wait_completed"), nil, entities.ErrConflict},
				"wait_completed of a missing wait is a conflict": {
					before, on(theRun, "wait_completed", "none"), nil, entities.ErrConflict,
				},
			}
			if end.Type == entities.EventRunCancelled {
				rulings["run_cancelled again is appended"] = decideTest{before, cancelled, types{"run_cancelled"}, nil}
			} else {
				rulings["run_cancelled is a conflict"] = decideTest{before, cancelled, nil, entities.ErrConflict}
			}
			for _, event := range eventsOfExistingStep {
				e := string(event)
				rulings[e+" of a running step is allowed"] = decideTest{before, step(event), types{event}, nil}
				rulings[e+" of a pending step is over"] = decideTest{
					before, on(theRun, event, "pending"), nil, entities.ErrRunEnded,
				}
				rulings[e+" of a missing step is over"] = decideTest{
					before, on(theRun, event, "none"), nil, entities.ErrRunEnded,
				}
				rulings[e+" of a completed step is a conflict first"] = decideTest{
					before, on(theRun, event, "done"), nil, entities.ErrConflict,
				}
				rulings[e+" of a failed step is a conflict first"] = decideTest{
					before, on(theRun, event, "broken"), nil, entities.ErrConflict,
				}
			}
			runDecideTests(t, rulings)
		})
	}
}

func TestDecideMissingRunIsNotFoundBySection3_3(t *testing.T) {
	t.Parallel()
	rulings := map[string]decideTest{}
	for _, event := range entities.EventTypes {
		if event != entities.EventRunCreated {
			rulings[string(event)] = decideTest{nil, on(theRun, event, "some_1"), nil, entities.ErrRunNotFound}
		}
	}
	runDecideTests(t, rulings)
}

func TestDecideStepsBySection3_7(t *testing.T) {
	t.Parallel()
	alive := func(events ...Request) []Request { return append([]Request{created, started}, events...) }
	pending := alive(step("step_created"))
	running := alive(step("step_created"), step("step_started"))
	done := append(running[:len(running):len(running)], step("step_completed"))
	broken := append(running[:len(running):len(running)], step("step_failed"))
	rulings := map[string]decideTest{
		"step_created creates": {alive(), step("step_created"), types{"step_created"}, nil},
		"step_created in a pending run creates": {
			[]Request{created}, step("step_created"), types{"step_created"}, nil,
		},
		"step_created twice is a conflict":            {pending, step("step_created"), nil, entities.ErrConflict},
		"step_created of an ended step is a conflict": {done, step("step_created"), nil, entities.ErrConflict},
		"step_started starts a pending step":          {pending, step("step_started"), types{"step_started"}, nil},
		"step_started starts a running step again":    {running, step("step_started"), types{"step_started"}, nil},
		"step_completed of a running step":            {running, step("step_completed"), types{"step_completed"}, nil},
		"step_completed of a step that never started": {pending, step("step_completed"), types{"step_completed"}, nil},
		"step_failed of a running step":               {running, step("step_failed"), types{"step_failed"}, nil},
		"step_retrying of a running step":             {running, step("step_retrying"), types{"step_retrying"}, nil},
		"step_retrying of a pending step":             {pending, step("step_retrying"), types{"step_retrying"}, nil},
	}
	for _, event := range eventsOfExistingStep {
		e := string(event)
		rulings[e+" of a missing step is not found"] = decideTest{alive(), step(event), nil, entities.ErrStepNotFound}
		rulings[e+" of a completed step is a conflict"] = decideTest{done, step(event), nil, entities.ErrConflict}
		rulings[e+" of a failed step is a conflict"] = decideTest{broken, step(event), nil, entities.ErrConflict}
	}
	runDecideTests(t, rulings)
}

func TestDecideHooksAndWaitsBySection3_8(t *testing.T) {
	t.Parallel()
	alive := func(events ...Request) []Request { return append([]Request{created, started}, events...) }
	open := alive(hook("hook_created"))
	disposed := alive(hook("hook_created"), hook("hook_disposed"))
	lost := alive(hookCreated(theRun, "hook_0", "T"), hookCreated(theRun, "hook_1", "T"))
	runDecideTests(t, map[string]decideTest{
		"hook_created creates":                          {alive(), hook("hook_created"), types{"hook_created"}, nil},
		"hook_created twice is a conflict":              {open, hook("hook_created"), nil, entities.ErrConflict},
		"hook_created of a disposed hook is a conflict": {disposed, hook("hook_created"), nil, entities.ErrConflict},
		"hook_created of a hook without its token is a conflict": {
			lost, hookCreated(theRun, "hook_1", "free"), nil, entities.ErrConflict,
		},
		"hook_created for the token of another hook of the run is a hook_conflict": {
			open, hookCreated(theRun, "hook_2", hook("hook_created").Data.Token), types{"hook_conflict"}, nil,
		},
		"hook_created for a released token creates": {
			disposed, hookCreated(theRun, "hook_2", hook("hook_created").Data.Token), types{"hook_created"}, nil,
		},
		"hook_received is appended": {open, hook("hook_received"), types{"hook_received"}, nil},
		"hook_received is appended any number of times": {
			append(open[:len(open):len(open)], hook("hook_received")), hook("hook_received"), types{"hook_received"}, nil,
		},
		"hook_received without its hook is not found":            {alive(), hook("hook_received"), nil, entities.ErrHookNotFound},
		"hook_received after hook_disposed is not found":         {disposed, hook("hook_received"), nil, entities.ErrHookNotFound},
		"hook_received of a hook without its token is not found": {lost, hook("hook_received"), nil, entities.ErrHookNotFound},
		"hook_disposed disposes":                                 {open, hook("hook_disposed"), types{"hook_disposed"}, nil},
		"hook_disposed without its hook is not found":            {alive(), hook("hook_disposed"), nil, entities.ErrHookNotFound},
		"hook_disposed twice is not found":                       {disposed, hook("hook_disposed"), nil, entities.ErrHookNotFound},
		"wait_created creates":                                   {alive(), sleep("wait_created"), types{"wait_created"}, nil},
		"wait_created twice is a conflict": {
			alive(sleep("wait_created")), sleep("wait_created"), nil, entities.ErrConflict,
		},
		"wait_completed completes": {
			alive(sleep("wait_created")), sleep("wait_completed"), types{"wait_completed"}, nil,
		},
		"wait_completed of a missing wait is a conflict": {alive(), sleep("wait_completed"), nil, entities.ErrConflict},
		"wait_completed twice is a conflict, not a repeat": {
			alive(sleep("wait_created"), sleep("wait_completed")), sleep("wait_completed"), nil, entities.ErrConflict,
		},
		"wait_created of a completed wait is a conflict": {
			alive(sleep("wait_created"), sleep("wait_completed")), sleep("wait_created"), nil, entities.ErrConflict,
		},
	})
}

func TestDecideAttributesBySection3_9(t *testing.T) {
	t.Parallel()
	attr := func(id, key string, reserved bool) Request {
		r := on(theRun, "attr_set", id)
		r.Data.Changes[0].Key, r.Data.AllowReserved = key, reserved
		return r
	}
	once := []Request{created, attr("attr_1", "a", false)}
	runDecideTests(t, map[string]decideTest{
		"attr_set on a pending run": {
			[]Request{created}, attr("attr_1", "a", false), types{"attr_set"}, nil,
		},
		"attr_set on a running run": {
			[]Request{created, started}, attr("attr_1", "a", false), types{"attr_set"}, nil,
		},
		"attr_set of the same ID again is a conflict": {once, attr("attr_1", "b", false), nil, entities.ErrConflict},
		"attr_set of another ID is appended":          {once, attr("attr_2", "a", false), types{"attr_set"}, nil},
		"attr_set without an ID is never a repeat": {
			[]Request{created, attr("", "a", false)}, attr("", "a", false), types{"attr_set"}, nil,
		},
		"attr_set of a reserved key is invalid": {
			[]Request{created}, attr("attr_1", "$a", false), nil, entities.ErrInvalid,
		},
		"attr_set of an allowed reserved key": {
			[]Request{created}, attr("attr_1", "$a", true), types{"attr_set"}, nil,
		},
		"attr_set of an invalid key does not use up its ID": {
			[]Request{created}, attr("attr_1", "", false), nil, entities.ErrInvalid,
		},
	})
}
