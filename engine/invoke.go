package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/payload"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// invoke calls the function of a run that can move, and applies the commands of its answer.
func (e *Engine) invoke(ctx context.Context, d queue.Delivery) error {
	run, size, err := e.recordStart(ctx, d)
	if err != nil {
		return err
	}
	a, err := e.callRun(ctx, d, &run, size)
	if err != nil || !a.ok() {
		e.kept.Remove(d.RunID) // what the process keeps may be the cause
	}
	if isTooLarge(err) {
		f := d.Failure(err)
		f.Blocked = &message.Blocked{Code: CodeAnswerTooLarge, Message: err.Error()}
		return &f
	}
	if err != nil {
		return err
	}
	if !a.ok() {
		return e.refused(d, a)
	}
	return e.applyAnswer(ctx, d, run, a)
}

// longestDiverged is the longest pause between the calls of a run that has diverged. It does not grow, because the run
// goes on as soon as the right code is deployed.
const longestDiverged = time.Minute

// refused returns the failure of an invocation that the function has refused. If the answer has a code, the run is
// blocked until a call succeeds. The code [message.CodeStale] says that another copy of the call has gone on with the
// run.
func (e *Engine) refused(d queue.Delivery, a answer) error {
	text, _ := parseFailure(a, nil)
	if a.status == http.StatusConflict && text.Code == message.CodeStale {
		f := d.Failure(queue.ErrOvertaken)
		return &f
	}
	f := d.Failure(d.Refused(a.status, a.body))
	f.After = max(f.After, a.retryAfter)
	if entities.ValidateName("code", text.Code) == nil {
		f.Blocked = &message.Blocked{Code: text.Code, Message: text.Message}
		if text.Code == message.CodeDiverged {
			f.After = min(f.After, longestDiverged)
		}
	}
	return &f
}

// The payloads of a call are counted as they are sent, which may be more than what they are stored as.
const (
	// freeGrowth is how many bytes the payloads of a call may have more than the log has without counting.
	freeGrowth = 64 << 10
	// callBytes ends the events of a call early: once their payloads have as many bytes, no further event is added. The
	// function reads the others itself. largestCall is what the payloads have at most.
	callBytes   = read.MaxPageBytes
	largestCall = callBytes + payload.MaxDecoded
)

// callRun calls the function of a run: with the events that the process which keeps the run does not know, and if the
// function answers that it has not kept the run, with the whole log. The size is that of the log in the first call. The
// calls may have events that came after the start of the invocation: the run is then as they leave it.
func (e *Engine) callRun(ctx context.Context, d queue.Delivery, run *entities.Run, size int64) (answer, error) {
	a, warm, err := e.callOnce(ctx, d, run, size)
	if !warm || err != nil || a.status != http.StatusPreconditionFailed {
		return a, err
	}
	e.kept.Remove(run.ID)
	var b pgx.Batch
	read.Measure(&b, run.ID, 0, contract.InlineEvents, &size)
	if err := e.pool.SendBatch(ctx, &b).Close(); err != nil {
		return answer{}, err
	}
	a, _, err = e.callOnce(ctx, d, run, size)
	return a, err
}

// callOnce makes one call, which carries a log of the given size in bytes, for which memory is reserved until the
// answer. It reports whether the call relied on a process that keeps the run.
func (e *Engine) callOnce(
	ctx context.Context, d queue.Delivery, run *entities.Run, size int64,
) (a answer, warm bool, err error) {
	call, free, err := e.reserveCall(ctx, d, run, size, size+freeGrowth)
	if errors.Is(err, errCallGrows) {
		call, free, err = e.reserveCall(ctx, d, run, largestCall, largestCall)
	}
	if err != nil {
		return answer{}, false, err
	}
	defer free()
	d.Log = queue.CallLog{Length: run.LastSeq, Keep: call.Keep}
	if call.Token, err = e.tokenOf(ctx, d, tokenValidity); err != nil {
		return answer{}, false, err
	}
	a, err = e.askOnLease(ctx, d, call)
	return a, call.Since > 0, err
}

// reserveCall reserves memory, which free releases, and builds the call of a run's function. It fails with
// [errCallGrows], and releases the memory, if the payloads have more than the most bytes.
func (e *Engine) reserveCall(
	ctx context.Context, d queue.Delivery, run *entities.Run, size, most int64,
) (call contract.Call, free func(), err error) {
	if free, err = d.ReserveMemory(ctx, size); err != nil {
		return contract.Call{}, nil, err
	}
	if call, err = e.newCall(ctx, d, run, most); err != nil {
		free()
	}
	return call, free, err
}

// errCallGrows reports that the payloads of a call need more memory than was reserved for the log.
var errCallGrows = errors.New("the decoded payloads are larger than the log")

// applyAnswer applies the answer. It persists while the server shuts down or the database is away for a while, so that
// the function need not be called again. The cause of a refusal may be a state that was kept, so the next call has the
// whole log.
func (e *Engine) applyAnswer(ctx context.Context, d queue.Delivery, run entities.Run, a answer) error {
	var outcome error
	err := queue.Persist(ctx, func(ctx context.Context) error {
		outcome = e.answer(ctx, d, run, a.body)
		if outcome != nil && !isPermanent(outcome) {
			return outcome
		}
		return nil
	})
	return errors.Join(err, e.outcome(d, run, outcome))
}

// outcome returns what the outcome of an answer means for the work.
func (e *Engine) outcome(d queue.Delivery, run entities.Run, outcome error) error {
	if isPermanent(outcome) {
		e.kept.Remove(run.ID)
	}
	if _, ok := errors.AsType[*admin.QuotaError](outcome); ok { // the run continues as another one later
		f := d.Failure(asRefused(outcome))
		f.Reached, f.After = false, longestDiverged
		return &f
	}
	if refused := (*eventlog.RefusedError)(nil); errors.As(outcome, &refused) {
		// The refusal may say that the run has ended, because a command of this answer would end it. The work stays.
		f := d.Failure(asRefused(outcome))
		return &f
	}
	if isPermanent(outcome) && !queue.IsOver(outcome) {
		outcome = asRefused(outcome)
	}
	return outcome
}

// asRefused marks the error of an answer as one by which readers of the message tell that the server refused it.
func asRefused(err error) error { return fmt.Errorf("%s%w", message.AnswerRefused, err) }

// isPermanent reports whether an answer that failed with the error would fail again whenever it is applied.
func isPermanent(err error) bool {
	refused := (*eventlog.RefusedError)(nil)
	return queue.IsOver(err) || errors.As(err, &refused) || errors.Is(err, entities.ErrInvalid) ||
		errors.Is(err, message.ErrDeploymentNotFound) || errors.Is(err, ErrNothingLeft) ||
		errors.Is(err, queue.ErrOvertaken)
}

// newCall builds the call of a run's function, and sets the length of the run's log to that in the call if this has
// later events. It fails with [errCallGrows] if the payloads have more than the most bytes.
func (e *Engine) newCall(ctx context.Context, d queue.Delivery, run *entities.Run, most int64) (contract.Call, error) {
	kept := e.kept.find(*run, d.URL, e.log.Now())
	page, err := e.eventsAfter(ctx, d, *run, kept.seq)
	if err != nil {
		return contract.Call{}, err
	}
	c := contract.Call{
		Type: contract.TypeWorkflow, Invocation: d.Lease, Attempt: d.DeliveryCount, Server: contract.Offer(),
		Run: contract.About(*run), Known: &d.Known, HooksURL: e.hooksURL, Since: kept.seq, Keep: kept.by,
	}
	stored := int64(0)
	for _, e := range page.Events {
		stored += int64(len(e.Payload))
	}
	err = e.queue.Processors().Use(ctx, stored, func() error { return addEvents(&c, &page, most) })
	if err != nil {
		return contract.Call{}, err
	}
	last := kept.seq
	if n := len(c.Events); n > 0 {
		last = page.Events[n-1].Seq
	}
	run.LastSeq = max(run.LastSeq, last)
	if c.Since == 0 {
		c.Run.Input = page.Events[0].Payload
	}
	if page.More {
		c.After = &last
	}
	c.Run.Store, err = e.loadStore(ctx, *run)
	return c, err
}

// addEvents adds the events of a page to a call, and cuts the page where their payloads have callBytes. It fails with
// [errCallGrows] if they have more than the most bytes.
func addEvents(c *contract.Call, page *read.EventPage, most int64) error {
	for i := range page.Events {
		e := &page.Events[i]
		if c.LogBytes >= callBytes {
			page.More = true
			break
		}
		shown := view.Of(e)
		if c.LogBytes += int64(len(shown.Payload)); c.LogBytes > most {
			return errCallGrows
		}
		text, err := json.Marshal(shown)
		if err != nil {
			return fmt.Errorf("encode event %d: %w", e.Seq, err)
		}
		c.Events = append(c.Events, text)
	}
	return nil
}

// eventsAfter returns the first page of the run's log after a position. An inline start may have it at hand, as it was
// when the invocation started. Events that came later have the run invoked again.
func (e *Engine) eventsAfter(
	ctx context.Context, d queue.Delivery, run entities.Run, seq int64,
) (read.EventPage, error) {
	if d.HasStarted() && int64(len(d.Inline.Log)) >= max(seq, 1) && len(d.Inline.Log) <= contract.InlineEvents {
		return read.EventPage{Events: d.Inline.Log[seq:]}, nil
	}
	page := pg.Page{Limit: contract.InlineEvents}
	if seq > 0 {
		page.Cursor = read.EventCursorAt(seq)
	}
	return e.log.Events(ctx, d.Project, run.ID, page, read.WithPayloads)
}

// loadStore returns the run's store for a call: nil if it has no values, or too many bytes for a call. It reads nothing
// for a run that never had a store.
func (e *Engine) loadStore(ctx context.Context, run entities.Run) (map[string]json.RawMessage, error) {
	if run.StoreSeq == 0 {
		return nil, nil
	}
	values, err := store.Values(ctx, pg.NewPool(e.pool), run.ID, kv.MaxInCall)
	if err != nil || len(values) == 0 {
		return nil, err
	}
	m := make(map[string]json.RawMessage, len(values))
	for _, v := range values {
		m[v.Key] = json.RawMessage(v.Value)
	}
	return m, nil
}
