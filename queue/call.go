package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// answer is what a function answered.
type answer struct {
	status     int
	retryAfter time.Duration
	body       []byte
}

func (a answer) ok() bool { return a.status/100 == 2 }

// errAnswerTooLarge: the function answered more than the contract allows.
var errAnswerTooLarge = fmt.Errorf("the answer is larger than %d bytes", contract.MaxAnswer)

// errNoAnswer is the cause of a call's end.
type errNoAnswer struct{ within time.Duration }

func (e errNoAnswer) Error() string { return fmt.Sprintf("no answer within %s", e.within) }

// ask calls a function and returns what it answers, unless the run ends, or the time is over. The run's end closes
// the connection: so the function can tell.
func (w *deliverer) ask(ctx context.Context, d delivery, c contract.Call, timeout time.Duration) (answer, error) {
	if d.URL == "" {
		return answer{}, &laterError{unregistered(d)}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNoAnswer{timeout})
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		if w.options.Runs.log.WatchEnd(ctx, d.Project, d.RunID) == nil {
			end(entities.ErrRunEnded)
		}
	}()
	a, err := w.postCall(ctx, d, c)
	if err == nil {
		return a, nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, entities.ErrRunEnded) || errors.Is(cause, errDrainOver) {
		return answer{}, cause
	} else if late := (errNoAnswer{}); errors.As(cause, &late) {
		return answer{}, late
	}
	return answer{}, err
}

func (w *deliverer) postCall(ctx context.Context, d delivery, c contract.Call) (answer, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return answer{}, fmt.Errorf("encode call: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "stepwell")
	req.Header.Set(contract.HeaderInvocation, d.Lease)
	req.Header.Set(contract.HeaderRun, string(d.RunID))
	key := string(d.RunID)
	if d.Work == entities.WorkStep {
		key += "/" + d.Subject
	}
	req.Header.Set(contract.HeaderIdempotencyKey, key)
	w.options.Observer.Call(ctx, req.Header)
	if err := w.options.Signer.sign(req, d.Project, body); err != nil {
		return answer{}, err
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, retryAfter: retryAfter(resp.Header.Get("Retry-After"), w.options.Runs.log.Now())}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, contract.MaxAnswer+1)); err != nil {
		return answer{}, fmt.Errorf("read answer: %w", err)
	}
	if len(a.body) > contract.MaxAnswer {
		return answer{}, errAnswerTooLarge
	}
	return a, nil
}

// retryAfter reads the header of that name, seconds or a date; 0 when it says neither.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(min(max(0, seconds), int(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter)
	}
	return 0
}

// maxRetryAfter is how long a function can ask to be left alone.
const maxRetryAfter = 24 * time.Hour

// refusal is the error that an answer is when its status is not one of success.
func (a answer) refusal(url string) error {
	line := fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
	return &answerError{url, a.status, line, a.body[:min(len(a.body), maxReasonBody)]}
}
