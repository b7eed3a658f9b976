// Package replay compares logs with what a flow's program decides: whether a binary, or another document, would decide
// what a log has. It needs no server.
package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
)

// Difference is the first place where a program decides otherwise than a log.
type Difference struct {
	// Seq is the position of the event that the program would not have led to.
	Seq int64
	// Logged is what the log has there, and Decided what the program decides.
	Logged, Decided string
}

// String says both.
func (d Difference) String() string {
	return fmt.Sprintf("event %d: the log has %s, and now it would be %s", d.Seq, d.Logged, d.Decided)
}

// entry is an event of a log.
type entry struct {
	flow.Event

	made *decision // nil for events that no answer has made
	// isChild says that a step is created that has a run of its own.
	isChild bool
}

// Compare has the program decide again what a log has, event by event, and returns the first difference; nil if there
// is none. What comes from outside, such as results of steps, is taken from the log, and so is every decision before:
// it is never made again. What a run has not decided yet is not compared.
func Compare(
	ctx context.Context, p *flow.Program, run contract.Run, events []json.RawMessage,
) (*Difference, error) {
	log, err := readLog(events)
	if err != nil {
		return nil, err
	}
	c := comparison{run: run, log: log, head: cursor{state: p.Begin()}, trail: cursor{state: p.Begin()}}
	for at := 0; at < len(log); {
		if log[at].made == nil {
			at++
			continue
		}
		next, difference, err := c.compare(ctx, at)
		if err != nil || difference != nil {
			return difference, err
		}
		c.decided, at = next, next
	}
	return nil, nil //nolint:nilnil // no difference is no error
}

type comparison struct {
	run     contract.Run
	log     []entry
	decided int // how many events the decisions before need
	// head is the state at each decision, and trail one before it, for answers that are older than the events before them.
	// Both only go forward: a log is folded twice at most.
	head, trail cursor
}

// cursor is a state that goes forward in a log.
type cursor struct {
	state *flow.State
	known int  // the events that it has
	asked bool // whether all that it has led to is in the log, so that only what is new counts
}

// compare finds the call whose answer is the decisions that begin at a position, and returns the position after them.
// The answer may be older than the events before it, since a call takes a while: so each state since the last decision
// may be the one that was decided on. The newest one that fits counts.
func (c *comparison) compare(ctx context.Context, at int) (next int, d *Difference, err error) {
	next, d, err = c.try(ctx, &c.head, at, at)
	if c.head.asked = err == nil && d == nil; c.head.asked || err != nil {
		return next, nil, err
	}
	fits := 0
	for known := max(c.decided, 1); known < at; known++ {
		next, differs, err := c.try(ctx, &c.trail, known, at)
		if err != nil {
			return 0, nil, err
		}
		if c.trail.asked = differs == nil && known == at-1; differs == nil {
			fits = next
		}
	}
	switch {
	case fits > 0:
		return fits, nil, nil
	case isDeadline(c.log[at].Event):
		return len(c.log), nil, nil
	default:
		return 0, d, nil
	}
}

// try compares what follows from the first known events with the decisions that begin at a position.
func (c *comparison) try(ctx context.Context, from *cursor, known, at int) (next int, d *Difference, err error) {
	decided, err := c.ask(ctx, from, known)
	if err != nil {
		if ctx.Err() != nil {
			return 0, nil, err
		}
		return 0, c.differs(at, err.Error()), nil
	}
	next, missing := c.match(at, decided)
	if missing != nil {
		return 0, c.differs(next, missing.String()), nil
	}
	return next, nil, nil
}

// isDeadline reports whether a run may have failed because its own time was up, which the program does not decide.
func isDeadline(e flow.Event) bool {
	return e.Type == entities.EventRunFailed && codeOf(e.Payload) == contract.CodeTimeout
}

// ask returns what the program decides when it knows the first events.
func (c *comparison) ask(ctx context.Context, from *cursor, known int) ([]decision, error) {
	events := make([]flow.Event, 0, known-from.known)
	for _, e := range c.log[from.known:known] {
		events = append(events, e.Event)
	}
	fold := from.state.More
	if from.asked || from.known == 0 {
		fold = func(events []flow.Event) error { return from.state.Apply(c.run, events) }
	}
	from.known = known
	if err := fold(events); err != nil {
		return nil, err
	}
	commands, err := from.state.Next(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := json.Marshal(map[string]any{"commands": commands})
	if err != nil {
		return nil, err
	}
	return decisionsOf(answer)
}

// match compares decisions with those in the log from a position on. It returns the position after them, or that of the
// first event that is another one, and what was decided there.
func (c *comparison) match(at int, decided []decision) (next int, missing *decision) {
	if len(decided) == 0 {
		return at, &decision{}
	}
	for _, d := range decided {
		if d.what == "cancel" && (c.isChild(d.id) || c.hasEnded(d.id, at)) {
			continue // the step ends later, when its run tells that, or ended as it began: the start of a run
		}
		for at < len(c.log) && c.log[at].made == nil {
			at++ // such as the first attempt, which begins in the same transaction
		}
		if at == len(c.log) || !d.is(*c.log[at].made) {
			return min(at, len(c.log)-1), &d
		}
		at++
	}
	return at, nil
}

// isChild reports whether a step has a run of its own.
func (c *comparison) isChild(id string) bool {
	return slices.ContainsFunc(c.log, func(e entry) bool { return e.isChild && e.CorrelationID == id })
}

// hasEnded reports whether a step has completed before a position.
func (c *comparison) hasEnded(id string, at int) bool {
	return slices.ContainsFunc(c.log[:at], func(e entry) bool {
		return e.Type == entities.EventStepCompleted && e.CorrelationID == id
	})
}

func (c *comparison) differs(at int, decided string) *Difference {
	e := c.log[at]
	logged := strings.TrimSpace(string(e.Type) + " " + e.CorrelationID)
	if e.made != nil {
		logged = e.made.String()
	}
	return &Difference{Seq: e.Seq, Logged: logged, Decided: decided}
}

// readLog reads the events of a log, and finds those that answers have made.
func readLog(events []json.RawMessage) ([]entry, error) {
	log, more := make([]entry, len(events)), make([]details, len(events))
	for i, text := range events {
		if err := errors.Join(json.Unmarshal(text, &log[i].Event), json.Unmarshal(text, &more[i])); err != nil {
			return nil, fmt.Errorf("event %d of the log: %w", i+1, err)
		}
	}
	for i := range log {
		e := log[i].Event
		switch {
		case e.Type == entities.EventStepCreated && i+1 < len(log) && isRecorded(e, more[i], log[i+1].Event):
			log[i].made = recorded(e, more[i], log[i+1].Event)
		case i > 0 && isRecorded(log[i-1].Event, more[i-1], e): // it is a part of the decision before
		default:
			log[i].made = made(e, more[i])
			log[i].isChild = e.Type == entities.EventStepCreated && bytes.Contains(more[i].Data.Step, []byte(`"childId":`))
		}
	}
	return log, nil
}

// isRecorded reports whether a step was created and ended by one decision: both events are in one transaction, and the
// step has nothing that the server would execute.
func isRecorded(created flow.Event, d details, ended flow.Event) bool {
	return created.Type == entities.EventStepCreated && d.Data.Step == nil &&
		created.CorrelationID == ended.CorrelationID &&
		(ended.Type == entities.EventStepCompleted || ended.Type == entities.EventStepFailed)
}

// recorded returns the decision that has recorded a step with its end. Such a step has an input if it tells others
// something: by a signal, or by the start of a run.
func recorded(created flow.Event, d details, ended flow.Event) *decision {
	if ended.Data.Skipped != "" {
		return &decision{what: "skip", id: ended.CorrelationID}
	}
	if input := canonical(created.Payload); input != null {
		return &decision{what: "begin", id: created.CorrelationID, name: d.Data.StepName, value: input}
	}
	logged := &decision{what: "record", id: ended.CorrelationID, value: canonical(ended.Payload)}
	if ended.Type == entities.EventStepFailed || isStarted(ended.Payload) {
		logged.start = d.Data.StepName
	}
	return logged
}

// isStarted reports whether an output is that of a step which has started a run.
func isStarted(output json.RawMessage) bool {
	var started map[string]json.RawMessage
	return json.Unmarshal(output, &started) == nil && len(started) == 1 && started["runId"] != nil
}

// details are what is read of an event besides [flow.Event].
type details struct {
	Data struct {
		StepName string          `json:"stepName"`
		Signal   string          `json:"signal"`
		Step     json.RawMessage `json:"step"`
	} `json:"data"`
}

// made returns the decision that has led to an event; nil if it comes from outside.
func made(e flow.Event, d details) *decision {
	id := e.CorrelationID
	switch e.Type {
	case entities.EventStepCreated:
		return &decision{what: "begin", id: id, name: d.Data.StepName, value: canonical(e.Payload)}
	case entities.EventStepFailed:
		if codeOf(e.Payload) == contract.CodeCancelled {
			return &decision{what: "cancel", id: id}
		}
	case entities.EventWaitCreated:
		return &decision{what: "wait", id: id}
	case entities.EventHookCreated:
		return &decision{what: "await a signal", id: id, name: d.Data.Signal}
	case entities.EventRunCompleted:
		return &decision{what: "complete", value: canonical(e.Payload)}
	case entities.EventRunFailed:
		return &decision{what: "fail", value: canonical(e.Payload)}
	default: // what closes hooks and waits follows from what is compared, and anybody may cancel a run
	}
	return nil
}

func codeOf(payload json.RawMessage) string {
	var f contract.Failure
	_ = json.Unmarshal(payload, &f) // anything else has no code
	return f.Code
}

// decision is what an answer does, as far as it is compared.
type decision struct {
	what, id, name string
	value          string // canonical JSON
	// start is what a step in the log has started if it is the start of a run without input, or of one that was refused:
	// the log cannot tell these from what is recorded.
	start string
}

// nothing is how no decision is shown.
const nothing = "nothing yet"

func (d decision) is(logged decision) bool {
	if d.what == "begin" && d.value == null && logged.start != "" {
		return d.id == logged.id && d.name == logged.start
	}
	logged.start = ""
	return d == logged
}

// String returns the decision in one line.
func (d *decision) String() string {
	if d == nil || d.what == "" {
		return nothing
	}
	text := d.what
	if d.id != "" {
		text += " " + d.id
	}
	if d.name != "" && d.name != d.id {
		text += " as " + d.name
	}
	if d.value != "" {
		const most = 200
		text += " with " + d.value[:min(len(d.value), most)]
	}
	return text
}

// command has the fields of commands that are compared.
type command struct {
	Type     string          `json:"type"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Workflow string          `json:"workflow"`
	Input    json.RawMessage `json:"input"`
	// HTTP is the request of a step that is one.
	HTTP    *contract.HTTPRequest `json:"http"`
	Data    json.RawMessage       `json:"data"`
	Output  json.RawMessage       `json:"output"`
	Error   *contract.Failure     `json:"error"`
	Skipped string                `json:"skipped"`
	// Signal is the name of the signal that is sent, or an object about the one that is awaited.
	Signal json.RawMessage `json:"signal"`
}

// signal returns the name of the signal that is sent or awaited.
func (c command) signal() (name string) {
	var awaited struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(c.Signal, &name) != nil {
		_ = json.Unmarshal(c.Signal, &awaited) // a hook may wait for something else
		name = awaited.Name
	}
	return name
}

// decisionsOf returns the decisions in an answer.
func decisionsOf(answer []byte) (list []decision, err error) {
	var body struct {
		Commands []command `json:"commands"`
	}
	if err := json.Unmarshal(answer, &body); err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	for _, c := range body.Commands {
		if d := c.decision(); d.what != "" {
			list = append(list, d)
		}
	}
	return list, nil
}

func (c command) decision() decision {
	value := c.Output
	if c.Error != nil {
		value = c.Error.Text()
	}
	switch c.Type {
	case "closeHook", "cancelWait", "cancelled", "respond":
		return decision{}
	case "recordStep":
		if c.Skipped != "" {
			return decision{what: "skip", id: c.ID}
		}
		return decision{what: "record", id: c.ID, value: canonical(value)}
	case "cancelStep":
		return decision{what: "cancel", id: c.ID}
	case "wait":
		return decision{what: "wait", id: c.ID}
	case "openHook":
		return decision{what: "await a signal", id: c.ID, name: c.signal()}
	case "emit":
		if canonical(c.Data) == null {
			return decision{what: "record", id: c.ID, value: null}
		}
		return decision{what: "begin", id: c.ID, name: c.signal(), value: canonical(c.Data)}
	case "complete", "fail":
		return decision{what: c.Type, value: canonical(value)}
	default:
		return decision{what: "begin", id: c.ID, name: cmp.Or(c.Name, c.Workflow, c.ID), value: c.inputValue()}
	}
}

// inputValue returns what a step begins with, as the log has it.
func (c command) inputValue() string {
	if c.HTTP == nil {
		return canonical(c.Input)
	}
	request := *c.HTTP
	_ = request.Complete() // the log says what the server has made of it
	input, err := json.Marshal(request)
	if err != nil {
		return err.Error()
	}
	return canonical(input)
}

// null is the form of what is missing.
const null = "null"

// canonical returns a JSON value in the one form that equal values share.
func canonical(text json.RawMessage) string {
	if len(text) == 0 {
		return null
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return string(text)
	}
	again, err := json.Marshal(value)
	if err != nil {
		return string(text)
	}
	return string(again)
}
