package stepwell

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// longLog is the length of a log from which on a run had better continue as another one: that of what a call carries.
const longLog = 1000

// LogLength returns about how many events the run's log has up to here: what the workflow has asked for, and what came
// of it. It counts what replays.
func (w *Context) LogLength() int {
	w.co.CheckRead()
	return w.exec.engine.Length()
}

// ShouldContinue reports whether the run should soon end with [Workflow.ContinueAs], because its log gets long: it has
// 1,000 events or more, besides the messages that wait in its inboxes.
func (w *Context) ShouldContinue() bool {
	w.co.CheckRead()
	return w.exec.engine.Length()-w.exec.engine.Unread() >= longLog
}

// ContinueAs ends the run, and begins another one of the same workflow, which goes on with its work:
//
//	for {
//		if w.ShouldContinue() {
//			return Account.ContinueAs(w, state)
//		}
//		…
//	}
//
// One transaction does both. The next run has the input, and takes over key, attributes, store, deadline, slots of
// limits, and the inboxes with the messages that the workflow has not received. If the run is a child, its parent waits
// for the next run, as does [Run.Wait]. All else ends as at any end of a run: steps and timers are dropped, hooks
// closed, children cancelled. A saga is not undone, but what would undo it is not known to the next run: continue
// outside of it.
//
// The workflow must return what ContinueAs returns. A run that was asked to cancel does not continue, but ends.
func (d *Workflow[I, O]) ContinueAs(w *Context, in I) (O, error) {
	w.co.Check()
	if d.name != w.exec.info.Workflow {
		return *new(O), Fail(codeMisuse, fmt.Sprintf(
			"a run of %s continues as one of %[1]s, not of %s: start that with Child", w.exec.info.Workflow, d.name))
	}
	input, err := encode(in)
	if err != nil {
		return *new(O), Permanent(fmt.Errorf("encode the input of the next run: %w", err))
	}
	return *new(O), &continuation{input}
}

// continuation is the error of a workflow whose run goes on as another one.
type continuation struct{ input json.RawMessage }

// Error implements error.
func (*continuation) Error() string {
	return "the run continues as another one: return this error from the workflow's function"
}

func isContinuation(err error) bool {
	_, ok := errors.AsType[*continuation](err)
	return ok
}

// continueAs is the command that ends a run that goes on as another one.
type continueAs struct {
	Type  string           `json:"type"`
	Input json.RawMessage  `json:"input"`
	Read  map[string]int64 `json:"read,omitempty"`
}

// continuing returns the command for a continuation.
func (x *execution) continuing(c *continuation) any {
	return continueAs{"continueAs", c.input, x.engine.Taken()}
}

// takeOver gives the execution the store of the run with whose work it goes on.
func (x *execution) takeOver(log []engine.Event) {
	for _, e := range log {
		if e.Type != "store_set" || e.ID != log[0].Data.ContinuedFrom {
			continue
		}
		var stored map[string]json.RawMessage
		_ = json.Unmarshal(e.Payload, &stored) // the server has checked it
		for key, value := range stored {
			x.store[key] = entry{value, func() int64 { return e.Seq }}
		}
	}
}
