package why

import (
	"cmp"
	"fmt"

	"github.com/stepwell-dev/stepwell/entities"
)

// summaries say what each kind of reason means in the few words that a row of a list has room for. They need no more
// than [OfMany] reads.
var summaries = map[Kind]func(r Reason) string{
	Stranded:          func(Reason) string { return "nothing would move it" },
	ProjectPaused:     func(r Reason) string { return fmt.Sprintf("project %s is paused", r.Name) },
	Paused:            func(r Reason) string { return fmt.Sprintf("%s is paused by %s", r.Pause.Kind, r.Pause.PausedBy) },
	Parked:            func(r Reason) string { return fmt.Sprintf("%s is parked: it failed %s", r.call(), r.times()) },
	DeploymentMissing: func(r Reason) string { return fmt.Sprintf("deployment %s is not registered", r.DeploymentID) },
	Diverged:          func(Reason) string { return "the code changed under the run" },
	FunctionRefuses:   func(Reason) string { return "the function refuses to go on" },
	AnswerRefused:     func(Reason) string { return "the server refuses the function's answer" },
	LimitDeadlock:     func(r Reason) string { return fmt.Sprintf("deadlock at limit %s", r.Limit) },
	LimitPaused:       func(r Reason) string { return fmt.Sprintf("limit %s is paused", r.Limit) },
	Unhealthy:         func(r Reason) string { return fmt.Sprintf("deployment %s is unhealthy", r.DeploymentID) },
	Unreachable: func(r Reason) string {
		return fmt.Sprintf("deployment %s is unreachable: tried %s", r.DeploymentID, r.times())
	},
	ConnectionClosed: func(r Reason) string { return fmt.Sprintf("%s was cut off %s", r.call(), r.times()) },
	FunctionFails:    func(r Reason) string { return fmt.Sprintf("%s failed %s", r.call(), r.times()) },
	TaskFails:        func(r Reason) string { return fmt.Sprintf("a task of the server failed %s", r.times()) },
	StepBackoff:      func(r Reason) string { return fmt.Sprintf("step %s: %s comes", r.part(), r.attempt()) },
	Cancelling:       func(Reason) string { return "it was asked to cancel" },
	Called:           func(Reason) string { return "its function is being called" },
	StepRunning:      func(r Reason) string { return fmt.Sprintf("step %s is running: %s", r.part(), r.attempt()) },
	StepQueued:       func(r Reason) string { return fmt.Sprintf("step %s waits for a free slot", r.part()) },
	Queued:           func(Reason) string { return "its call waits for a free slot" },
	Client:           func(Reason) string { return "the app has not taken its message" },
	Unscheduled:      func(Reason) string { return "something has just happened" },
	StartDelay:       func(Reason) string { return "it starts later" },
	LimitFull:        func(r Reason) string { return fmt.Sprintf("no slot of limit %s is free", r.Limit) },
	DeploymentFull:   func(r Reason) string { return fmt.Sprintf("deployment %s has no free call", r.DeploymentID) },
	Rate:             func(r Reason) string { return fmt.Sprintf("the rate of limit %s is used up", r.Limit) },
	Child:            func(r Reason) string { return fmt.Sprintf("waits for child %s", r.part()) },
	Hook:             func(r Reason) string { return fmt.Sprintf("waits for hook %s", r.hook()) },
	Webhook:          func(r Reason) string { return fmt.Sprintf("waits for webhook %s", r.HookID) },
	Signal:           func(r Reason) string { return fmt.Sprintf("waits for signal %s", r.Name) },
	Approval:         func(r Reason) string { return fmt.Sprintf("waits for approval %s", r.HookID) },
	Wait:             func(Reason) string { return "sleeps" },
	Inbox:            func(r Reason) string { return fmt.Sprintf("waits for a message to inbox %s", r.Name) },
}

// Summary says what the reason means in a few words, without its times. It has no text of payloads or errors.
func (r Reason) Summary() string { return summaries[r.Kind](r) }

// part is the name of the step, or its ID.
func (r Reason) part() string { return cmp.Or(entities.Title(r.Name), string(r.StepID)) }
