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
	"github.com/stepwell-dev/stepwell/entities/store"
)

// answerError is an answer whose status is not one of success.
type answerError struct {
	url    string
	status int
	// line is the status with the words that came with it.
	line string
	// start is how the answer begins.
	start []byte
}

// Error has the answer's own words, for those who may see the message.
func (e *answerError) Error() string {
	return fmt.Sprintf("%s answered %s: %q", e.url, e.line, e.start)
}

// Redacted leaves out what the function said, and its URL.
func (e *answerError) Redacted() string {
	return fmt.Sprintf("answered %d %s", e.status, http.StatusText(e.status))
}

// Refused is the error of an answer from the deployment's function whose status is not one of success.
func (d Delivery) Refused(status int, body []byte) error {
	line := fmt.Sprintf("%d %s", status, http.StatusText(status))
	return &answerError{d.URL, status, line, body[:min(len(body), maxReasonBody)]}
}

// PublicError is an error whose text logs may show.
type PublicError string

// Error implements error.
func (e PublicError) Error() string { return string(e) }

// Redacted returns the whole text.
func (e PublicError) Redacted() string { return string(e) }

// redact returns what logs and traces may show of an error: nothing that a function said, and no URL, which may have a
// key in it. The whole text is in the message's last error, for those who may see the message. Only errors known to be
// harmless are shown: those that say so by a method Redacted, and some of other packages.
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
		entities.ErrStale, entities.ErrRunEnded, entities.ErrConflict, entities.ErrInvalid, entities.ErrNotYet,
		entities.ErrRunNotFound, entities.ErrStepNotFound, entities.ErrHookNotFound, entities.ErrWaitNotFound,
		entities.ErrDeploymentNotFound, store.ErrSignalNotFound, entities.ErrKeyTaken,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "see the message's last error"
}

// Failure is why a delivery failed, and what that means for its message. As an error of a [Handler] it is followed to
// the letter.
type Failure struct {
	Reason string
	// Public is the part of the reason that may be logged; see [redact].
	Public string
	// After is how long to wait before the next delivery.
	After time.Duration
	// Reached says that the function may have seen the message. Only such deliveries are counted: that an app is away
	// is no fault of the messages that wait for it.
	Reached bool
}

// Error implements error.
func (f *Failure) Error() string { return f.Reason }

// Redacted returns what logs may show of the failure.
func (f *Failure) Redacted() string { return f.Public }

// Failure returns what an error of the delivery means for its message.
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
