package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/store"
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
}

// Error implements error.
func (f *Failure) Error() string { return f.Reason }

// Redacted returns the part of the reason that may be logged.
func (f *Failure) Redacted() string { return f.Public }

// Failure turns an error of the delivery into a failure: an error that proves that the function was not called does not
// count as a delivery, and a long outage does not lengthen its backoff beyond [unreachedBackoff].
func (d Delivery) Failure(err error) Failure {
	if f := (*Failure)(nil); errors.As(err, &f) {
		return *f
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return Failure{err.Error(), redact(err), min(backoff(d.Unreached+1), unreachedBackoff), false}
	}
	if unsigned := (*unsignedError)(nil); errors.As(err, &unsigned) {
		return Failure{err.Error(), redact(err), firstBackoff, false}
	}
	return Failure{err.Error(), redact(err), backoff(d.DeliveryCount), true}
}

// Unregistered is the failure of a delivery whose deployment is not registered.
func (d Delivery) Unregistered() *Failure {
	reason := fmt.Sprintf("deployment %s is not registered: stepwell deployments add %[1]s URL", d.DeploymentID)
	return &Failure{Reason: reason, Public: reason, After: unreachedBackoff}
}
