package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// ErrCheckRefused means that a function cannot replay logs without executing what it comes to.
var ErrCheckRefused = errors.New("check refused")

// CheckRefusedError is an [ErrCheckRefused] with the reason.
type CheckRefusedError struct{ Reason string }

// Error implements error.
func (e *CheckRefusedError) Error() string { return e.Reason }

// Is makes errors.Is(err, ErrCheckRefused) true.
func (e *CheckRefusedError) Is(target error) bool { return target == ErrCheckRefused }

// Verdict says what became of the replay of a log.
type Verdict string

// The verdicts.
const (
	// Replays: the code comes to the end of the log.
	Replays Verdict = "replays"
	// Diverges: the code asks for something else than the log has.
	Diverges Verdict = "diverges"
	// Blocks: the code comes to an error that blocks the run, such as a workflow that it does not have.
	Blocks Verdict = "blocks"
	// Unchecked: nothing is known, because the log is too long or the function gave no such answer.
	Unchecked Verdict = "unchecked"
)

// Checked is the outcome of a check. Code and Message are empty for a log that replays.
type Checked struct {
	Verdict       Verdict
	Code, Message string
}

const (
	// checkTimeout is how long the replay of one log may take.
	checkTimeout = 30 * time.Second
	// maxCheckAnswer limits the answer to a check, in bytes.
	maxCheckAnswer = 1 << 20
)

// Checker replays the logs of open runs with the code at a URL, before it goes on with them. Nothing is written, and
// nothing is executed: no step, no work of any kind.
type Checker struct {
	calls *queue.Caller
	queue *queue.Queue
}

// NewChecker returns a checker that makes the calls.
func NewChecker(q *queue.Queue, calls *queue.Caller) *Checker { return &Checker{calls, q} }

// Offers fails with an [ErrCheckRefused] unless the function at the URL says that it knows checks. It is asked by
// OPTIONS and without a body: what does not know checks would take one for an invocation, and might execute steps.
func (c *Checker) Offers(ctx context.Context, p entities.Project, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, noAnswer(checkTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, url, nil)
	if err != nil {
		return entities.Invalid("%v", err)
	}
	req.Header.Set("User-Agent", "stepwell")
	resp, err := c.calls.Call(req, p, nil)
	if err != nil {
		return &CheckRefusedError{"the function cannot be asked whether it knows checks: " + reasonOf(ctx, err)}
	}
	_ = resp.Body.Close()
	for name := range strings.SplitSeq(resp.Header.Get(contract.HeaderFeatures), ",") {
		if strings.TrimSpace(name) == contract.TypeCheck && resp.StatusCode/100 == 2 {
			return nil
		}
	}
	return &CheckRefusedError{fmt.Sprintf("the function answers %d to OPTIONS, without %q in %s, so it may not know "+
		"checks, and is called for none: deploy it with a newer SDK, or replay exported runs in its tests",
		resp.StatusCode, contract.TypeCheck, contract.HeaderFeatures)}
}

// reasonOf returns the text of a call's error, without addresses.
func reasonOf(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); errors.Is(err, ctx.Err()) && cause != nil {
		err = cause
	}
	return queue.Storable(egress.Redact(err.Error()))
}

// Check has the function at the URL replay the log of a run, which has the given events. [Checker.Offers] must have
// succeeded.
func (c *Checker) Check(ctx context.Context, run entities.Run, log []entities.Event, url string) Checked {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, noAnswer(checkTimeout))
	defer cancel()
	a, err := c.ask(ctx, run, log, url)
	if err != nil {
		return Checked{Unchecked, "", reasonOf(ctx, err)}
	}
	return a.checked(int64(len(log)))
}

// ask makes the call.
func (c *Checker) ask(ctx context.Context, run entities.Run, log []entities.Event, url string) (answer, error) {
	body, err := c.encode(ctx, run, log)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "stepwell")
	req.Header.Set(contract.HeaderRun, string(run.ID))
	resp, err := c.calls.Call(req, run.Project, body)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode}
	a.body, err = readAnswer(resp, maxCheckAnswer)
	return a, err
}

// encode returns the body of the call: an invocation without a credential, whose events are all known.
func (c *Checker) encode(ctx context.Context, run entities.Run, log []entities.Event) (body []byte, err error) {
	known, size := int64(len(log)), int64(0)
	for _, e := range log {
		size += int64(len(e.Payload))
	}
	call := contract.Call{
		Type: contract.TypeCheck, Attempt: 1, Server: contract.Offer(), Run: contract.About(run), Known: &known,
	}
	err = c.queue.Processors().Use(ctx, 2*size, func() error {
		for i := range log {
			shown := view.Of(&log[i])
			text, err := json.Marshal(shown)
			if err != nil {
				return fmt.Errorf("encode event %d: %w", shown.Seq, err)
			}
			if i == 0 {
				call.Run.Input = shown.Payload
			}
			call.Events = append(call.Events, text)
		}
		body, err = json.Marshal(call)
		return err
	})
	return body, err
}

// checked returns what an answer says about a log of the length.
func (a answer) checked(length int64) Checked {
	var done struct {
		Replayed int64 `json:"replayed"`
	}
	if a.ok() && json.Unmarshal(a.body, &done) == nil && done.Replayed == length {
		return Checked{Verdict: Replays}
	}
	f, _ := parseFailure(a, nil)
	switch {
	case a.status != http.StatusInternalServerError || f.Code == "":
		return Checked{Unchecked, f.Code, fmt.Sprintf("the answer, %d, is none to a check: %s", a.status, f.Message)}
	case f.Code == message.CodeDiverged:
		return Checked{Diverges, f.Code, f.Message}
	default:
		return Checked{Blocks, f.Code, f.Message}
	}
}
