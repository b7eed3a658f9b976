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

// Error has the answer's own words: it is for who may see the message.
func (e *answerError) Error() string {
	return fmt.Sprintf("%s answered %s: %q", e.url, e.line, e.start)
}

func (e *answerError) public() string {
	return fmt.Sprintf("answered %d %s", e.status, http.StatusText(e.status))
}

// redact is what logs and traces may say of an error: nothing that a function said, and no URL, which may have a
// key. All of it is in the message's last error, for who may see that. Texts are shown that are known to be harmless,
// not those that are not known to be harmful.
func redact(err error) string {
	if answered := (*answerError)(nil); errors.As(err, &answered) {
		return answered.public()
	}
	if put := (*laterError)(nil); errors.As(err, &put) && put.public != "" {
		return put.public
	}
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return "the database: " + pg.Error()
	}
	if connection := (*net.OpError)(nil); errors.As(err, &connection) {
		return connection.Error()
	}
	if late := (errNoAnswer{}); errors.As(err, &late) {
		return late.Error()
	}
	for _, known := range []error{
		errLeaseOver, errAnswerTooLarge, ErrNothingLeft, errUnknownWork, context.Canceled, context.DeadlineExceeded,
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
