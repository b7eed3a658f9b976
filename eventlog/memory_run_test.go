package eventlog

import (
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// theRun is the run of tests without a database.
var theRun = newRunID()

// memoryRun is a run in memory. It provides the facts that the database would.
type memoryRun struct {
	snapshot *Snapshot
	log      []entities.Event
	at       time.Time
	// otherHooks has the live hooks of other runs by their tokens.
	otherHooks map[string]entities.Hook
}

// newMemoryRun creates a run in memory by appending the requests, one second apart.
func newMemoryRun(t tb, before ...Request) *memoryRun {
	t.Helper()
	s := &memoryRun{snapshot: NewSnapshot(home), at: day, otherHooks: map[string]entities.Hook{}}
	for _, r := range before {
		if _, err := s.append(r); err != nil {
			t.Fatalf("append %s %s: %v", r.Type, r.CorrelationID, err)
		}
		s.at = s.at.Add(time.Second)
	}
	return s
}

func (s *memoryRun) facts(r Request) facts {
	f := facts{Snapshot: s.snapshot, history: history{}}
	for _, e := range s.log {
		f.history.note(&e)
	}
	for _, e := range s.log {
		if e.Type == r.Type && (r.Type == entities.EventRunStarted ||
			r.Type == entities.EventHookReceived && r.Data.ResumeID != "" && e.Data.ResumeID == r.Data.ResumeID) {
			f.earlier, f.received = &e, map[string]*receipt{r.Data.ResumeID: {&e}}
			break
		}
	}
	if r.AsAsked {
		f.earlier = nil
		for _, e := range slices.Backward(s.log) {
			if e.Type == entities.EventCancelRequested {
				f.earlier = &e
				break
			}
		}
	}
	if r.Type != entities.EventHookCreated {
		return f
	}
	f.holders = map[string]*entities.Hook{}
	if hook, ok := s.otherHooks[r.Data.Token]; ok {
		f.holders[hook.Token] = &hook
	}
	for _, hook := range s.snapshot.Hooks {
		if hook.Token == r.Data.Token {
			f.holders[hook.Token] = &hook
		}
	}
	return f
}

// decide returns the decision on a request.
func (s *memoryRun) decide(r Request) ([]entities.Event, error) {
	f := s.facts(r)
	return decideFenced(f, &r, f.eventTime(s.at))
}

// append decides on a request and appends the events.
func (s *memoryRun) append(r Request) ([]entities.Event, error) {
	events, err := s.decide(r)
	for _, e := range events {
		s.snapshot.Apply(&e)
	}
	s.log = append(s.log, events...)
	return events, err
}

// typesOf returns the types of the events.
func typesOf(events []entities.Event) []entities.EventType {
	var types []entities.EventType
	for _, e := range events {
		types = append(types, e.Type)
	}
	return types
}

// The requests of one run.
var (
	created   = runCreated(theRun)
	started   = onRun(theRun, entities.EventRunStarted)
	completed = onRun(theRun, entities.EventRunCompleted)
	failed    = onRun(theRun, entities.EventRunFailed)
	cancelled = onRun(theRun, entities.EventRunCancelled)
	// asked asks the run to cancel, and asAsked ends it then.
	asked   = onRun(theRun, entities.EventCancelRequested)
	asAsked = Request{RunID: theRun, Type: entities.EventRunCancelled, SpecVersion: 3, AsAsked: true}
	// dropped cancels a step.
	dropped = Request{
		RunID: theRun, Type: entities.EventStepFailed, CorrelationID: "step_1", SpecVersion: 3,
		Data: entities.EventData{Cancelled: true},
	}
)

func step(event entities.EventType) Request  { return on(theRun, event, "step_1") }
func hook(event entities.EventType) Request  { return on(theRun, event, "hook_1") }
func sleep(event entities.EventType) Request { return on(theRun, event, "wait_1") }
