package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// TestInPublic: what may be said of errors, and that nothing of what a function said is.
func TestInPublic(t *testing.T) {
	t.Parallel()
	const unsaid = "SECRET"
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{answer{status: 503, body: []byte(unsaid)}.refusal("http://f.test/" + unsaid), "answered 503 Service Unavailable"},
		{answer{status: 299, body: []byte(unsaid)}.refusal("http://f.test/"), "answered 299 "},
		{fmt.Errorf("x %s: %w", unsaid, refused), "dial tcp: connection refused"},
		{fmt.Errorf("malformed HTTP response %q", unsaid), "see the message's last error"},
		{errors.New(unsaid), "see the message's last error"},
		{io.ErrUnexpectedEOF, "see the message's last error"},
		{entities.Invalid("type: %s", unsaid), "invalid request"},
		{&eventlog.RefusedError{Err: &entities.KeyTakenError{Key: unsaid}}, "key taken"},
		{&entities.TransitionError{ID: unsaid, Refusal: entities.Conflict}, "conflict"},
		{&pgconn.PgError{Severity: "ERROR", Message: "no", Code: "XX000", Detail: unsaid}, "the database: ERROR: no (SQLSTATE XX000)"},
		{errNoAnswer{time.Minute}, "no answer within 1m0s"},
		{errLeaseOver, errLeaseOver.Error()},
		{ErrNothingLeft, ErrNothingLeft.Error()},
		{context.Canceled, "context canceled"},
		{later(delivery{DeliveryCount: 1}, answer{status: 500, body: []byte(unsaid)}.refusal("u"), 0), "answered 500 Internal Server Error"},
		{&laterError{unregistered(delivery{DeploymentID: "dpl"})}, unregistered(delivery{DeploymentID: "dpl"}).reason},
	} {
		if got := redact(tt.err); got != tt.want || strings.Contains(got, unsaid) {
			t.Errorf("%v: got %q, want %q", tt.err, got, tt.want)
		}
	}
}
