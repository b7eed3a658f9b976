package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/contract/approval"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow/condition"
)

// Event is what a flow reads of an event in a call.
type Event struct {
	Seq           int64              `json:"seq"`
	Type          entities.EventType `json:"type"`
	CorrelationID string             `json:"correlationId"`
	CreatedAt     time.Time          `json:"createdAt"`
	Data          struct {
		Skipped string `json:"skipped"`
	} `json:"data"`
	Payload json.RawMessage `json:"payload"`
	// Encoding and Truncated say why an event whose log has a payload comes without one: see [view.Event].
	Encoding  string `json:"encoding"`
	Truncated bool   `json:"truncated"`
}

// Call is a call of the function contract, as far as a flow reads it.
type Call struct {
	Run    contract.Run `json:"run"`
	Events []Event      `json:"events"`
}

// Answer returns the answer to a call: the commands that follow from the log, which must be complete. The same call
// always has the same answer. If the context ends before, its error is returned.
func (p *Program) Answer(ctx context.Context, c Call) ([]byte, error) {
	s := p.Begin()
	if err := s.Apply(c.Run, c.Events); err != nil {
		return nil, err
	}
	commands, err := s.Next(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Commands []any `json:"commands"`
	}{commands})
}

// State is what a program knows of a run: the fold of the run's log up to a position.
type State struct{ root *state }

// Begin returns the state of a run without a log.
func (p *Program) Begin() *State { return &State{newState(p, &history{}, frame{})} }

// Apply folds the next events of the log. What Next has decided before counts as carried out: if it was not, see
// [State.Continue].
func (s *State) Apply(run contract.Run, events []Event) error {
	s.root.touched.forget()
	return s.Continue(run, events)
}

// Continue is [State.Apply] for a state of which nobody has carried out what Next has decided: the next decision is
// also about the events of the last one.
func (s *State) Continue(run contract.Run, events []Event) error {
	s.root.run = run
	if run.Input != nil {
		s.root.input = run.Input
	}
	return s.More(events)
}

// More folds further events that were there when the last ones were applied.
func (s *State) More(events []Event) error {
	for _, e := range events {
		if err := s.root.apply(e); err != nil {
			return fmt.Errorf("event %d: %w", e.Seq, notOurs(err))
		}
	}
	s.root.input = orNull(s.root.input)
	return nil
}

// notOurs makes an error one that [ErrLog] matches.
func notOurs(err error) error {
	if errors.Is(err, ErrLog) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLog, err)
}

// Seq returns the position of the last event.
func (s *State) Seq() int64 { return s.root.seq }

// Bytes returns how much memory the state takes, about.
func (s *State) Bytes() int64 { return s.root.bytes + int64(len(s.root.input)) }

// Next returns the commands that follow. The state stays as the log has it.
func (s *State) Next(ctx context.Context) ([]any, error) {
	t := decision{state: s.root.clone(nil), round: &round{stopped: ctx.Err, decoded: map[any]any{}}}
	t.decide()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.commands, nil
}

// The commands of the function contract that flows use.
type (
	// runStep calls a function, which has a name, an input and a deployment, or makes a request.
	runStep struct {
		Type           string          `json:"type"`
		ID             string          `json:"id"`
		Name           string          `json:"name,omitempty"`
		Input          json.RawMessage `json:"input,omitempty"`
		Deployment     string          `json:"deployment,omitempty"`
		HTTP           *httpFields     `json:"http,omitempty"`
		Timeout        string          `json:"timeout,omitempty"`
		AttemptTimeout string          `json:"attemptTimeout,omitempty"`
		Retry          json.RawMessage `json:"retry,omitempty"`
		Async          bool            `json:"async,omitempty"`

		Limits   []entities.LimitUse `json:"limits,omitempty"`
		Priority string              `json:"priority,omitempty"`
	}
	recordStep struct {
		Type    string            `json:"type"`
		ID      string            `json:"id"`
		Name    string            `json:"name"`
		Output  json.RawMessage   `json:"output,omitempty"`
		Error   *contract.Failure `json:"error,omitempty"`
		Skipped string            `json:"skipped,omitempty"`
	}
	startChild struct {
		Type       string          `json:"type"`
		ID         string          `json:"id"`
		Workflow   string          `json:"workflow"`
		Input      json.RawMessage `json:"input"`
		Deployment string          `json:"deployment"`
		Timeout    string          `json:"timeout,omitempty"`

		Attributes map[string]string `json:"attributes,omitempty"`
		Key        string            `json:"key,omitempty"`
		// Delay is only for startRun.
		Delay string `json:"delay,omitempty"`
	}
	wait struct {
		Type  string     `json:"type"`
		ID    string     `json:"id"`
		For   string     `json:"for,omitempty"`
		Until *time.Time `json:"until,omitempty"`
	}
	// openHook waits for a signal, for a payload, or for votes.
	openHook struct {
		Type     string             `json:"type"`
		ID       string             `json:"id"`
		Signal   *hookSignal        `json:"signal,omitempty"`
		Token    string             `json:"token,omitempty"`
		Webhook  *webhookFields     `json:"webhook,omitempty"`
		Approval *approval.Settings `json:"approval,omitempty"`
	}
	hookSignal struct {
		Name      string `json:"name"`
		Condition string `json:"condition,omitempty"`
		LookBack  string `json:"lookBack,omitempty"`
	}
	// partOf is a command that needs nothing but an ID: closeHook, cancelStep, cancelWait.
	partOf struct {
		Type string `json:"type"`
		ID   string `json:"id,omitempty"`
	}
	cancelChild struct {
		Type  string `json:"type"`
		ID    string `json:"id"`
		Grace string `json:"grace"`
	}
	complete struct {
		Type   string          `json:"type"`
		Output json.RawMessage `json:"output"`
	}
	fail struct {
		Type  string           `json:"type"`
		Error contract.Failure `json:"error"`
	}
)

// work returns the command of a step that somebody else executes, without what that is.
func work(id string, a *action, where *stepScope) (runStep, error) {
	uses, err := a.limitsOf(where)
	return runStep{
		Type: "runStep", ID: id, Retry: a.retry, Timeout: duration(a.timeout), AttemptTimeout: duration(a.attemptTimeout),
		Async: a.async, Limits: uses, Priority: duration(a.priority),
	}, err
}

// duration returns a duration as commands have it; empty for none.
func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// The codes of failures that flows report.
const (
	// codeExpression means that an expression could not be evaluated.
	codeExpression = "flow.expression"
	// codeInput means that the input does not fit the flow's schema.
	codeInput = "flow.input"
	// codeWaitTimeout means that no signal or payload came, or no approval, in time.
	codeWaitTimeout = "wait_timeout"
)

func expressionFailed(where string, err error) contract.Failure {
	return contract.Failure{Message: fmt.Sprintf("%s: %v", where, err), Code: codeExpression}
}

// Values are those of an event that the expressions of a start can read, each as JSON; nil for what it does not have.
type Values struct{ Data, Signal, Run json.RawMessage }

// maxFilled limits the expressions of one value.
const maxFilled = 100

// Fill returns a JSON value with values of an event in place of the expressions in its texts, which are written as in
// documents: "${data.customer}". A value without expressions is returned byte for byte. Fill fails with
// [entities.ErrInvalid] if the event does not have the values.
func Fill(value json.RawMessage, v Values) (json.RawMessage, error) {
	t, err := parseFill(value)
	if t == nil || err != nil {
		return value, err
	}
	filled, err := t.json(&eventScope{Values: v})
	if err != nil {
		return nil, entities.Invalid("%v", err)
	}
	return filled, nil
}

// FillText is [Fill] for a text. A value that is no text becomes its JSON.
func FillText(text string, v Values) (string, error) {
	if !strings.Contains(text, "${") {
		return text, nil
	}
	value, err := Fill(appendText(nil, text), v)
	return plain(value), err
}

// CheckFill fails with [entities.ErrInvalid] on a value that [Fill] refuses whatever the event is.
func CheckFill(value json.RawMessage) error {
	_, err := parseFill(value)
	return err
}

// parseFill compiles a JSON value; nil if it has no expressions.
func parseFill(value json.RawMessage) (*template, error) {
	if !bytes.Contains(value, []byte("${")) {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	p := fillParser{decoder: d}
	t, err := p.value()
	switch {
	case err != nil:
		return nil, entities.Invalid("it is not JSON: %v", err)
	case len(p.faults) > 0:
		return nil, entities.Invalid("%s", p.faults[0].Message)
	case p.expressions > maxFilled:
		return nil, entities.Invalid("it has %d expressions; the limit is %d", p.expressions, maxFilled)
	}
	return t, nil
}

// fillParser reads a JSON value as a template.
type fillParser struct {
	decoder     *json.Decoder
	faults      Faults
	expressions int
}

func (p *fillParser) value() (*template, error) {
	token, err := p.decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		return p.container(token)
	case string:
		return textTemplate(&node{kind: kindText, text: token}, &p.faults, nil, p.visit), nil
	default:
		text, err := json.Marshal(token)
		return &template{fixed: text}, err
	}
}

func (p *fillParser) container(open json.Delim) (*template, error) {
	t := &template{items: []*template{}}
	if open == '{' {
		t.names = []string{}
	}
	for p.decoder.More() {
		if t.names != nil {
			token, err := p.decoder.Token()
			if err != nil {
				return nil, err
			}
			name, err := fieldName(token.(string)) // the decoder has checked that it is one
			if err != nil {
				p.faults.add(&node{}, CodeExpression, "%v", err)
			}
			t.names = append(t.names, name)
		}
		item, err := p.value()
		if err != nil {
			return nil, err
		}
		t.items = append(t.items, item)
	}
	_, err := p.decoder.Token()
	return t, err
}

// visit checks that an expression reads what an event has.
func (p *fillParser) visit(n *node, e *expression) {
	p.expressions++
	for _, name := range e.vars {
		if !slices.Contains([]string{varData, varSignal, varRun}, name) {
			p.faults.add(n, CodeExpression, "the expression %q reads %s; known are data, signal and run", e.text, name)
		}
	}
}

// eventScope evaluates the expressions of one value.
type eventScope struct {
	Values

	made int
}

func (s *eventScope) value(name string, _ []string) json.RawMessage {
	return orNull(map[string]json.RawMessage{varData: s.Data, varSignal: s.Signal, varRun: s.Run}[name])
}

func (s *eventScope) decode(name string, _ []string) (any, error) {
	return condition.Decode(s.value(name, nil))
}

// now is not known: expressions that read it are refused.
func (s *eventScope) now() time.Time { return time.Time{} }

func (s *eventScope) left() int { return maxMade - s.made }

func (s *eventScope) spend(bytes int) error {
	if bytes > s.left() {
		return errTooMuch
	}
	s.made += bytes
	return nil
}
