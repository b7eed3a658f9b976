package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/contract"
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

// Apply folds the next events of the log. What Next has decided before counts as carried out: if it was not, the state
// must not be used any more.
func (s *State) Apply(run contract.Run, events []Event) error {
	s.root.run = run
	if run.Input != nil {
		s.root.input = run.Input
	}
	s.root.news.forget()
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
func (s *State) Bytes() int64 { return s.root.held + int64(len(s.root.input)) }

// Next returns the commands that follow. The state stays as the log has it.
func (s *State) Next(ctx context.Context) ([]any, error) {
	t := turn{state: s.root.clone(nil), round: &round{stopped: ctx.Err, decoded: map[any]any{}}}
	t.decide()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.commands, nil
}

// The commands of the function contract that flows use.
type (
	runStep struct {
		Type           string          `json:"type"`
		ID             string          `json:"id"`
		Name           string          `json:"name"`
		Input          json.RawMessage `json:"input"`
		Deployment     string          `json:"deployment"`
		Timeout        string          `json:"timeout,omitempty"`
		AttemptTimeout string          `json:"attemptTimeout,omitempty"`
		Retry          json.RawMessage `json:"retry,omitempty"`
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
	}
	wait struct {
		Type  string     `json:"type"`
		ID    string     `json:"id"`
		For   string     `json:"for,omitempty"`
		Until *time.Time `json:"until,omitempty"`
	}
	openHook struct {
		Type   string     `json:"type"`
		ID     string     `json:"id"`
		Signal hookSignal `json:"signal"`
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
	complete struct {
		Type   string          `json:"type"`
		Output json.RawMessage `json:"output"`
	}
	fail struct {
		Type  string           `json:"type"`
		Error contract.Failure `json:"error"`
	}
)

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
	// codeWaitTimeout means that no signal came in time.
	codeWaitTimeout = "wait_timeout"
)

func expressionFailed(where string, err error) contract.Failure {
	return contract.Failure{Message: fmt.Sprintf("%s: %v", where, err), Code: codeExpression}
}
