package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/await"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Planner translates the commands of one answer into requests for the log. It accesses no database: its fields are all
// that commands depend on.
type Planner struct {
	// Run is the run whose function sent the commands.
	Run entities.Run
	// Now is the time from which durations count.
	Now time.Time
	// Deployment returns the newest deployment of a workflow if the ID is empty, for [Latest], or the one that the ID
	// names, which may be an alias of a version of a flow. A [StartRefused] fails the step.
	Deployment func(workflow, id string) (string, error)
	// Condition returns an error if the condition of a signal is invalid.
	Condition func(string) error
}

// Plan is the result of the commands of one answer.
type Plan struct {
	// Requests are the requests for the log, in the order of the commands.
	Requests []eventlog.Request
	// Responses are the streams with responses to webhook requests.
	Responses []eventlog.WholeStream
	// Open are the steps that the function is executing itself.
	Open []entities.StepID
	// Seen is the position up to which the function knows the log; 0 means as far as the call has it.
	Seen int64
	// Await is what the run awaits after the answer; nil if each event that may wake it does.
	Await *await.Condition
	// Keep says which process keeps the run's state; nil if none does.
	Keep *Keep

	// commands holds for each request the index of its command.
	commands []int
	// ends is whether the last command ends the run.
	ends bool
}

// Continues reports whether the run goes on as another one.
func (p Plan) Continues() bool {
	n := len(p.Requests)
	return n > 0 && p.Requests[n-1].Continue != nil
}

// Know says up to which position the function knew the log, which the end of a run that goes on as another one records.
func (p Plan) Know(seq int64) {
	if p.Continues() {
		p.Requests[len(p.Requests)-1].Data.Seen = seq
	}
}

// Explain adds the index of the command to an error of the log about one of the requests. Other errors stay unchanged.
func (p Plan) Explain(err error) error {
	refused := (*eventlog.RefusedError)(nil)
	if !errors.As(err, &refused) || refused.Index >= len(p.commands) {
		return err
	}
	return fmt.Errorf("command %d: %w", p.commands[refused.Index], refused)
}

// Plan translates an answer, {"commands": […], "open": […], "seen": 7, "await": {…}, "keep": {…}}; an empty answer has
// no commands. Errors match [entities.ErrInvalid] and name the index of the invalid command.
func (planner Planner) Plan(answer []byte) (Plan, error) {
	var p Plan
	if len(bytes.TrimSpace(answer)) == 0 {
		return p, nil
	}
	var body struct {
		Commands []json.RawMessage `json:"commands"`
		Open     []entities.StepID `json:"open"`
		Seen     int64             `json:"seen"`
		Await    *awaited          `json:"await"`
		Keep     *Keep             `json:"keep"`
	}
	err := strictjson.DecodeLenient(answer, &body)
	if err != nil {
		return p, fmt.Errorf(`%w; want {"commands": […]}`, err)
	}
	if p.Await, err = body.Await.condition(); err != nil {
		return p, err
	}
	if p.Keep = body.Keep; p.Keep.validate() != nil {
		return p, p.Keep.validate()
	}
	if n := len(body.Commands); n > MaxCommands {
		return p, entities.Invalid("%d commands; the limit is %d", n, MaxCommands)
	}
	if err := checkOpen(body.Open); err != nil {
		return p, err
	}
	if body.Seen < 0 {
		return p, entities.Invalid("seen %d is not the position of an event", body.Seen)
	}
	p.Open, p.Seen = body.Open, body.Seen
	for i, text := range body.Commands {
		if err := planner.command(text, &p); err != nil {
			return Plan{}, fmt.Errorf("command %d: %w", i, err)
		}
		for len(p.commands) < len(p.Requests) {
			p.commands = append(p.commands, i)
		}
	}
	return p, nil
}

const (
	maxKeepName = 64
	maxKeepTime = 5 * time.Minute
)

// Keep is a hint in an answer: a process keeps the state of the run in memory for a while, so that the next call need
// not carry what that process knows.
type Keep struct {
	// Seq is the position in the run's log up to which the process knows it.
	Seq int64 `json:"seq"`
	// By is the name of the process.
	By string `json:"by"`
	// For is how long it keeps the state.
	For duration `json:"for"`
}

// Until returns when the process will have forgotten the run if it begins to keep it now.
func (k Keep) Until(now time.Time) time.Time { return now.Add(time.Duration(k.For)) }

func (k *Keep) validate() error {
	switch {
	case k == nil:
		return nil
	case k.Seq < 1:
		return entities.Invalid("keep: seq %d is no position in the log", k.Seq)
	case k.For <= 0 || time.Duration(k.For) > maxKeepTime:
		return entities.Invalid(`keep: want "for" between 0 and %s`, maxKeepTime)
	default:
		return entities.ValidateText("keep: by", k.By, maxKeepName)
	}
}

// checkOpen validates the IDs of the steps that a function is executing itself.
func checkOpen(open []entities.StepID) error {
	if n := len(open); n > MaxCommands {
		return entities.Invalid("open: %d steps; the limit is %d", n, MaxCommands)
	}
	for _, id := range open {
		if err := entities.ValidateID("open: id", string(id)); err != nil {
			return err
		}
	}
	return nil
}

// command is implemented by every type of command.
type command interface {
	requests(planner Planner) ([]eventlog.Request, error)
}

// response is a command that also writes a stream.
type response interface {
	stream(planner Planner) (eventlog.WholeStream, error)
}

// commands returns an empty command for each type.
var commands = map[string]func() command{
	"runStep":       func() command { return &runStep{} },
	"recordStep":    func() command { return &recordStep{} },
	"wait":          func() command { return &wait{} },
	"openHook":      func() command { return &openHook{} },
	"closeHook":     func() command { return &endPart{event: entities.EventHookDisposed} },
	"setAttributes": func() command { return &setAttributes{} },
	"setStore":      func() command { return &setStore{} },
	"startChild":    func() command { return &startChild{} },
	"startRun":      func() command { return &startRun{} },
	"emit":          func() command { return &emit{} },
	"reply":         func() command { return &reply{} },
	"respond":       func() command { return &respond{} },
	"cancelStep":    func() command { return &cancelStep{} },
	"cancelWait":    func() command { return &endPart{event: entities.EventWaitCancelled} },
	"cancelled":     func() command { return &cancelled{} },
	"complete":      func() command { return &complete{} },
	"continueAs":    func() command { return &continueAs{} },
	"fail":          func() command { return &fail{} },
}

// command decodes one command and adds it to the plan.
func (planner Planner) command(text json.RawMessage, p *Plan) error {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return entities.Invalid("want an object with a type: %v", err)
	}
	if p.ends {
		return entities.Invalid("%s: nothing may follow the command that ends the run", kind.Type)
	}
	empty, ok := commands[kind.Type]
	if !ok {
		return entities.Invalid("unknown command type %q", kind.Type)
	}
	c := empty()
	if err := strictjson.DecodeLenient(text, c); err != nil {
		return fmt.Errorf("%s: %w", kind.Type, err)
	}
	requests, err := c.requests(planner)
	if err != nil {
		return fmt.Errorf("%s: %w", kind.Type, err)
	}
	for i := range requests {
		if err := checkID(requests[i]); err != nil {
			return fmt.Errorf("%s: %w", kind.Type, err)
		}
		requests[i].RunID, requests[i].SpecVersion, requests[i].Once = planner.Run.ID, entities.SpecDriven, true
	}
	if len(p.Requests) == 0 { // the usual case: requests are large
		p.Requests = requests
	} else {
		p.Requests = append(p.Requests, requests...)
	}
	switch c.(type) {
	case *complete, *fail, *cancelled, *continueAs:
		p.ends = true
	}
	if r, ok := c.(response); ok {
		whole, err := r.stream(planner)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.Type, err)
		}
		p.Responses = append(p.Responses, whole)
	}
	return nil
}

// checkID validates the ID like the log does, but calls it "id" in the error, as the command does. Commands about the
// run itself need no ID.
func checkID(r eventlog.Request) error {
	id := strings.TrimPrefix(r.CorrelationID, AttributesID)
	switch r.Type {
	case entities.EventRunCompleted, entities.EventRunFailed, entities.EventRunCancelled:
		return nil
	case entities.EventAttrSet:
		if id == "" {
			return nil
		}
	default:
	}
	return entities.ValidateID("id", id)
}

// duration is a duration written as a JSON string: "1.5s", "10m", "48h".
type duration time.Duration

// maxDuration limits every duration: ten years.
const maxDuration = 10 * 365 * 24 * time.Hour

func (d *duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf(`%s is not a duration like "30s" or "48h"`, text)
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 || v > maxDuration {
		return fmt.Errorf(`%q is not a duration like "30s" or "48h" between 0 and %s`, s, maxDuration)
	}
	*d = duration(v)
	return nil
}
