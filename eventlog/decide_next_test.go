package eventlog

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

// Requests of clients of newer protocol versions.

// lazyStart returns a step_started that also creates its step.
func lazyStart(id entities.RunID, stepID string) Request {
	r := on(id, entities.EventStepStarted, stepID)
	r.Data.StepName, r.Payload = "charge", []byte("step input")
	return r
}

// resumption returns a hook_received with a resume ID.
func resumption(id entities.RunID, hookID, resumeID, digest string) Request {
	r := on(id, entities.EventHookReceived, hookID)
	r.Data.ResumeID, r.Data.ResumeDigest = resumeID, digest
	return r
}

// hookRetained returns a hook_created whose token is retained for a time from day on.
func hookRetained(id entities.RunID, hookID, token string, d time.Duration) Request {
	r := hookCreated(id, hookID, token)
	r.Data.TokenRetentionUntil = ptr(day.Add(d))
	return r
}

func TestDecideLazyStepStartBySection3_7(t *testing.T) {
	t.Parallel()
	lazy := lazyStart(theRun, "step_1")
	alive := func(events ...Request) []Request { return append([]Request{created, started}, events...) }
	both := types{"step_created", "step_started"}
	rulings := map[string]decideTest{
		"creates and starts":                             {alive(), lazy, both, nil},
		"in a pending run":                               {[]Request{created}, lazy, both, nil},
		"of a pending step is a conflict":                {alive(step("step_created")), lazy, nil, entities.ErrConflict},
		"of a running step is a conflict":                {alive(lazy), lazy, nil, entities.ErrConflict},
		"of a retrying step is a conflict":               {alive(lazy, step("step_retrying")), lazy, nil, entities.ErrConflict},
		"of a completed step is a conflict":              {alive(lazy, step("step_completed")), lazy, nil, entities.ErrConflict},
		"of a failed step is a conflict":                 {alive(lazy, step("step_failed")), lazy, nil, entities.ErrConflict},
		"without its run is not found":                   {nil, lazy, nil, entities.ErrRunNotFound},
		"a plain start after it is appended":             {alive(lazy), step("step_started"), types{"step_started"}, nil},
		"step_created after it is a conflict":            {alive(lazy), step("step_created"), nil, entities.ErrConflict},
		"without a name it is a plain start":             {alive(), withoutName(lazy), nil, entities.ErrStepNotFound},
		"without input it is a plain start":              {alive(), withoutPayload(lazy), nil, entities.ErrStepNotFound},
		"a plain start of a pending step may have input": {alive(step("step_created")), withoutName(lazy), types{"step_started"}, nil},
	}
	for _, end := range []Request{completed, failed, cancelled} {
		after := " after " + string(end.Type)
		rulings["of a new step"+after+" is a conflict"] = decideTest{alive(end), lazy, nil, entities.ErrConflict}
		rulings["of a running step"+after+" is a conflict"] = decideTest{alive(lazy, end), lazy, nil, entities.ErrConflict}
		rulings["of a pending step"+after+" is a conflict"] = decideTest{
			alive(step("step_created"), end), lazy, nil, entities.ErrConflict,
		}
	}
	runDecideTests(t, rulings)
}

func withoutName(r Request) Request {
	r.Data.StepName = ""
	return r
}

func withoutPayload(r Request) Request {
	r.Payload = nil
	return r
}

func TestDecideRepeatReturnsEarlierEvent(t *testing.T) {
	t.Parallel()
	resumed := resumption(theRun, "hook_1", "res_1", "d1")
	base := []Request{created, started, hook("hook_created"), hook("hook_received"), resumed}
	tests := map[string]struct {
		before []Request
		ask    Request
		seq    int64
	}{
		"run_started":                       {base, started, 2},
		"run_started with creation data":    {base, runRepaired(theRun), 2},
		"run_started after a resilient one": {[]Request{runRepaired(theRun)}, started, 2},
		"a resumption":                      {base, resumed, 5},
		"a resumption after hook_disposed":  {append(base[:5:5], hook("hook_disposed")), resumed, 5},
		"a resumption after run_completed":  {append(base[:5:5], completed), resumed, 5},
		"a resumption after another":        {append(base[:5:5], resumption(theRun, "hook_1", "res_2", "d2")), resumed, 5},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMemoryRun(t, test.before...)
			before := s.snapshot.clone()
			j := decideAll(s.facts(test.ask), []Request{test.ask}, s.at)
			got := j.outcomes[0]
			if got.Err != nil || !got.Repeated || len(j.events) > 0 || len(j.messages) > 0 {
				t.Fatalf("got %+v with %d events, want a repeat", got, len(j.events))
			}
			if got.Event.Seq != test.seq || got.Event.Type != test.ask.Type {
				t.Errorf("got %s at %d, want the event at %d", got.Event.Type, got.Event.Seq, test.seq)
			}
			if diff := cmp.Diff(before, j.after); diff != "" {
				t.Errorf("the snapshot changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestDecideResumptionsBySection3_8(t *testing.T) {
	t.Parallel()
	resumed := resumption(theRun, "hook_1", "res_1", "d1")
	open := []Request{created, started, hook("hook_created"), on(theRun, "hook_created", "hook_2")}
	once := append(open[:4:4], resumed)
	gone := append(once[:5:5], hook("hook_disposed"), on(theRun, "hook_disposed", "hook_2"))
	ended := append(once[:5:5], completed)
	rulings := map[string]decideTest{
		"the first is appended":          {open, resumed, types{"hook_received"}, nil},
		"another resumption is appended": {once, resumption(theRun, "hook_1", "res_2", "d1"), types{"hook_received"}, nil},
		"a hook_received without a resume ID is never a repeat": {
			append(once[:5:5], hook("hook_received")), hook("hook_received"), types{"hook_received"}, nil,
		},
		"a resumption of a missing hook":                    {[]Request{created, started}, resumed, nil, entities.ErrHookNotFound},
		"a new resumption after hook_disposed":              {gone, resumption(theRun, "hook_1", "res_2", "d1"), nil, entities.ErrHookNotFound},
		"a new resumption after the end":                    {ended, resumption(theRun, "hook_1", "res_2", "d1"), nil, entities.ErrHookNotFound},
		"a resumption of a missing run":                     {nil, resumed, nil, entities.ErrRunNotFound},
		"the same resume ID without a digest":               {once, resumption(theRun, "hook_1", "res_1", ""), nil, entities.ErrConflict},
		"a repeat without a digest":                         {append(open[:4:4], resumption(theRun, "hook_1", "r", "")), resumption(theRun, "hook_1", "r", ""), nil, nil},
		"the same resume ID with a new digest":              {append(open[:4:4], resumption(theRun, "hook_1", "r", "")), resumption(theRun, "hook_1", "r", "d"), nil, entities.ErrConflict},
		"the same resume ID for another hook is a conflict": {once, resumption(theRun, "hook_x", "res_1", "d1"), nil, entities.ErrConflict},
	}
	for when, before := range map[string][]Request{"": once, " after hook_disposed": gone, " after the end": ended} {
		rulings["the same again"+when] = decideTest{before, resumed, nil, nil}
		rulings["another digest"+when] = decideTest{before, resumption(theRun, "hook_1", "res_1", "d2"), nil, entities.ErrConflict}
		rulings["another hook"+when] = decideTest{before, resumption(theRun, "hook_2", "res_1", "d1"), nil, entities.ErrConflict}
	}
	runDecideTests(t, rulings)
}

// TestDecideIgnoresEarlierEventsOfMissingRun: facts from the log must not answer a request of another project.
func TestDecideIgnoresEarlierEventsOfMissingRun(t *testing.T) {
	t.Parallel()
	earlier := &entities.Event{
		CorrelationID: "hook_1", Data: entities.EventData{ResumeID: "res_1", ResumeDigest: "d1"},
	}
	f := facts{
		Snapshot: NewSnapshot(stranger), history: history{"hook_1": {{Type: "hook_created"}}, "attr_1": {{Type: "attr_set"}}},
		earlier: earlier, received: map[string]*receipt{"res_1": {earlier}},
	}
	for _, ask := range []Request{
		started, resumption(theRun, "hook_1", "res_1", "d1"), resumption(theRun, "hook_1", "res_1", "d2"),
		hookCreated(theRun, "hook_1", "T"), on(theRun, "attr_set", "attr_1"), lazyStart(theRun, "step_1"),
	} {
		if got, err := decide(f, &ask, day); !errors.Is(err, entities.ErrRunNotFound) || got != nil {
			t.Errorf("%s: got %v and error %v, want ErrRunNotFound", ask.Type, typesOf(got), err)
		}
	}
}

func TestDecideRetainedHooksBySection3_8(t *testing.T) {
	t.Parallel()
	const kept = time.Hour
	mine := []Request{created, started, hookRetained(theRun, "hook_1", "T", kept)}
	ended := append(mine[:3:3], completed)
	late := []Request{created, started, hookRetained(theRun, "hook_1", "T", -time.Hour), completed}
	tests := map[string]struct {
		before  []Request
		elapsed time.Duration // since day
		ask     Request
		want    types
		err     error
	}{
		"it is received while the run lives":                        {mine, 0, hook("hook_received"), types{"hook_received"}, nil},
		"it is received after the deadline while the run lives":     {mine, 2 * kept, hook("hook_received"), types{"hook_received"}, nil},
		"its token is taken after the deadline while the run lives": {mine, 2 * kept, hookCreated(theRun, "hook_2", "T"), types{"hook_conflict"}, nil},
		"it is disposed of after the deadline while the run lives":  {mine, 2 * kept, hook("hook_disposed"), types{"hook_disposed"}, nil},
		"it is not received after the end":                          {ended, kept / 2, hook("hook_received"), nil, entities.ErrHookNotFound},
		"it is disposed of after the end":                           {ended, kept / 2, hook("hook_disposed"), types{"hook_disposed"}, nil},
		"it is disposed of a millisecond before it expires":         {ended, kept - time.Millisecond, hook("hook_disposed"), types{"hook_disposed"}, nil},
		"it is not disposed of once it has expired":                 {ended, kept, hook("hook_disposed"), nil, entities.ErrHookNotFound},
		"it is disposed of once":                                    {append(ended[:4:4], hook("hook_disposed")), kept / 2, hook("hook_disposed"), nil, entities.ErrHookNotFound},
		"a deadline before the end retains nothing":                 {late, 5 * time.Second, hook("hook_disposed"), nil, entities.ErrHookNotFound},
		"a hook_created after the end is a conflict":                {ended, 2 * kept, hookCreated(theRun, "hook_2", "T"), nil, entities.ErrConflict},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMemoryRun(t, test.before...)
			s.at = day.Add(test.elapsed)
			if s.at.Before(s.snapshot.Run.UpdatedAt) {
				s.at = s.snapshot.Run.UpdatedAt
			}
			events, err := s.decide(test.ask)
			if !errors.Is(err, test.err) {
				t.Fatalf("got error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, typesOf(events)); diff != "" {
				t.Errorf("events differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideTokenOfRetainedHookBySection3_8(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		expires *time.Time
		want    entities.EventType
	}{
		"of a live hook":                   {nil, "hook_conflict"},
		"retained":                         {ptr(day.Add(time.Hour)), "hook_conflict"},
		"retained for another millisecond": {ptr(day.Add(time.Millisecond)), "hook_conflict"},
		"retained until now":               {ptr(day), "hook_created"},
		"retained until an earlier time":   {ptr(day.Add(-time.Hour)), "hook_created"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMemoryRun(t, created)
			s.at = day.Add(time.Second)
			expires := test.expires
			if expires != nil {
				expires = ptr(expires.Add(time.Second))
			}
			s.otherHooks["T"] = entities.Hook{RunID: "wrun_other", ID: "hook_9", Token: "T", ExpiresAt: expires}
			got, err := s.decide(hookCreated(theRun, "hook_1", "T"))
			if err != nil || len(got) != 1 || got[0].Type != test.want {
				t.Errorf("got %v and error %v, want %s", typesOf(got), err, test.want)
			}
		})
	}
}

func TestDecideTokenRetentionLimitBySection3_8(t *testing.T) {
	t.Parallel()
	const most = 30 * 24 * time.Hour
	for _, test := range []struct {
		until time.Duration
		want  error
	}{
		{-most, nil}, {0, nil}, {most, nil}, {most + time.Millisecond, entities.ErrInvalid}, {100 * most, entities.ErrInvalid},
	} {
		r := hookRetained(theRun, "hook_1", "T", test.until)
		if err := r.validate(day); !errors.Is(err, test.want) {
			t.Errorf("%s: got error %v, want %v", test.until, err, test.want)
		}
	}
}

// TestFoldEndsHooks: the end of a run deletes all hooks but the retained ones.
func TestFoldEndsHooks(t *testing.T) {
	t.Parallel()
	s := newMemoryRun(t, created, started,
		hookRetained(theRun, "kept", "K", time.Hour), hookRetained(theRun, "until now", "N", 6*time.Second),
		hookRetained(theRun, "over", "O", time.Second), hookCreated(theRun, "plain", "P"), completed)
	if len(s.snapshot.Hooks) != 1 {
		t.Errorf("got hooks %v, want one", s.snapshot.Hooks)
	}
	kept := s.snapshot.Hooks["kept"]
	if want := ptr(day.Add(time.Hour)); !cmp.Equal(kept.ExpiresAt, want) || !cmp.Equal(kept.RetainUntil, want) {
		t.Errorf("got expiry %v and retention %v, want %v", kept.ExpiresAt, kept.RetainUntil, want)
	}
	// A second run_cancelled changes nothing.
	s = newMemoryRun(t, created, hookRetained(theRun, "kept", "K", time.Hour), cancelled, cancelled)
	if len(s.snapshot.Hooks) != 1 {
		t.Errorf("got hooks %v after the second run_cancelled, want one", s.snapshot.Hooks)
	}
}

func TestDecideAttributesAtCreationBySection3_4(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]Request{"run_created": created, "run_started": runRepaired(theRun)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base.Data.Attributes = map[string]string{"tier": "gold", "$r": "0"}
			if err := base.validate(day); !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("a reserved key: got error %v, want ErrInvalid", err)
			}
			base.Data.AllowReserved = true
			if err := base.validate(day); err != nil {
				t.Fatalf("an allowed reserved key: %v", err)
			}
			change := on(theRun, "attr_set", "attr_1")
			change.Data.Changes = []entities.AttributeChange{{Key: "tier"}, {Key: "new", Value: ptr("1")}}
			s := newMemoryRun(t, base)
			if diff := cmp.Diff(base.Data.Attributes, s.snapshot.Run.Attributes); diff != "" {
				t.Errorf("attributes differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(base.Data.Attributes, s.log[0].Data.Attributes); diff != "" {
				t.Errorf("attributes in the log differ (-want +got):\n%s", diff)
			}
			if _, err := s.append(change); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"$r": "0", "new": "1"}
			if diff := cmp.Diff(want, s.snapshot.Run.Attributes); diff != "" {
				t.Errorf("attributes after a change differ (-want +got):\n%s", diff)
			}
			if len(s.log[0].Data.Attributes) != 2 {
				t.Errorf("the change modified an earlier event: %v", s.log[0].Data.Attributes)
			}
		})
	}
	t.Run("run_started of a run that is there changes none", func(t *testing.T) {
		t.Parallel()
		late := runRepaired(theRun)
		late.Data.Attributes = map[string]string{"a": "b"}
		if s := newMemoryRun(t, created, late); len(s.snapshot.Run.Attributes) != 0 {
			t.Errorf("got attributes %v, want none", s.snapshot.Run.Attributes)
		}
	})
}

// TestOnlyRunsOfTheirOwnBegin: what a parent waits for goes with what has begun.
func TestOnlyRunsOfTheirOwnBegin(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		run    entities.Run
		begins bool
	}{
		"a run":            {entities.Run{}, true},
		"a child":          {entities.Run{ParentID: "wrun_parent"}, false},
		"a detached child": {entities.Run{ParentID: "wrun_parent", Detached: true}, true},
	} {
		if got := firstWork(&tt.run, &entities.Event{})[0].BeginsRun; got != tt.begins {
			t.Errorf("%s begins: %v, want %v", name, got, tt.begins)
		}
	}
}
