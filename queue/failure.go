package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/health"
	"github.com/stepwell-dev/stepwell/queue/world"
)

// answerError is an answer without a success status.
type answerError struct {
	url    string
	status int
	// line is the status code and reason phrase as received.
	line string
	// start is the beginning of the body.
	start []byte
}

// Error returns a text that quotes the answer. Only users who may read the message may see it.
func (e *answerError) Error() string {
	return fmt.Sprintf("%s answered %s: %q", e.url, e.line, e.start)
}

// Redacted returns the status without the answer's text and the function's URL.
func (e *answerError) Redacted() string {
	return fmt.Sprintf("answered %d %s", e.status, http.StatusText(e.status))
}

// Refused returns the error for an answer of the deployment's function without a success status.
func (d Delivery) Refused(status int, body []byte) error {
	line := fmt.Sprintf("%d %s", status, http.StatusText(status))
	return &answerError{d.URL, status, line, body[:min(len(body), maxReasonBody)]}
}

// ErrOvertaken refuses what a copy of a call writes that does not know what another copy has written; see [Copy]. The
// delivery does not count, and the next call, which comes soon, has the whole log.
const ErrOvertaken = PublicError("another copy of this call has written to the log")

// overtakenBackoff is the first pause after [ErrOvertaken]. It doubles unless a copy has written in between.
const overtakenBackoff = 50 * time.Millisecond

// PublicError is an error whose text may be logged.
type PublicError string

// Error implements error.
func (e PublicError) Error() string { return string(e) }

// Redacted returns the whole text.
func (e PublicError) Redacted() string { return string(e) }

// redact returns the part of an error that logs and traces may show: no text from a function, and no URL, which may
// contain a key. The full text is in the message's last error, for users who may read the message. Only errors known to
// be harmless are shown: those with a method Redacted, and a list of errors from other packages.
func redact(err error) string {
	if known := (interface {
		error
		Redacted() string
	})(nil); errors.As(err, &known) && known.Redacted() != "" {
		return known.Redacted()
	}
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return "the database: " + pg.Error()
	}
	if connection := (*net.OpError)(nil); errors.As(err, &connection) {
		return connection.Error()
	}
	for _, known := range []error{
		context.Canceled, context.DeadlineExceeded,
		message.ErrStale, entities.ErrRunEnded, entities.ErrConflict, entities.ErrInvalid, entities.ErrNotYet,
		entities.ErrRunNotFound, entities.ErrStepNotFound, entities.ErrHookNotFound, entities.ErrWaitNotFound,
		message.ErrDeploymentNotFound, store.ErrSignalNotFound, entities.ErrKeyTaken,
		atrest.ErrUnavailable, atrest.ErrAltered,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "see the message's last error"
}

// Failure is why a delivery failed, and when its message is retried. A [Handler] that returns one as its error
// determines its own retry.
type Failure struct {
	Reason string
	// Public is the part of the reason that may be logged; see [redact].
	Public string
	// After is the time until the next delivery.
	After time.Duration
	// Reached is set if the function may have received the message. Only these deliveries count towards parking:
	// messages must not be parked because their app is down.
	Reached bool
	// Disconnected is set if the app died before it answered. The delivery counts as one that reached the function.
	Disconnected bool
	// Blocked is set if the function said with a code why the run does not go on.
	Blocked *message.Blocked
	// Parked is set if the message is parked at once, until somebody retries it.
	Parked bool
	// KeepsSlots is set if the step goes on without its delivery, and keeps its slots of limits.
	KeepsSlots bool
}

// Error implements error.
func (f *Failure) Error() string { return f.Reason }

// Redacted returns the part of the reason that may be logged.
func (f *Failure) Redacted() string { return f.Public }

// Failure turns an error of the delivery into a failure: an error that proves that the function was not called does not
// count as a delivery, and a long outage does not lengthen its backoff beyond [unreachedBackoff]. A delivery that was
// cut off counts, but the backoff of failures does not grow by it.
func (d Delivery) Failure(err error) Failure {
	if f := (*Failure)(nil); errors.As(err, &f) {
		return *f
	}
	f := Failure{Reason: err.Error(), Public: redact(err)}
	if rescue.IsPanic(err) {
		f.Reached, f.Parked, f.Blocked = true, true, &message.Blocked{Code: rescue.Code, Message: f.Reason}
		return f
	}
	if errors.Is(err, ErrOvertaken) {
		f.After = min(overtakenBackoff<<min(d.UnreachedCount, 10), unreachedBackoff)
		return f
	}
	if errors.Is(err, atrest.ErrUnavailable) {
		f.After = unreachedBackoff
		return f
	}
	if isRefused(err) {
		longest := unreachedBackoff
		if d.DisconnectCount > promptDisconnects { // then it is not due as soon as its app answers
			longest = longestDisconnectPause
		}
		f.After = min(retryPause(d.UnreachedCount+1), longest)
		return f
	}
	if errors.Is(err, errUnsigned) {
		f.After = firstBackoff
		return f
	}
	f.Reached = true
	if cut := (*disconnectError)(nil); errors.As(err, &cut) {
		f.Disconnected, f.After = true, disconnectBackoff(d.DisconnectCount+1)
		return f
	}
	f.After = retryPause(d.failures())
	return f
}

// Callable reports whether the deployment is registered at a URL, or a worker makes the call.
func (d Delivery) Callable() bool { return d.URL != "" && (d.URL != PulledURL || d.place != nil) }

// Unregistered is the failure of a delivery whose deployment is not registered at a URL.
func (d Delivery) Unregistered() *Failure {
	reason := fmt.Sprintf("deployment %s is not registered: stepwell deployments add %[1]s URL", d.DeploymentID)
	if d.IsFlow() {
		reason = fmt.Sprintf("deployment %s is a flow, which has no app: only the server executes its runs", d.DeploymentID)
	}
	return &Failure{Reason: reason, Public: reason, After: unreachedBackoff}
}

// Unhealthy returns the failure of a delivery whose deployment is unhealthy, and so is not called; nil if it is called.
// When its trial call is due, one delivery makes it. Whoever releases the delivery checks
// afterwards whether the deployment has recovered, as [Delivery.Afterwards] does by itself.
func (d Delivery) Unhealthy(ctx context.Context) *Failure {
	if d.TrialAt == nil {
		return nil
	}
	left := d.TrialAt.Sub(d.ClaimedAt)
	if left <= 0 {
		if ok, err := health.Try(ctx, d.by.queue.pool, d.Project, d.DeploymentID); ok || err != nil {
			return nil // without the database, the outcome of the call cannot be stored either
		}
	}
	d.Afterwards(func() { d.retryIfRecovered(ctx) })
	reason := fmt.Sprintf("deployment %s is unhealthy: it is called again when a probe succeeds, or at %s as a trial",
		d.DeploymentID, d.TrialAt.UTC().Format(time.RFC3339))
	return &Failure{Reason: reason, Public: reason, After: min(max(left, firstBackoff), unreachedBackoff)}
}

// retryIfRecovered makes a delivery due that was not called if its deployment has recovered before the delivery was
// released. Who notes a recovery makes due what was released until then. Both commit before they read, so one of them
// sees the other.
func (d Delivery) retryIfRecovered(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outageTimeout)
	defer cancel()
	p, err := health.Find(ctx, d.by.queue.pool, d.Project, d.DeploymentID)
	if err == nil && (p == nil || p.TrialAt == nil) {
		err = d.by.queue.Recovered(ctx, d.Project, d.DeploymentID, d.ClaimedAt)
	}
	if err != nil {
		d.Logger().WarnContext(ctx, "check whether a deployment has recovered", "deployment", d.DeploymentID, "error", err)
	}
}

// noteSuccess makes due what waits for an unhealthy deployment that has answered a call with success.
func (w *deliverer) noteSuccess(ctx context.Context, d Delivery) {
	ctx, cancel := context.WithTimeout(ctx, outageTimeout)
	defer cancel()
	err := health.Answered(ctx, w.queue.pool, d.Project, d.DeploymentID)
	if err == nil {
		err = w.queue.Recovered(ctx, d.Project, d.DeploymentID, d.ClaimedAt)
	}
	if err != nil {
		w.logger.WarnContext(ctx, "end the pause of a deployment", "deployment", d.DeploymentID, "error", err)
	}
}

// Recovered makes the messages due now that wait for a deployment which was unhealthy. They were due after the time.
func (q *Queue) Recovered(ctx context.Context, p entities.Project, deployment string, after time.Time) error {
	defer q.announceDue(nil)
	return makeDueNow(ctx, q.pool, p, Deployment{ID: deployment, UpdatedAt: after}, unreachedOnly)
}

// IsFlow reports whether the deployment is a version of a flow, which the server executes: there is nothing to call.
func (d Delivery) IsFlow() bool { return strings.HasPrefix(d.URL, contract.FlowScheme) }

// NotAsked is the failure of a delivery whose app asks for its deliveries, and has not asked the process that makes it.
// Since is when it last asked any process; nil if that is not known.
func (d Delivery) NotAsked(since *time.Time) *Failure {
	last := ""
	if since != nil {
		last = " since " + since.UTC().Format(time.RFC3339)
	}
	reason := fmt.Sprintf("no app asks for deliveries of deployment %s%s: start it", d.DeploymentID, last)
	return &Failure{Reason: reason, Public: reason, After: unreachedBackoff}
}

// NotServed is the failure of a delivery to a process that has not carried it out, for the reason that it gives.
func (d Delivery) NotServed(reason string) *Failure {
	return &Failure{
		Reason: "the function's process refused the call: " + reason, Public: "the function's process refused the call",
		After: min(retryPause(d.UnreachedCount+1), unreachedBackoff),
	}
}

// failures is how many of the deliveries, including this one, failed without the death of the app.
func (d Delivery) failures() int { return max(1, d.DeliveryCount-d.DisconnectCount-d.ExcusedCount) }

// isRefused reports whether no connection to the function was made.
func isRefused(err error) bool {
	dial := (*net.OpError)(nil)
	return errors.As(err, &dial) && dial.Op == "dial"
}

// IsOver reports whether an error means that nothing is left to do: the run has ended or was deleted, or another
// delivery has the work.
func IsOver(err error) bool {
	return errors.Is(err, entities.ErrRunEnded) || errors.Is(err, entities.ErrRunNotFound) ||
		errors.Is(err, message.ErrStale)
}

// ErrCalled is in the error of interrupted work that must remember that it may have reached its function.
var ErrCalled = errors.New("the function may have been called")

// Interrupted reports whether work failed because the server stops. Work that was canceled by the end of a drain was
// not interrupted: it takes too long.
func Interrupted(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, errDrainOver)
}

// isDisconnect reports whether a request failed because its connection was closed or reset before an answer. That is
// how the death of an app looks. A timeout and an answer of any status are failures of the app's code.
func isDisconnect(err error) bool {
	if isRefused(err) {
		return false
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, closed) {
			return true
		}
	}
	return false
}

// disconnectError is the error of a call that was cut off; see [isDisconnect].
type disconnectError struct{ error }

// Error says how the call ended, for people.
func (e *disconnectError) Error() string { return e.Redacted() + ": " + e.error.Error() }

// Redacted says how the call ended, without the function's URL.
func (e *disconnectError) Redacted() string { return message.ConnectionClosed }

// Unwrap returns the error of the connection.
func (e *disconnectError) Unwrap() error { return e.error }

const (
	// promptDisconnects is how often a message that was cut off is made due as soon as its app answers again.
	promptDisconnects = 3
	// shortDisconnects is how often a message may be cut off before its backoff exceeds longestDisconnectPause.
	shortDisconnects       = 16
	longestDisconnectPause = 10 * time.Second
)

// disconnectBackoff returns the time to wait after a message was cut off n times.
//
// The death of an app says nothing about the code that handles the message, so the message is tried again soon, however
// often that happens within minutes. But the message may be what kills the app, and then it must not be tried every
// second, or all others at the app die with it. So it first waits for up to ten seconds. From the 17th time on it waits
// like a message that fails, for up to 15 minutes: the 48 deliveries after which clients fail a run, and the 64
// after which a message is parked, still take hours.
func disconnectBackoff(n int) time.Duration {
	if n > shortDisconnects {
		return retryPause(n - shortDisconnects + 5) // from half a minute on
	}
	return min(retryPause(n), longestDisconnectPause)
}

type deploymentKey struct {
	project    entities.Project
	deployment string
}

const (
	// outagePause is the least time between two statements that shorten the leases at a deployment that stays away.
	outagePause = 10 * time.Second
	// shortestOutage is the least time between the claims of a call that was cut off and one whose answer shows that the
	// app is back. It limits the statements for an app with many processes, one of which dies again and again.
	shortestOutage = time.Second
	// outageTimeout limits the time that the delivery which notices the start or the end of an outage spends on others.
	outageTimeout = 5 * time.Second
)

// noteOutage notes whether the app of a delivery answered a call. When it goes away, leases that stopped servers have
// left to its functions end soon. When it is back, the messages that wait for it are due. Statements are executed only
// when the state changes, as far as this process knows, and once a minute: they also note the state for people. Another
// process that saw the outage tries again after a minute at the latest, and then does the same.
func (w *deliverer) noteOutage(ctx context.Context, d Delivery, err error) {
	cut := (*disconnectError)(nil)
	switch {
	case err == nil:
		err = errors.Join(w.endOutage(ctx, d), w.noteAnswer(ctx, d))
	case isRefused(err) || errors.As(err, &cut):
		err = w.startOutage(ctx, d, err)
	default:
		return
	}
	if err != nil {
		w.logger.WarnContext(ctx, "reschedule the messages of an app", "deployment", d.DeploymentID, "error", err)
	}
}

func (w *deliverer) startOutage(ctx context.Context, d Delivery, why error) error {
	key := deploymentKey{d.Project, d.DeploymentID}
	if last, away := w.outages.Load(key); away && d.ClaimedAt.Sub(last.(time.Time)) < outagePause {
		return nil
	}
	w.outages.Store(key, d.ClaimedAt)
	w.answered.Delete(key)
	ctx, cancel := context.WithTimeout(ctx, outageTimeout)
	defer cancel()
	return errors.Join(
		shortenLeftLeases(ctx, w.queue.pool, d.Project, d.DeploymentID),
		noteUnreachable(ctx, w.queue.pool, d.Project, d.DeploymentID, d.URL, Storable(why.Error())))
}

// noteAnswer notes that the app has answered, at most once a minute.
func (w *deliverer) noteAnswer(ctx context.Context, d Delivery) error {
	key := deploymentKey{d.Project, d.DeploymentID}
	if last, ok := w.answered.Load(key); ok && d.ClaimedAt.Sub(last.(time.Time)) < answeredPause {
		return nil
	}
	w.answered.Store(key, d.ClaimedAt)
	ctx, cancel := context.WithTimeout(ctx, outageTimeout)
	defer cancel()
	return noteAnswered(ctx, w.queue.pool, d.Project, d.DeploymentID)
}

func (w *deliverer) endOutage(ctx context.Context, d Delivery) error {
	key := deploymentKey{d.Project, d.DeploymentID}
	last, away := w.outages.Load(key)
	if !away || d.ClaimedAt.Sub(last.(time.Time)) < shortestOutage || !w.outages.CompareAndDelete(key, last) {
		return nil
	}
	w.logger.InfoContext(ctx, "app reachable again", "deployment", d.DeploymentID)
	ctx, cancel := context.WithTimeout(ctx, outageTimeout)
	defer cancel()
	err := makeDueNow(ctx, w.queue.pool, d.Project, Deployment{ID: d.DeploymentID, UpdatedAt: d.ClaimedAt}, unreachedOnly)
	w.queue.WakeTimer(nil)
	return err
}

// answeredPause is how long a deployment's answers are not noted again.
const answeredPause = time.Minute

// outageGap ends an outage of which nobody has seen the end: while a deployment is away, its messages are tried again
// after [unreachedBackoff] at the latest.
const outageGap = 5 * unreachedBackoff

// noteAnswered notes that the deployment has answered.
func noteAnswered(ctx context.Context, pool *pgxpool.Pool, project entities.Project, id string) error {
	return exec(ctx, pool, "note answer", `
		UPDATE deployments SET answered_at = now(), unreachable_since = NULL WHERE project = $1 AND id = $2`, project, id)
}

// noteAsked notes that the app asks for its deliveries, and registers it if it is not. It fails with
// [message.ErrHasURL].
func (q *Queue) noteAsked(ctx context.Context, app world.App) error {
	if _, noted := q.asked.Load(app); noted {
		return nil
	}
	asking := Deployment{ID: app.Deployment, URL: PulledURL}
	if err := asking.normalize(); err != nil {
		return err
	}
	d, err := q.Deployment(ctx, app.Project, app.Deployment)
	if errors.Is(err, message.ErrDeploymentNotFound) {
		if err = q.registerPulled(ctx, app); err == nil {
			d, err = q.Deployment(ctx, app.Project, app.Deployment)
		}
	}
	switch {
	case err != nil:
		return err
	case d.URL != PulledURL:
		return message.ErrHasURL
	}
	q.asked.Store(app, nil)
	time.AfterFunc(askedPause, func() { q.asked.Delete(app) })
	return noteAnswered(ctx, q.pool, app.Project, app.Deployment)
}

// lastAsked returns when the app of the delivery last asked for deliveries, if none could be handed over for a while.
func (q *Queue) lastAsked(ctx context.Context, d Delivery) *time.Time {
	if d.UnreachedCount == 0 {
		return nil // it may be asking another process
	}
	var last *time.Time
	err := pg.NewPool(q.pool).QueryRow(ctx, `
		SELECT answered_at FROM deployments WHERE project = $1 AND id = $2 AND answered_at < now() - $3::interval`,
		d.Project, d.DeploymentID, unreachedBackoff).Scan(&last)
	if err != nil { // such as that there is none
		return nil
	}
	return last
}

// registerPulled registers an app that asks for its deliveries, unless it is registered, or its ID is that of an alias.
func (q *Queue) registerPulled(ctx context.Context, app world.App) error {
	return pg.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		if err := lockFlows(ctx, tx, app.Project, app.Deployment); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO deployments (project, id, url) SELECT $1, $2, $3
			WHERE NOT EXISTS (SELECT FROM flow_aliases WHERE project = $1 AND id = $2) ON CONFLICT DO NOTHING`,
			app.Project, app.Deployment, PulledURL)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return audit(ctx, tx, app.Project, admin.ActionDeploymentPut, app.Deployment, map[string]any{"url": PulledURL})
	})
}

// noteUnreachable notes that a call at the URL did not reach the deployment. It changes nothing if that is not the
// deployment's URL any more.
func noteUnreachable(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, id, url, failure string,
) error {
	return exec(ctx, pool, "note outage", `
		UPDATE deployments SET failed_at = now(), failure = $4, unreachable_since =
			CASE WHEN failed_at > now() - $5::interval THEN coalesce(unreachable_since, now()) ELSE now() END
		WHERE project = $1 AND id = $2 AND url = $3`, project, id, url, failure, outageGap)
}
