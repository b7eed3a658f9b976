package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/backoff"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/tickets"
	"github.com/stepwell-dev/stepwell/queue/world"
)

const (
	// A function that fails is called again after 1, 2, 4, … seconds, up to 15 minutes. The 48 attempts after which
	// clients fail a run then take nine hours.
	firstBackoff = time.Second
	maxBackoff   = 15 * time.Minute
	// unreachedBackoff is the longest pause between attempts while a function cannot be reached or its deployment is
	// not registered. These attempts are not limited in number. Registering the deployment makes its messages due at
	// once.
	unreachedBackoff = time.Minute
	// shownLease is how long the lease lasts at most according to the headers of a delivery. Clients extend a lease for
	// the first time after a fifth of that, and then every minute (protocol §5.5).
	shownLease = 150 * time.Second
	// leftLease is how long after its call a function keeps its lease when the server that called it stops: ten seconds
	// longer than it takes to extend the lease.
	leftLease = shownLease/5 + 10*time.Second
	// minLeftLease is how long it keeps the lease at least, and at most if it says in short intervals that it works. When
	// calls of the same app are cut off or refused meanwhile, the function has probably died with it, and keeps the lease
	// for [cluster.KeptLease] unless it says that it works.
	minLeftLease = 15 * time.Second
	// answeredLease is the minimum time that a function has to acknowledge after its answer. Clients acknowledge or
	// release the message before they answer, even on failure, so a request that has not arrived by then was lost.
	answeredLease = 10 * time.Second

	// persistTimeout is how long a delivery retries to store its result while the database is unavailable. After that,
	// the message is delivered again when its lease expires. The pauses between its attempts double, from the first one.
	persistTimeout      = time.Minute
	firstPersistPause   = 10 * time.Millisecond
	longestPersistPause = 250 * time.Millisecond
	// slotPause is how long a message waits whose ticket was fetched by a process without a slot for it.
	slotPause = 50 * time.Millisecond
	// maxReasonBody is how many bytes of a failed answer are kept as its reason.
	maxReasonBody = 300
	// maxAnswerHeader limits the header of an answer, in bytes.
	maxAnswerHeader = 64 << 10
)

// newDeliveryClient returns the HTTP client that calls functions at allowed addresses. A call may last as long as its
// function extends the lease, so only connecting has a time limit.
func newDeliveryClient(allowed egress.Allowed) *http.Client {
	return &http.Client{
		Transport: allowed.Transport(&http.Transport{
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true,
			MaxIdleConns:        1024,
			MaxIdleConnsPerHost: 256,
			IdleConnTimeout:     4 * time.Second, // below the 5 s after which Node closes idle connections
			DisableCompression:  true,

			MaxResponseHeaderBytes: maxAnswerHeader,
		}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// deliverer claims messages, calls their functions or handlers, and stores the outcome.
type deliverer struct {
	queue     *Queue
	options   WorkerOptions
	logger    *slog.Logger
	http      *http.Client
	heartbeat *cluster.Heartbeat
	sweeper   *cluster.Sweeper
	// slots are those of the deliveries with a ticket.
	slots      *share.Pool
	startSlots *share.Pool // see [startSlot]
	unrecorded *share.Pool // see [startSlot]
	memory     memory
	answers    *share.Pool // bytes of memory for the answers of functions
	serializer *serializer
	clients    *world.Clients
	lease      time.Duration // the initial lease of each delivery
	// keepPause is how often a delivery that waits for memory renews its ticket.
	keepPause time.Duration
	wake      chan struct{} // has an item when more tickets may be issued or taken
	backlog   atomic.Bool   // messages are due that no ticket may be issued for now
	tally     tally
	// outages has the deployments whose last calls by this process were refused or cut off, each with the claim of the
	// call for which the leases at it were last shortened.
	outages sync.Map // of time.Time, by deploymentKey
	// answered has when each deployment last answered a call of this process and that was noted.
	answered sync.Map // of time.Time, by deploymentKey
	// stopping ends when the process begins to stop: see [message.Work.StoresProgress].
	stopping context.Context
	stop     context.CancelFunc
}

func newDeliverer(q *Queue, o WorkerOptions) *deliverer {
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	stopping, stop := context.WithCancel(context.Background())
	processors := runtime.GOMAXPROCS(0)
	startSlots := share.NewPool(int64(startsPerProcessor * processors))
	startSlots.Contended = int64(processors)
	return &deliverer{
		stopping: stopping, stop: stop,
		queue: q, options: o, logger: o.Logger, http: newDeliveryClient(o.Allowed), lease: leaseTime,
		keepPause: ticketTime / 3,
		heartbeat: cluster.NewHeartbeat(q.pool, q.sessions, o.Program, func() { q.WakeTimer(nil) }, o.Logger),
		sweeper:   cluster.NewSweeper(q.pool, q, o.Logger), memory: memory{share.NewPool(o.BodyMemory)},
		answers: share.NewPool(o.BodyMemory),
		slots:   share.NewPool(int64(o.Deliveries)), serializer: newSerializer(o.Deliveries),
		clients: world.NewClients(), startSlots: startSlots,
		unrecorded: share.NewPool(int64(unrecordedPerProcessor * processors)), wake: make(chan struct{}, 1),
	}
}

// redeem claims the message of a ticket and delivers it, if its project may take a slot. Otherwise it gives the ticket
// up at once: one that waited would take the room of other projects' tickets.
func (w *deliverer) redeem(ctx context.Context, t tickets.Ticket) error {
	return rescue.Do(ctx, "ticket", func() error { return w.useTicket(ctx, t) })
}

func (w *deliverer) useTicket(ctx context.Context, t tickets.Ticket) error {
	if !w.slots.Try(string(t.Project), 1, shareFactor) {
		_, err := postponeTicket(ctx, w.queue.pool, t, slotPause)
		return err
	}
	ctx = share.For(ctx, string(t.Project))
	if err := w.queue.payloads.Prepare(string(t.Project)); err != nil {
		_, postponed := postponeTicket(ctx, w.queue.pool, t, unreachedBackoff)
		return errors.Join(err, postponed)
	}
	w.issueMore()
	defer w.issueMore()
	defer w.slots.Release(string(t.Project), 1)
	free, err := w.reserveBody(ctx, t)
	if errors.Is(err, errTicketUsed) {
		return nil
	}
	if err != nil {
		return err // shutting down; the ticket stays valid
	}
	defer free()
	slot, err := w.startSlot(ctx, t.Project)
	if err != nil {
		return err // as above
	}
	defer slot.end()
	handle := newHandle()
	d, ok, err := w.queue.Claim(ctx, t, handle, w.heartbeat.ID, w.lease)
	if err != nil {
		// The claim may have been committed although its response was lost. Only this process knows the handle.
		return errors.Join(err, w.nack(ctx, handle, unclaimed(err)))
	}
	if !ok {
		// Unless the ticket has been used, others have taken over the leases of this process, and would take over new ones
		// as well. Its next heartbeat registers it again. Until then no heartbeat finds out that the message is due.
		postponed, err := postponeTicket(ctx, w.queue.pool, t, cluster.BeatInterval)
		if postponed {
			poke(w.wake)
		}
		return err
	}
	d.startSlot = slot
	return w.observed(ctx, d, d.ClaimedAt.Sub(t.IssuedAt), free)
}

// deliver calls the function with a message that is leased to this process, or performs the message's work, and returns
// the outcome. Free releases the memory of the body. It fails if the outcome could not be stored: then the message is
// delivered again when its lease expires.
func (w *deliverer) deliver(ctx context.Context, d Delivery, free func()) (Delivered, error) {
	if w.holds(d) {
		return Delivered{OutcomeUnreached, message.ProjectPaused}, w.postpone(ctx, d)
	}
	if held, err := w.isHeld(ctx, d); held || err != nil {
		return Delivered{OutcomeUnreached, partPaused}, err
	}
	switch {
	case d.IsEmbedded() && d.callsApp() && !w.queue.hosts(d):
		return w.passOn(ctx, d)
	case d.URL == PulledURL && d.callsApp():
		free()
		return w.performAtWorker(ctx, d)
	case d.Work != message.WorkNone:
		free() // handlers read from the database what they send
		return w.Perform(ctx, d)
	case d.URL == PulledURL:
		return w.handOver(ctx, d)
	case d.URL == "" || d.IsFlow() || d.IsEmbedded():
		w.logger.WarnContext(ctx, "message waits for its deployment", "message", d.ID, "deployment", d.DeploymentID)
		return w.fail(ctx, d, *d.Unregistered())
	default:
		return w.deliverByHTTP(ctx, w.Bind(d), free)
	}
}

// deliverByHTTP calls the function with a message, unless its host is unhealthy or its run is busy.
func (w *deliverer) deliverByHTTP(ctx context.Context, d Delivery, free func()) (Delivered, error) {
	if f := d.Unhealthy(ctx); f != nil {
		defer d.retryIfRecovered(ctx)
		return w.fail(ctx, d, *f)
	}
	answered, err := w.awaitRun(ctx, &d)
	if errors.Is(err, errRunBusy) {
		return Delivered{OutcomeUnreached, err.Error()}, w.putBack(ctx, d.Lease, busyPause)
	}
	if err != nil {
		return Delivered{Outcome: OutcomeStopped}, w.release(ctx, d.Lease)
	}
	defer answered()
	return w.callFunction(ctx, d, free)
}

// callFunction calls the function with a message, and returns the outcome.
func (w *deliverer) callFunction(ctx context.Context, d Delivery, free func()) (Delivered, error) {
	var acknowledged atomic.Bool
	w.queue.underWay.Store(d.Lease, &acknowledged)
	defer w.queue.underWay.Delete(d.Lease)
	err := w.call(ctx, &d, free)
	switch {
	case err == nil && acknowledged.Load():
		return Delivered{Outcome: OutcomeDone}, nil
	case err == nil:
		// The function answered but did not acknowledge. Only the acknowledgement counts, which is a separate request
		// (protocol §5.5): without one the lease expires soon, and later with each delivery.
		return Delivered{Outcome: OutcomeDone}, Persist(ctx, func(ctx context.Context) error {
			if d.SpecVersion >= entities.SpecFence { // whose client asks so for the same message again
				if err := postpone(ctx, w.queue.pool, d.Lease); err != nil {
					return err
				}
			}
			return shortenLease(ctx, w.queue.pool, d.Lease, max(answeredLease, retryPause(d.failures())))
		})
	case errors.Is(ctx.Err(), context.Canceled):
		return Delivered{Outcome: OutcomeStopped}, Persist(ctx, func(ctx context.Context) error {
			return leaveLease(ctx, w.queue.pool, d.Lease, d.ClaimedAt)
		})
	default:
		return w.retryLater(ctx, d, err)
	}
}

var errTicketUsed = errors.New("the ticket has been used")

// reserveBody waits for memory for the message's body. Meanwhile it renews the ticket: if that counted as lost, the
// message would get more and more tickets, until all deliveries wait for the same message. It fails with errTicketUsed
// when another process has used the ticket.
func (w *deliverer) reserveBody(ctx context.Context, t tickets.Ticket) (free func(), err error) {
	if free, ok := w.memory.try(t.Project, t.Size); ok {
		return free, nil
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		_ = rescue.Do(ctx, "keep", func() error { // without it, the ticket may come to count as lost
			w.keep(ctx, t, func() { end(errTicketUsed) })
			return nil
		})
	}()
	if free, err = w.memory.take(ctx, t.Project, t.Size); err != nil {
		return nil, context.Cause(ctx)
	}
	return free, nil
}

// keep renews a ticket so that it does not count as lost until the context ends, and calls used if another process has
// used it.
func (w *deliverer) keep(ctx context.Context, t tickets.Ticket, used func()) {
	for {
		good, err := postponeTicket(ctx, w.queue.pool, t, ticketTime)
		if err == nil && !good {
			used()
			return
		}
		if !pause(ctx, w.keepPause) { // after an error the ticket may come to count as lost
			return
		}
	}
}

// Persist retries do until it succeeds, for a minute at most. It is for results that must be stored even while the
// server shuts down, so it ignores the cancellation of the context, or while the database is unavailable for a while.
func Persist(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistTimeout)
	defer cancel()
	for failures := 1; ; failures++ {
		err := do(ctx)
		if err == nil || !pause(ctx, backoff.Pause(firstPersistPause, longestPersistPause, 2, failures)) {
			return err
		}
	}
}

// fail releases a message after a failure, and returns the outcome.
func (w *deliverer) fail(ctx context.Context, d Delivery, f Failure) (Delivered, error) {
	outcome := OutcomeUnreached
	if f.Reached {
		outcome = OutcomeFailed
	}
	return Delivered{outcome, f.Public}, w.nack(ctx, d.Lease, f)
}

// nack releases a message after a failure, if the lease has not changed.
func (w *deliverer) nack(ctx context.Context, handle string, f Failure) error {
	return w.endLease(ctx, "release failed message", nackSQL, f.nackArgs(handle)...)
}

// release ends a lease whose function was not called, so that the message is due at once for any process.
func (w *deliverer) release(ctx context.Context, handle string) error {
	return w.putBack(ctx, handle, 0)
}

// putBack ends a lease whose function was not called, so that the message is due after a while.
func (w *deliverer) putBack(ctx context.Context, handle string, d time.Duration) error {
	return w.endLease(ctx, "release message", releaseSQL, handle, d)
}

func (w *deliverer) endLease(ctx context.Context, what, sql string, args ...any) error {
	err := Persist(ctx, func(ctx context.Context) error { return exec(ctx, w.queue.pool, what, sql, args...) })
	w.queue.WakeTimer(err)
	return err
}

// Storable replaces the bytes that a Postgres text column does not accept: NUL and invalid UTF-8.
func Storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// retryPause returns the time to wait after the given number of deliveries.
func retryPause(deliveries int) time.Duration {
	return backoff.Pause(firstBackoff, maxBackoff, 2, deliveries)
}

// errLeaseOver is the error of a call that outlasted its lease.
const errLeaseOver = PublicError("canceled because its lease expired")

// call calls the function, and cancels the call when the lease expires: from then on the answer does not matter, and a
// function that never answers must not block other deliveries.
func (w *deliverer) call(ctx context.Context, d *Delivery, sent func()) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go w.Bind(*d).WatchLease(ctx, 0, func() { end(errLeaseOver) })
	err := w.post(ctx, d, sent)
	if err != nil && errors.Is(context.Cause(ctx), errLeaseOver) {
		return errLeaseOver
	}
	return err
}

// post sends the message to the function. An error means that it was not delivered.
func (w *deliverer) post(ctx context.Context, d *Delivery, sent func()) error {
	upTo, free := w.addRun(ctx, d)
	defer free()
	req, err := newRequest(ctx, *d)
	if err != nil {
		return err
	}
	if w.options.World != nil {
		req.Header.Set(world.Header, strconv.Itoa(world.Version))
	}
	body := d.Body
	if len(body) > smallBody {
		// The memory is needed until the body is sent, not until the function answers.
		req.Body, req.GetBody = &sending{body: body, sent: func() { sent(); free() }}, nil
		d.Body = nil
	}
	resp, err := w.send(req, *d, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if done, err := w.answeredByWorld(ctx, *d, resp, upTo); done {
		return err
	}
	start, err := io.ReadAll(io.LimitReader(resp.Body, maxReasonBody))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return &answerError{req.URL.String(), resp.StatusCode, resp.Status, start}
	}
	_, err = io.Copy(io.Discard, resp.Body) // so that the connection can be reused
	return err
}

// send signs a request to the delivery's function and sends it. The signature covers the body.
func (w *deliverer) send(req *http.Request, d Delivery, body []byte) (*http.Response, error) {
	w.options.Observer.Call(req.Context(), req.Header)
	if d.place != nil {
		return w.callByWorker(req, d, body)
	}
	if d.IsEmbedded() { // and so it is hosted here
		defer d.startSlot.call().Stop()
		return w.queue.hosted.call(req, d)
	}
	if err := w.options.Signer.sign(req, d.Project, body); err != nil {
		return nil, err
	}
	defer d.startSlot.call().Stop()
	resp, err := w.http.Do(req) //nolint:gosec // the dialer refuses addresses that deployments may not have
	if err != nil && isDisconnect(err) {
		err = &disconnectError{err}
	}
	w.noteOutage(req.Context(), d, err)
	if err == nil && d.TrialAt != nil && resp.StatusCode/100 == 2 {
		w.noteSuccess(req.Context(), d)
	}
	return resp, err
}

// newRequest returns the request that delivers the message.
func newRequest(ctx context.Context, d Delivery) (*http.Request, error) {
	path, header := d.Request()
	url := strings.TrimSuffix(d.URL, "/") + path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(d.Body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	return req, nil
}

// Request returns the path of the app's route and the header of the request of protocol §5.4: a binary-mode CloudEvent
// with the message's body.
func (d Delivery) Request() (path string, header http.Header) {
	header = http.Header{}
	for name, value := range map[string]string{
		"Content-Type":             d.ContentType,
		"Ce-Specversion":           "1.0",
		"Ce-Id":                    d.ID,
		"Ce-Source":                "/stepwell/topics/" + d.Topic,
		"Ce-Type":                  "com.vercel.queue.v2beta",
		"Ce-Vqsqueuename":          d.Topic,
		"Ce-Vqsconsumergroup":      "default",
		"Ce-Vqsmessageid":          d.ID,
		"Ce-Vqsreceipthandle":      d.Lease,
		"Ce-Vqsdeliverycount":      strconv.Itoa(d.DeliveryCount),
		"Ce-Vqscreatedat":          timestamp(d.CreatedAt),
		"Ce-Vqsexpiresat":          timestamp(d.ExpiresAt),
		"Ce-Vqsvisibilitydeadline": timestamp(d.shownDeadline()),
		"User-Agent":               "stepwell",
	} {
		header.Set(name, value)
	}
	return "/.well-known/workflow/v1/" + route(d.Topic, d.DeliveryCount, d.SpecVersion), header
}

// shownDeadline is the end of the lease that the function is sent. It is earlier than the real one, so that a function
// that works for long soon shows that it is alive: its lease then outlives the server that called it.
func (d Delivery) shownDeadline() time.Time {
	if shown := d.ClaimedAt.Add(shownLease); shown.Before(d.DueAt) {
		return shown
	}
	return d.DueAt
}

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// stepTopics matches the topics of steps, in Go and in Postgres.
const stepTopics = `^__(?:[A-Za-z0-9-]+_)?wkf_step_`

var stepTopic = regexp.MustCompile(stepTopics)

// stepHealth is the suffix of the topic of health checks of the step route.
const stepHealth = "wkf_step_health_check"

// route returns the app's route for a delivery (protocol §5.3). Apps of the SDK's 5.x line have no step route and
// answer 404 there, but get health checks for it. So every second delivery of these goes to the flow route, which they
// have. It executes the steps of runs with a fence, too, whose messages may have the topic of a step.
func route(topic string, delivery, specVersion int) string {
	if !stepTopic.MatchString(topic) || specVersion >= entities.SpecFence ||
		delivery%2 == 0 && strings.HasSuffix(topic, stepHealth) {
		return "flow"
	}
	return "step"
}
