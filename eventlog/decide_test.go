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

// The transition tables themselves are tested in package entities, and through Postgres by
// TestTransitionTablesThroughPostgres. What follows is what they do not say.

func TestDecideResilientStartsBySection3_5(t *testing.T) {
	t.Parallel()
	repaired := runRepaired(theRun)
	rulings := map[string]decideTest{
		"without its run":              {nil, repaired, types{"run_created", "run_started"}, nil},
		"of a pending run":             {[]Request{created}, repaired, types{"run_started"}, nil},
		"of a running run":             {[]Request{created, started}, repaired, nil, nil},
		"a run_created after it":       {[]Request{repaired}, created, nil, entities.ErrConflict},
		"a plain one without its run":  {nil, started, nil, entities.ErrRunNotFound},
		"a plain one of a running run": {[]Request{created, started}, started, nil, nil},
	}
	for _, end := range []Request{completed, failed, cancelled} {
		rulings["after "+string(end.Type)] = decideTest{[]Request{created, end}, repaired, nil, entities.ErrRunEnded}
	}
	runDecideTests(t, rulings)
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

func TestDecideTokensBySection3_8(t *testing.T) {
	t.Parallel()
	alive := func(events ...Request) []Request { return append([]Request{created, started}, events...) }
	open := alive(hook("hook_created"))
	disposed := alive(hook("hook_created"), hook("hook_disposed"))
	lost := alive(hookCreated(theRun, "hook_0", "T"), hookCreated(theRun, "hook_1", "T"))
	runDecideTests(t, map[string]decideTest{
		"hook_created of a hook without its token is a conflict": {
			lost, hookCreated(theRun, "hook_1", "free"), nil, entities.ErrConflict,
		},
		"hook_created for the token of another hook of the run is a hook_conflict": {
			open, hookCreated(theRun, "hook_2", hook("hook_created").Data.Token), types{"hook_conflict"}, nil,
		},
		"hook_created for a released token creates": {
			disposed, hookCreated(theRun, "hook_2", hook("hook_created").Data.Token), types{"hook_created"}, nil,
		},
		"hook_received is appended any number of times": {
			append(open[:len(open):len(open)], hook("hook_received")), hook("hook_received"), types{"hook_received"}, nil,
		},
		"hook_received of a hook without its token is not found": {lost, hook("hook_received"), nil, entities.ErrHookNotFound},
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
