package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/pull"
	"github.com/stepwell-dev/stepwell/queue/world"
)

// A worker is a process of an app that has no URL, and asks for the calls of its functions. To the rest of the queue
// its call is one by HTTP, whose connection is that of the worker's polls: the process that makes the call has the
// lease, and gets the answer, if that comes to it. If the worker is silent for [pull.Silence], the connection counts as
// cut off.
//
// A worker may ask another process each time. That one has the calls that are not its own kept in the database, where
// the process that made them looks before it gives one up. An answer that comes to another process ends the lease
// there; see [Queue.Called].

// ErrNoCalls refuses a worker, because this process makes no calls.
var ErrNoCalls = errors.New(
	"this server makes no calls: it stops, or its role is api or function; ask one whose role is all")

// keptCallTime is how long a call that a process keeps for another one is kept: a worker that goes on asks in time.
const keptCallTime = pull.Silence + time.Second

// Ask is a request of a worker.
type Ask struct {
	Project    entities.Project
	Deployment string
	// Worker names the process, and Slots is for how many calls it has room, all in all. Calls are those in its hands.
	Worker string
	Slots  int
	Calls  []string
}

// Work is what a worker gets. It must be ended by Done or Lost.
type Work struct {
	// Calls are new, and Over are calls in the worker's hands whose answers do not matter any more.
	Calls []pull.Call
	Over  []string

	poll *pull.WorkPoll[world.App]
}

// Done ends the request when its answer is written.
func (w Work) Done() { w.poll.Leave() }

// Lost ends the request when its answer cannot be written.
func (w Work) Lost() { w.poll.Lose(w.Calls) }

// Work returns calls for a worker as soon as there are any, and none when enough is closed. The deployment is
// registered if it is not. Work fails with [message.ErrHasURL], with [pull.ErrTooMany], and with [ErrNoCalls] unless
// the worker has calls in hand, which it may go on with.
func (q *Queue) Work(ctx context.Context, enough <-chan struct{}, a Ask) (Work, error) {
	app := world.App{Project: a.Project, Deployment: a.Deployment}
	if err := q.noteAsked(ctx, app); err != nil {
		return Work{}, pg.Wrap(err, "ask for calls")
	}
	local := q.local.Load()
	if local == nil && len(a.Calls) == 0 {
		return Work{}, ErrNoCalls
	}
	poll, err := q.workers.Join(app, a.Worker, a.Slots, a.Calls)
	if err != nil {
		return Work{}, err
	}
	over, err := q.keepCalls(ctx, app, poll.Unknown)
	if err != nil {
		poll.Leave()
		return Work{}, err
	}
	if len(over) == 0 {
		local.claimForWorkers(app)
		poll.Wait(enough)
	}
	calls, more := poll.Take()
	return Work{calls, append(over, more...), poll}, nil
}

// keepCalls notes that a worker has calls in hand that other processes have made, and returns those that are over.
func (q *Queue) keepCalls(ctx context.Context, app world.App, handles []string) (over []string, err error) {
	if len(handles) == 0 {
		return nil, nil
	}
	kept, err := pg.CollectColumn[string](pg.NewPool(q.pool).Query(ctx, keepMessages+`
		lease = ANY ($1) AND lease <> '' AND work <> '' AND due_at > clock_timestamp()
			AND (project, deployment_id) IS NOT DISTINCT FROM ($2, $3)
		RETURNING lease`, handles, app.Project, app.Deployment, keptCallTime))
	if err != nil {
		return nil, pg.Wrap(err, "keep calls")
	}
	for _, h := range handles {
		if !slices.Contains(kept, h) {
			over = append(over, h)
		}
	}
	return over, nil
}

// fateOf returns what has become of a call of which this process has not heard for a while.
func (q *Queue) fateOf(ctx context.Context, handle string) (pull.Fate, error) {
	var kept bool
	err := pg.NewPool(q.pool).QueryRow(ctx, `SELECT coalesce(kept_until > now(), false) FROM messages
		WHERE `+OfLease+` AND due_at > clock_timestamp()`, handle).Scan(&kept)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return pull.FateOver, nil
	case kept:
		return pull.FateKept, pg.Wrap(err, "read what keeps a call")
	default:
		return pull.FateLost, pg.Wrap(err, "read what keeps a call")
	}
}

// claimForWorkers claims what was given back for the app, as long as it has workers here. It does so only once at a
// time for each app.
func (d *dispatcher) claimForWorkers(app world.App) {
	if d == nil || d.stopping.Err() != nil {
		return
	}
	if _, claiming := d.queue.claiming.LoadOrStore(app, nil); claiming {
		return
	}
	workers := d.queue.workers
	h := host{
		app.Project, app.Deployment, PulledURL, func() int { return workers.Free(app) },
		func() (<-chan struct{}, bool) { c := workers.Room(app); return c, c != nil },
	}
	go func() {
		rescue.Loop(d.stopping, "claim for workers", func() { d.takeGivenBack(d.stopping, h) })
		d.queue.claiming.Delete(app)
		if workers.Room(app) != nil { // one has come meanwhile
			d.claimForWorkers(app)
		}
	}()
}

// performAtWorker does work whose call a worker makes, if one has room here. Otherwise it gives the work back.
func (w *deliverer) performAtWorker(ctx context.Context, d Delivery) (Delivered, error) {
	if d.place = w.queue.workers.Reserve(d.app()); d.place == nil {
		return w.passOn(ctx, d)
	}
	counts := false
	defer func() { d.place.Release(counts) }()
	got, err := w.Perform(ctx, d)
	counts = err == nil && got.Outcome != OutcomeDropped && got.Outcome != OutcomeStopped
	return got, err
}

// noRoom returns why no worker here takes a call, and when that is tried again if none asks until then. Most messages
// wait equally long, since those that are due first are claimed first.
func (w *deliverer) noRoom(ctx context.Context, d Delivery) (reason string, after time.Duration) {
	reason = fmt.Sprintf("the workers of deployment %s have no room, or none asks: start one", d.DeploymentID)
	if since := w.queue.lastAsked(ctx, d); since != nil {
		reason = fmt.Sprintf("no worker of deployment %s has asked for calls since %s: start one",
			d.DeploymentID, since.UTC().Format(time.RFC3339))
	}
	if d.DisconnectCount > promptDisconnects { // it is not claimed
		return reason, min(retryPause(d.UnreachedCount+1), longestDisconnectPause)
	}
	return reason, unreachedBackoff
}

// callByWorker has a worker make a call, as if it was sent to it.
func (w *deliverer) callByWorker(req *http.Request, d Delivery, body []byte) (*http.Response, error) {
	defer d.startSlot.call().Stop()
	a, err := d.place.Call(req.Context(), pull.Call{
		ID: d.Lease, Run: string(d.RunID), Keep: d.Log.Keep, Seen: d.Log.Length, Header: req.Header, Body: body,
	}, func(ctx context.Context) (pull.Fate, error) { return w.queue.fateOf(ctx, d.Lease) })
	switch {
	case errors.Is(err, pull.ErrNotTaken):
		return nil, d.NotServed(err.Error())
	case errors.Is(err, pull.ErrLost):
		return nil, &disconnectError{err}
	case errors.Is(err, pull.ErrOver):
		return nil, fmt.Errorf("%w: %w", message.ErrStale, err)
	case err != nil:
		return nil, err
	}
	resp := &http.Response{
		StatusCode: a.Status, Header: http.Header{}, Request: req,
		Body: io.NopCloser(bytes.NewReader(a.Body)), ContentLength: int64(len(a.Body)),
	}
	resp.Header.Set("Content-Type", a.ContentType)
	if a.RetryAfter != "" {
		resp.Header.Set("Retry-After", a.RetryAfter)
	}
	return resp, nil
}

// AnswerHere passes on the answer to a call that a worker got from this process, and reports true, unless there is no
// such call. It returns when the answer is recorded, and fails with [message.ErrStale] if it does not count.
func (q *Queue) AnswerHere(ctx context.Context, c token.Call, a pull.Answer) (bool, error) {
	counts, ok := q.workers.Answer(string(c.Project), string(c.RunID), c.Invocation, a)
	if !ok {
		return false, nil
	}
	switch yes, err := counts(ctx); {
	case err != nil:
		return true, err
	case !yes:
		return true, errCallOver
	}
	return true, nil
}
