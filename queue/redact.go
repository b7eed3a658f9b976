package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
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

// AnswerError is the error of an answer to a call whose status is not one of success.
func AnswerError(url string, status int, body []byte) error {
	line := fmt.Sprintf("%d %s", status, http.StatusText(status))
	return &answerError{url, status, line, body[:min(len(body), maxReasonBody)]}
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
		entities.ErrDeploymentNotFound, entities.ErrSignalNotFound, entities.ErrKeyTaken,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "see the message's last error"
}
