package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/pull"
	"github.com/stepwell-dev/stepwell/queue/world"
)

// Delivery is a message that is leased for one delivery. Its methods end, extend and release the lease. Each does so in
// a statement of its own, as part of a batch, or as part of a conditional statement, so that a [Handler] can commit the
// result of its work together with the lease.
type Delivery struct {
	ID            string
	Project       entities.Project
	Topic         string
	DeploymentID  string
	RunID         entities.RunID
	Work          message.Work
	Subject       string
	ContentType   string
	Body          []byte
	CreatedAt     time.Time
	ExpiresAt     time.Time
	DueAt         time.Time
	Lease         string
	DeliveryCount int
	// UnreachedCount is the number of consecutive attempts that did not reach the function or were cut off.
	UnreachedCount int
	// DisconnectCount is how many of the deliveries ended without an answer because the app died.
	DisconnectCount int
	// ExcusedCount is how many of the deliveries are no failures although the function got them: those up to the last one
	// after which it asked for the message again, and those that ended with their server.
	ExcusedCount int
	// ClaimedAt is when the delivery started.
	ClaimedAt time.Time
	// URL is the base URL of the deployment; empty when it is not registered. TrialAt is set while it is unhealthy.
	URL     string
	TrialAt *time.Time
	// SpecVersion is the protocol version of the message's run; 0 when it is not known.
	SpecVersion int
	// LeasedSeq is how long the log of the run was when the message was leased; 0 if that is not known. Only for messages
	// for functions.
	LeasedSeq int64
	// Known is the position up to which the function knew the log of the run when it last answered; 0 if it never did.
	// Only for [message.WorkRun].
	Known int64
	// Progress is what the function of a step last said about how far it is: JSON; nil if it said nothing. See
	// [Queue.Beat].
	Progress []byte

	// Log says what a call has of the run's log, for the worker that makes it.
	Log CallLog `db:"-"`
	// Inline has the start of the work if the transaction that leased it may record the start in the log (inline
	// start).
	Inline *eventlog.InlineStart `db:"-"`
	by     *deliverer
	// answers is the memory for the answers of functions; nil if they are not counted.
	answers *answerMemory
	// afterwards are called when the outcome is stored; see [Delivery.Afterwards].
	afterwards *[]func()
	startSlot  *startSlot // nil if it has none
	// place is the slot of a worker that makes the calls; nil if the server does.
	place *pull.Place[world.App]
	// taken notifies the process that handed the delivery to a poll; see [Delivery.Taken].
	taken func()
}

// CallLog is what a call has of its run's log.
type CallLog struct {
	// Length is that of the log in the call; 0 if it has none.
	Length int64
	// Keep names the process that has the events before those in the call; empty if the call has all.
	Keep string
}

// Taken releases the memory of the body of a delivery that [Queue.Pull] returned.
func (d Delivery) Taken() {
	if d.taken != nil {
		d.taken()
	}
}

// HasStarted reports whether the log has recorded that the work started.
func (d Delivery) HasStarted() bool { return d.Inline != nil && d.Inline.Run != nil }

// InlineStart asks the log to record the start of the work in the transaction that leases it, which saves a transaction
// of its own. The log then also reads the first [contract.InlineEvents] events of the run.
func (d *Delivery) InlineStart() *eventlog.InlineStart {
	d.Inline = &eventlog.InlineStart{
		RunID: d.RunID, Work: d.Work, Subject: d.Subject, At: d.ClaimedAt, Events: contract.InlineEvents,
	}
	return d.Inline
}

// Logger returns the logger for messages about the delivery.
func (d Delivery) Logger() *slog.Logger { return d.by.logger }

// LeaseTime returns how long a lease lasts unless it is extended.
func (d Delivery) LeaseTime() time.Duration { return d.by.lease }

// Call sends a signed request to the deployment's function. Reading the answer takes memory, which the delivery holds
// until its end.
func (d Delivery) Call(req *http.Request, body []byte) (*http.Response, error) {
	resp, err := d.by.send(req, d, body)
	return d.counted(req, resp), err
}

// Fetch is [Delivery.Call] for a request to another service than the deployment's function: it is neither signed nor
// traced, and its outcome says nothing about the deployment.
func (d Delivery) Fetch(req *http.Request) (*http.Response, error) {
	defer d.startSlot.call().Stop()
	resp, err := d.by.http.Do(req) //nolint:gosec // the dialer refuses addresses that requests may not have
	return d.counted(req, resp), err
}

// counted returns the response, or nil, with a body that takes memory as it is read.
func (d Delivery) counted(req *http.Request, resp *http.Response) *http.Response {
	if resp != nil && d.answers != nil {
		resp.Body = &answer{
			ReadCloser: resp.Body, ctx: req.Context(), length: resp.ContentLength, memory: d.answers,
			ended: d.startSlot.answered,
		}
	}
	return resp
}

// ReserveMemory takes memory for the given number of bytes, which free releases. After waiting for half of the lease
// the delivery fails without counting, so that its slot goes to another one. If it had to wait, it restarts the lease,
// so that the function has the full lease time.
func (d Delivery) ReserveMemory(ctx context.Context, size int64) (free func(), err error) {
	if free, ok := d.by.memory.try(d.Project, size); ok {
		return free, nil
	}
	d.startSlot.leave()
	waiting, cancel := context.WithTimeout(ctx, d.by.lease/2)
	defer cancel()
	free, err = d.by.memory.take(waiting, d.Project, size)
	if err != nil && ctx.Err() == nil {
		return nil, &Failure{Reason: message.NoMemory, Public: message.NoMemory, After: firstBackoff}
	}
	if err != nil {
		return nil, err
	}
	if err := exec(ctx, d.by.queue.pool, "extend lease", extendSQL, d.Lease, d.by.lease); err != nil {
		free()
		return nil, err
	}
	return free, nil
}

// End deletes the work; see [Persist]. It succeeds if the work is gone already, since the end of a run deletes all its
// work.
func (d Delivery) End(ctx context.Context) error {
	return Persist(ctx, func(ctx context.Context) error {
		return exec(ctx, d.by.queue.pool, "end work", endWork, d.Lease)
	})
}

// EndIn deletes the work as part of the batch.
func (d Delivery) EndIn(b *pgx.Batch) { b.Queue(endWork, d.Lease) }

// EndIf deletes the work as part of a conditional statement, which it makes depend on what RequireLease says.
func (d Delivery) EndIf(c *pg.Conditional, condition string, by *Copy) {
	d.RequireLease(c, condition, by)
	c.Add(pg.Write{SQL: endWork, Args: []any{d.Lease}})
}

// ExtendIn extends the lease as part of the batch: for a call of the given length, and for recording its result.
func (d Delivery) ExtendIn(b *pgx.Batch, call time.Duration) {
	b.Queue(extendSQL, d.Lease, call+persistTimeout)
}

// Copy is a copy of a call that writes to the run's log. There is one call for each lease, but a proxy may repeat it,
// and then several copies run at a time, in different processes. What a copy writes follows from the results it knows.
// So the commands of a copy are refused once another one has written something that it does not know.
type Copy struct {
	// Knows is the position up to which the copy knows the log.
	Knows int64
	// Request identifies its commands, for a request that is repeated because the answer was lost; 0 for an answer.
	Request int64
}

// KeepIf restarts the lease as part of a conditional statement, unless that has just been done, and makes the
// statement depend on what RequireLease says. With again, the work is done once more after this delivery. The commands
// in the statement are those of the copy; nil for a function that does not follow the log. The log has as many events
// with them.
func (d Delivery) KeepIf(c *pg.Conditional, again bool, by *Copy, events int64) {
	d.RequireLease(c, "", by)
	var request *int64
	if by != nil {
		request = &by.Request
	}
	c.Add(pg.Write{SQL: keepSQL, Args: []any{d.Lease, leaseTime, again, request, events, keptBefore}})
}

// NoteKnown notes, as part of a transaction that holds the lock on the run, up to which position of the log the
// function knows the run. See [Delivery.Known].
func (d Delivery) NoteKnown(w pg.Writer, seq int64) {
	w.Add(pg.Write{What: "note what the function knows", SQL: `
		INSERT INTO run_wakes AS w (run_id, acked_seq) SELECT $1::text, $2::bigint WHERE true`, Rest: `
		ON CONFLICT (run_id) DO UPDATE SET acked_seq = greatest(w.acked_seq, excluded.acked_seq)`, Args: []any{d.RunID, seq}})
}

// NackIn releases the message after a failure as part of the batch.
func (d Delivery) NackIn(b *pgx.Batch, f Failure) { b.Queue(nackSQL, f.nackArgs(d.Lease)...) }

// RescheduleIn ends the lease as part of the batch. The work is due again at the time, or at once if it was requested
// again meanwhile, and its failures are forgotten.
func (d Delivery) RescheduleIn(b *pgx.Batch, at time.Time) { b.Queue(rescheduleSQL, d.Lease, at) }

// RescheduleIf is [Delivery.RescheduleIn] for work of no run, as part of a conditional statement, which it makes depend
// on the live lease. It does not wait for others that have locked the message, which have no order with a statement
// about another run: the statement then does not apply.
func (d Delivery) RescheduleIf(c *pg.Conditional, at time.Time) {
	c.Require(`EXISTS (SELECT FROM messages WHERE `+ofWork+` AND due_at > clock_timestamp() FOR UPDATE SKIP LOCKED)`,
		d.Lease, d.Project, d.RunID, d.Work)
	c.Add(pg.Write{SQL: rescheduleSQL, Args: []any{d.Lease, at}})
}

const rescheduleSQL = `
	UPDATE messages
	SET lease = '', holder = '', redeliver = false, due_at = CASE WHEN redeliver THEN now() ELSE $2::timestamptz END,
		delivery_count = 0, unreached_count = 0, disconnect_count = 0, first_failed_at = NULL, last_error = '', blocked = NULL
	WHERE ` + OfLease

// AdvanceIn stores the progress of the work in the message's body as part of the batch.
func (d Delivery) AdvanceIn(b *pgx.Batch, progress []byte) {
	b.Queue(`UPDATE messages SET body = $2, due_at = now() + $3 WHERE `+OfLease, d.Lease, progress, d.by.lease)
}

// Advance stores the progress of the work in the message's body, from where any process can resume it, and restarts the
// lease. It fails with [message.ErrStale] when the lease has expired.
func (d Delivery) Advance(ctx context.Context, progress []byte) error {
	tag, err := pg.NewPool(d.by.queue.pool).Exec(ctx, `
		UPDATE messages SET body = $2, due_at = now() + $3
		WHERE `+OfLease+` AND due_at > clock_timestamp()`, d.Lease, progress, d.by.lease)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("%w: its lease has expired", message.ErrStale)
	}
	return pg.Wrap(err, "store progress of work")
}

// Reserve returns a reservation to do work for the deployment again in this process, right after a transaction that
// leases it again; see [Delivery.RestartIn]. There is none if its calls have a bound: others may wait for the slot.
func (q *Queue) Reserve(p entities.Project, deployment string) Reservation {
	return q.reserve(message.Message{Project: p, DeploymentID: deployment}, 0)
}

// RestartIn replaces the lease by the reserved one as part of the batch, and resets the failures of the work. The batch
// reads the new delivery into next; after the commit the caller passes it to [Reservation.Start].
func (d Delivery) RestartIn(b *pgx.Batch, r Reservation, next *Delivery) {
	b.Queue(`
		UPDATE messages m
		SET lease = $2, holder = $3, redeliver = false, due_at = now() + $4, delivery_count = 1,
			unreached_count = 0, disconnect_count = 0,
			first_failed_at = NULL, last_error = '', blocked = NULL
		WHERE `+OfLease+`
		RETURNING `+deliveryColumns+`, body`, d.Lease, r.handle, r.holder, r.lease,
	).Query(func(rows pgx.Rows) (err error) {
		*next, err = pg.CollectOne[Delivery](rows, nil, pgx.ErrNoRows)
		return pg.Wrap(err, "restart work")
	})
}

// LeaseGuard has the state of a lease that [Delivery.Guard] locked.
type LeaseGuard struct {
	alive bool
	// Again is set when the work was requested again after it started.
	Again bool
	// At is the start of the transaction by the database's clock.
	At time.Time
	// written is how long the log was when a copy of the call last wrote to it, and request is what wrote then.
	written, request int64
}

// ofWork selects the work $4 of run $3 in project $2 under the lease $1; see [ofMessage].
const ofWork = OfLease + ` AND (project, run_id, work) IS NOT DISTINCT FROM ($2, $3, $4)`

// Guard queues a statement that locks the lease until the transaction ends and reads its state.
func (d Delivery) Guard(b *pgx.Batch) *LeaseGuard {
	var g LeaseGuard
	b.Queue(`
		SELECT due_at > clock_timestamp(), redeliver, now(), coalesce(last_write_seq, 0), coalesce(last_write_request, 0)
		FROM messages WHERE `+ofWork+` FOR UPDATE`,
		d.Lease, d.Project, d.RunID, d.Work,
	).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&g.alive, &g.Again, &g.At, &g.written, &g.request)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return pg.Wrap(err, "check lease")
	})
	return &g
}

// Check fails with [message.ErrStale] unless the lease is live.
func (g *LeaseGuard) Check() error {
	if !g.alive {
		return fmt.Errorf("%w: the lease has expired or was replaced", message.ErrStale)
	}
	return nil
}

// CheckCopy fails with [ErrOvertaken] if another copy of the call has written something that this one does not know.
func (g *LeaseGuard) CheckCopy(by *Copy) error {
	if by != nil && g.written > by.Knows && g.request != by.Request {
		return fmt.Errorf("%w after position %d", ErrOvertaken, by.Knows)
	}
	return nil
}

// RequireLease makes a conditional statement depend on the live lease, on a further condition on the message, and on
// that no other copy of the call has written something that this one does not know; nil if that does not matter.
func (d Delivery) RequireLease(c *pg.Conditional, condition string, by *Copy) {
	args := []any{d.Lease, d.Project, d.RunID, d.Work}
	if by != nil {
		condition += ` AND (last_write_seq > $5::bigint AND last_write_request <> $6::bigint) IS NOT TRUE`
		args = append(args, by.Knows, by.Request)
	}
	c.Require(`EXISTS (SELECT FROM messages WHERE `+ofWork+` AND due_at > clock_timestamp()`+condition+` FOR UPDATE)`,
		args...)
}

// Handler does claimed work of one kind. On success the handler itself must end or release the lease, usually in the
// transaction that stores its result. If it fails, the work is retried, after the time in its [Failure] or a backoff.
type Handler func(context.Context, Delivery) error

// errUnknownWork is the error for work without a handler, which another version of the server must have stored.
const errUnknownWork = PublicError("this version of the server does not know this kind of work")

// Perform passes claimed work to its handler, and retries it later if it fails.
func (w *deliverer) Perform(ctx context.Context, d Delivery) (Delivered, error) {
	do, ok := w.options.Handlers[d.Work]
	if !ok {
		return w.retryLater(ctx, d, fmt.Errorf("%w: %q", errUnknownWork, d.Work))
	}
	d = w.Bind(d)
	if d.Work.StoresProgress() {
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer end()
		defer context.AfterFunc(w.stopping, end)()
	}
	d.answers = &answerMemory{pool: w.answers, project: string(d.Project)}
	defer d.answers.free()
	d.afterwards = &[]func(){}
	defer func() {
		for _, f := range *d.afterwards {
			f()
		}
	}()
	err := do(ctx, d)
	switch {
	case err == nil:
		return Delivered{Outcome: OutcomeDone}, nil
	case errors.Is(err, message.ErrStale):
		// The lease was lost: another process does the work now, or will once the lease has expired.
		return Delivered{OutcomeDropped, redact(err)}, nil
	case IsOver(err):
		return Delivered{OutcomeDropped, redact(err)}, d.End(ctx)
	case Interrupted(ctx, err):
		return Delivered{Outcome: OutcomeStopped}, w.leaveCall(ctx, d, err)
	default:
		return w.retryLater(ctx, d, err)
	}
}

// Bind returns the delivery bound to this process, whose memory and connections its methods use.
func (w *deliverer) Bind(d Delivery) Delivery {
	d.by = w
	return d
}

// retryLater logs that a delivery has failed, and releases the message to be delivered again later.
func (w *deliverer) retryLater(ctx context.Context, d Delivery, err error) (Delivered, error) {
	f := d.Failure(err)
	w.logger.InfoContext(ctx, "delivery failed", "message", d.ID, "topic", d.Topic, "run", d.RunID, "work", d.Work,
		"subject", d.Subject, "delivery", d.DeliveryCount, "error", f.Public)
	return w.fail(ctx, d, f)
}

// World makes deliveries to apps with a client of their own, and carries out their answers (docs/protocol.md, section
// 11).
type World interface {
	// Body returns the body of a delivery with its run and the run's log after a position, and the position up to which
	// it has the log. If it fails, the message is delivered without them.
	Body(ctx context.Context, d Delivery, after int64) (body []byte, upTo int64, err error)
	// Answer carries out the commit in an answer. If it fails, the delivery has failed; see [Delivery.Failure].
	Answer(ctx context.Context, d Delivery, commit []byte) error
}

const (
	// maxRunBody is how much memory is taken for the run and its log in a delivery.
	maxRunBody = 2 << 20
	// maxCommit is the size limit of an answer that is a commit.
	maxCommit = 4 << 20
)

// errForgotten is the failure of a delivery that only another client than the one that answered can read.
var errForgotten = &Failure{Reason: otherClient, Public: otherClient}

const otherClient = "another client than the app's last one answered"

// noRun is the position of the log in a delivery without its run.
const noRun = -1

// app returns the app of the delivery.
func (d Delivery) app() world.App { return world.App{Project: d.Project, Deployment: d.DeploymentID} }

// IsForStep reports whether the message is for a step of the Workflow SDK, and not for a workflow.
func (d Delivery) IsForStep() bool { return stepTopic.MatchString(d.Topic) }

// addRun adds its run and the run's log to a delivery to an app with a client of its own, and returns the position up
// to which it has the log. Free releases the memory. Without memory, the client reads the log itself.
func (w *deliverer) addRun(ctx context.Context, d *Delivery) (upTo int64, free func()) {
	after, own := w.clients.Knows(d.app(), d.RunID)
	if !own || d.RunID == "" || w.options.World == nil {
		return noRun, func() {}
	}
	free, ok := w.memory.try(d.Project, maxRunBody+int64(len(d.Body)))
	if !ok {
		return noRun, func() {}
	}
	body, upTo, err := w.options.World.Body(ctx, *d, after)
	if err != nil {
		w.logger.WarnContext(ctx, "deliver without the log", "message", d.ID, "run", d.RunID, "error", err)
		free()
		return noRun, func() {}
	}
	if len(body) <= smallBody {
		free()
	}
	d.Body, d.ContentType = body, world.MIME
	return upTo, free
}

// answeredByWorld notes whether the app that answered has a client of its own. It reports true if the answer is dealt
// with: it was a commit, or one of a client that could not read the delivery. A 5xx, such as a proxy's time limit, is
// neither.
func (w *deliverer) answeredByWorld(ctx context.Context, d Delivery, resp *http.Response, upTo int64) (bool, error) {
	if w.options.World == nil {
		return false, nil
	}
	if !w.clients.Answered(d.app(), resp.Header, d.ClaimedAt) {
		return upTo != noRun && resp.StatusCode < http.StatusInternalServerError, errForgotten
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != world.MIME {
		return false, nil
	}
	if upTo > 0 {
		w.clients.Sent(d.app(), d.RunID, upTo)
	}
	return true, w.carryOut(ctx, d, resp)
}

// carryOut carries out an answer that is a commit. It goes on when the lease expires or the server stops meanwhile: the
// app has done its part.
func (w *deliverer) carryOut(ctx context.Context, d Delivery, resp *http.Response) error {
	held := &answerMemory{pool: w.answers, project: string(d.Project)}
	defer held.free()
	length := resp.ContentLength
	if length < 0 || length > maxCommit {
		length = maxCommit
	}
	commit, err := io.ReadAll(io.LimitReader(
		&answer{ReadCloser: resp.Body, ctx: ctx, length: length, memory: held, ended: d.startSlot.answered}, maxCommit+1))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if len(commit) > maxCommit {
		return PublicError(message.AnswerRefused + "it is larger than 4 MiB")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistTimeout)
	defer cancel()
	return w.options.World.Answer(ctx, d, commit)
}
