package eventlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
)

func TestDecideKeepsAllFieldsOfRequest(t *testing.T) {
	t.Parallel()
	r := step("step_completed")
	r.OccurredAt = ptr(day.Add(-time.Minute))
	r.Extra, r.Payload = []byte{0xa0}, []byte("result")
	r.Data = entities.EventData{StepName: "charge", Attempt: ptr(2)}
	s := newMemoryRun(t, created, started, step("step_created"))
	got, err := s.decide(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []entities.Event{{
		RunID: theRun, Seq: 4, Type: entities.EventStepCompleted, CorrelationID: "step_1", SpecVersion: 3,
		CreatedAt: s.at, OccurredAt: r.OccurredAt, Data: r.Data, Extra: r.Extra, Payload: r.Payload,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("event differs (-want +got):\n%s", diff)
	}
}

func TestDecideRunStartedCarriesNoDataBySection3_5(t *testing.T) {
	t.Parallel()
	r := runRepaired(theRun)
	r.OccurredAt, r.Extra = ptr(day), []byte{0xa0}
	bare := entities.Event{
		RunID: theRun, Seq: 2, Type: entities.EventRunStarted, SpecVersion: 3, CreatedAt: day, OccurredAt: r.OccurredAt,
	}
	t.Run("on a pending run", func(t *testing.T) {
		t.Parallel()
		s := newMemoryRun(t, created)
		s.at = day
		got, err := s.decide(r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]entities.Event{bare}, got); diff != "" {
			t.Errorf("events differ (-want +got):\n%s", diff)
		}
	})
	t.Run("what it carries goes into the run_created before it", func(t *testing.T) {
		t.Parallel()
		got, err := newMemoryRun(t).decide(r)
		if err != nil {
			t.Fatal(err)
		}
		creation := entities.Event{
			RunID: theRun, Seq: 1, Type: entities.EventRunCreated, SpecVersion: 3, CreatedAt: day, OccurredAt: r.OccurredAt,
			Data: r.Data, Extra: r.Extra, Payload: r.Payload,
		}
		if diff := cmp.Diff([]entities.Event{creation, bare}, got); diff != "" {
			t.Errorf("events differ (-want +got):\n%s", diff)
		}
	})
}

func TestDecideResilientStartOutsideTheWindowIsInvalid(t *testing.T) {
	t.Parallel()
	late := day.Add(25 * time.Hour)
	t.Run("when it would create the run", func(t *testing.T) {
		t.Parallel()
		s := newMemoryRun(t)
		s.at = late
		if _, err := s.decide(runRepaired(theRun)); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("got error %v, want ErrInvalid", err)
		}
	})
	t.Run("but not when the run is there", func(t *testing.T) {
		t.Parallel()
		s := newMemoryRun(t, created)
		s.at = late
		if _, err := s.decide(runRepaired(theRun)); err != nil {
			t.Errorf("got error %v, want the run started", err)
		}
	})
}

func TestDecideStepStartedKeepsNoInputBySection3_7(t *testing.T) {
	t.Parallel()
	r := step("step_started")
	r.Payload, r.Data = []byte("input"), entities.EventData{StepName: "charge", Attempt: ptr(1)}
	r.Extra = []byte("owner")
	got, err := newMemoryRun(t, created).decide(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []entities.Event{
		{
			RunID: theRun, Seq: 2, Type: "step_created", CorrelationID: "step_1", SpecVersion: 3, CreatedAt: day.Add(time.Second),
			Data: entities.EventData{StepName: "charge"}, Payload: []byte("input"),
		},
		{
			RunID: theRun, Seq: 3, Type: "step_started", CorrelationID: "step_1", SpecVersion: 3, CreatedAt: day.Add(time.Second),
			Data: r.Data, Extra: r.Extra,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events differ (-want +got):\n%s", diff)
	}
}

func TestDecideStepNotDueBySection3_7(t *testing.T) {
	t.Parallel()
	due := day.Add(time.Hour)
	retrying := step("step_retrying")
	retrying.Data.RetryAfter = &due
	tests := map[string]struct {
		at   time.Time
		left time.Duration // 0: it may start
	}{
		"an hour early":       {day, time.Hour},
		"a millisecond early": {due.Add(-time.Millisecond), time.Millisecond},
		"on time":             {due, 0},
		"late":                {due.Add(time.Minute), 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMemoryRun(t)
			for _, r := range []Request{created, step("step_created"), step("step_started"), retrying} {
				if _, err := s.append(r); err != nil {
					t.Fatal(err)
				}
			}
			s.at = test.at
			_, err := s.decide(step("step_started"))
			if test.left == 0 {
				if err != nil {
					t.Fatalf("got error %v, want none", err)
				}
				return
			}
			if diff := cmp.Diff(error(&entities.NotYetError{StepID: "step_1", RetryAfter: test.left}), err); diff != "" {
				t.Errorf("error differs (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("other reports of the step do not wait", func(t *testing.T) {
		t.Parallel()
		for _, event := range []entities.EventType{"step_completed", "step_failed", "step_retrying"} {
			s := newMemoryRun(t, created, step("step_created"), retrying)
			if _, err := s.decide(step(event)); err != nil {
				t.Errorf("%s: got error %v, want none", event, err)
			}
		}
	})
	t.Run("a retry without a time may start at once", func(t *testing.T) {
		t.Parallel()
		s := newMemoryRun(t, created, step("step_created"), retrying, step("step_retrying"))
		if _, err := s.decide(step("step_started")); err != nil {
			t.Errorf("got error %v, want none", err)
		}
	})
}

func TestDecideHookConflictBySection3_8(t *testing.T) {
	t.Parallel()
	r := hookCreated(theRun, "hook_1", "T")
	r.Extra, r.Payload, r.Data.IsWebhook = []byte{0xa0}, []byte("metadata"), ptr(true)
	s := newMemoryRun(t, created)
	s.otherHooks["T"] = entities.Hook{RunID: "wrun_other", ID: "hook_9", Token: "T"}
	got, err := s.decide(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []entities.Event{{
		RunID: theRun, Seq: 2, Type: entities.EventHookConflict, CorrelationID: "hook_1", SpecVersion: 3, CreatedAt: s.at,
		Data: entities.EventData{Token: "T", ConflictingRunID: "wrun_other"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events differ (-want +got):\n%s", diff)
	}
	s.snapshot.Apply(&got[0])
	if n := len(s.snapshot.Hooks); n != 0 {
		t.Errorf("the run has %d hooks, want none", n)
	}
}

func TestDecideAttributeLimitCountsExistingAttributes(t *testing.T) {
	t.Parallel()
	fill := on(theRun, entities.EventAttrSet, "attr_1")
	fill.Data.Changes = nil
	for i := range 64 {
		fill.Data.Changes = append(fill.Data.Changes, entities.AttributeChange{Key: fmt.Sprint("k", i), Value: ptr("")})
	}
	more := on(theRun, entities.EventAttrSet, "attr_2")
	more.Data.Changes[0].Key = "one more"
	s := newMemoryRun(t, created, fill)
	if _, err := s.decide(more); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("65th attribute: got error %v, want ErrInvalid", err)
	}
	again := more
	again.Data.Changes = []entities.AttributeChange{{Key: "k0", Value: ptr("new")}}
	if _, err := s.decide(again); err != nil {
		t.Errorf("overwriting: got error %v, want none", err)
	}
}

func TestEventTimeNeverDecreases(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		last *time.Time
		now  time.Time
		want time.Time
	}{
		"no run yet":        {nil, day, day},
		"time has passed":   {ptr(day), day.Add(time.Second), day.Add(time.Second)},
		"no time passed":    {ptr(day), day, day},
		"the clock is back": {ptr(day), day.Add(-time.Hour), day},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts{Snapshot: NewSnapshot(home)}
			if test.last != nil {
				f.Run = &entities.Run{UpdatedAt: *test.last}
			}
			if got := f.eventTime(test.now); !got.Equal(test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestDecideRefusesUnverifiedPayloads: a hook that requires signed requests receives nothing else, whatever way it comes.
func TestDecideRefusesUnverifiedPayloads(t *testing.T) {
	t.Parallel()
	open := func(id, scheme string) Request {
		spec := entities.WebhookSpec{Verify: scheme, Secret: scheme}
		return Request{
			RunID: theRun, Type: entities.EventHookCreated, CorrelationID: id, SpecVersion: 3,
			Data: entities.EventData{Token: "token of " + id, Webhook: &spec},
		}
	}
	before := []Request{created, open("signed", "stripe"), open("open", "")}
	for name, tt := range map[string]struct {
		hook, via, verified string
		unverified          bool
		want                error
	}{
		"API":                         {"signed", webhook.ViaAPI, "", false, webhook.ErrUnverified},
		"SDK":                         {"signed", webhook.ViaSDK, "", false, webhook.ErrUnverified},
		"signal":                      {"signed", webhook.ViaSignal, "", false, webhook.ErrUnverified},
		"unsigned request":            {"signed", webhook.ViaWebhook, "", false, webhook.ErrUnverified},
		"another scheme":              {"signed", webhook.ViaWebhook, "github", false, webhook.ErrUnverified},
		"the scheme":                  {"signed", webhook.ViaWebhook, "stripe", false, nil},
		"API, accepted":               {"signed", webhook.ViaAPI, "", true, nil},
		"API, no signature needed":    {"open", webhook.ViaAPI, "", false, nil},
		"SDK, no signature needed":    {"open", webhook.ViaSDK, "", false, nil},
		"signal, no signature needed": {"open", webhook.ViaSignal, "", false, nil},
		"no such hook":                {"other", webhook.ViaAPI, "", false, entities.ErrHookNotFound},
	} {
		s := newMemoryRun(t, before...)
		events, err := s.decide(Request{
			RunID: theRun, Type: entities.EventHookReceived, CorrelationID: tt.hook, SpecVersion: 3, Unverified: tt.unverified,
			Data: entities.EventData{Via: tt.via, Verified: tt.verified},
		})
		if !errors.Is(err, tt.want) || (len(events) == 1) != (tt.want == nil) {
			t.Errorf("%s: got %v, %v; want error %v", name, events, err, tt.want)
		}
	}
}
