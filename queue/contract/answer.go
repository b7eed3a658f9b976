package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Scene is what commands are understood by.
type Scene struct {
	// Run is the run whose function gave them.
	Run entities.Run
	// Now is the time that durations count from.
	Now time.Time
	// Deployment finds the deployment to start a workflow on, for "latest".
	Deployment func(workflow string) (string, error)
	// Condition fails when a signal's condition is not one.
	Condition func(string) error
}

// Plan is what commands come to.
type Plan struct {
	// Requests are those for the log, in the order of the commands.
	Requests []eventlog.Request
	// Responses are the streams to write, which those wait for who sent requests to webhooks.
	Responses []eventlog.WholeStream

	// commands are the positions of the commands that the requests are of.
	commands []int
	// ends says that the last command ends the run.
	ends bool
}

// Explain says which command it was whose request the log refused, if that is what an error says.
func (p Plan) Explain(err error) error {
	refused := (*eventlog.RefusedError)(nil)
	if !errors.As(err, &refused) || refused.Index >= len(p.commands) {
		return err
	}
	return fmt.Errorf("command %d: %w", p.commands[refused.Index], refused)
}

// Plan reads the commands of an answer, {"commands": […]}. An empty answer has none. It fails with
// [entities.ErrInvalid], and says which command is wrong.
func (s Scene) Plan(answer []byte) (Plan, error) {
	var p Plan
	if len(bytes.TrimSpace(answer)) == 0 {
		return p, nil
	}
	var body struct {
		Commands []json.RawMessage `json:"commands"`
	}
	if err := strictjson.DecodeLenient(answer, &body); err != nil {
		return p, fmt.Errorf(`%w; want {"commands": […]}`, err)
	}
	if n := len(body.Commands); n > MaxCommands {
		return p, entities.Invalid("%d commands; the limit is %d", n, MaxCommands)
	}
	for i, text := range body.Commands {
		if err := s.command(text, &p); err != nil {
			return Plan{}, fmt.Errorf("command %d: %w", i, err)
		}
		for len(p.commands) < len(p.Requests) {
			p.commands = append(p.commands, i)
		}
	}
	return p, nil
}

// command is one of the types of commands.
type command interface {
	requests(s Scene) ([]eventlog.Request, error)
}

// response is a command that writes a stream as well.
type response interface {
	stream(s Scene) (eventlog.WholeStream, error)
}

// commands makes an empty command of each type.
var commands = map[string]func() command{
	"runStep":       func() command { return &runStep{} },
	"recordStep":    func() command { return &recordStep{} },
	"wait":          func() command { return &wait{} },
	"openHook":      func() command { return &openHook{} },
	"closeHook":     func() command { return &closeHook{} },
	"setAttributes": func() command { return &setAttributes{} },
	"startChild":    func() command { return &startChild{} },
	"respond":       func() command { return &respond{} },
	"complete":      func() command { return &complete{} },
	"fail":          func() command { return &fail{} },
}

// command adds a command to the plan.
func (s Scene) command(text json.RawMessage, p *Plan) error {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return entities.Invalid("it is no object with a type: %v", err)
	}
	if p.ends {
		return entities.Invalid("%s: nothing may follow the command that ends the run", kind.Type)
	}
	empty, ok := commands[kind.Type]
	if !ok {
		return entities.Invalid("%q is no type of command", kind.Type)
	}
	c := empty()
	if err := strictjson.DecodeLenient(text, c); err != nil {
		return fmt.Errorf("%s: %w", kind.Type, err)
	}
	requests, err := c.requests(s)
	if err != nil {
		return fmt.Errorf("%s: %w", kind.Type, err)
	}
	for i := range requests {
		if err := checkID(requests[i]); err != nil {
			return fmt.Errorf("%s: %w", kind.Type, err)
		}
		requests[i].RunID, requests[i].SpecVersion, requests[i].Once = s.Run.ID, entities.SpecDriven, true
	}
	p.Requests = append(p.Requests, requests...)
	switch c.(type) {
	case *complete, *fail:
		p.ends = true
	}
	if r, ok := c.(response); ok {
		whole, err := r.stream(s)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.Type, err)
		}
		p.Responses = append(p.Responses, whole)
	}
	return nil
}

// checkID refuses IDs as the log would, but by the name that the command has for them. What is about the run itself
// needs none.
func checkID(r eventlog.Request) error {
	id := strings.TrimPrefix(r.CorrelationID, attributesID)
	switch r.Type {
	case entities.EventRunCompleted, entities.EventRunFailed:
		return nil
	case entities.EventAttrSet:
		if id == "" {
			return nil
		}
	default:
	}
	return entities.ValidateID("id", id)
}

// duration is a span of time as JSON has it: "1.5s", "10m", "48h".
type duration time.Duration

// maxDuration bounds everything that can be waited for: ten years.
const maxDuration = 10 * 365 * 24 * time.Hour

func (d *duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf(`%s is no duration like "30s" or "48h"`, text)
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 || v > maxDuration {
		return fmt.Errorf(`%q is no duration like "30s" or "48h", from 0 to %s`, s, maxDuration)
	}
	*d = duration(v)
	return nil
}
