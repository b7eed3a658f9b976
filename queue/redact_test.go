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

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// TestRedactHidesFunctionOutput: logs must contain no text of an answer, and no URL.
func TestRedactHidesFunctionOutput(t *testing.T) {
	t.Parallel()
	const unsaid = "SECRET"
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	failed := Delivery{DeliveryCount: 1}.Failure(Delivery{URL: "u"}.Refused(500, []byte(unsaid)))
	unregistered := Delivery{DeploymentID: "dpl"}.Unregistered()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{Delivery{URL: "http://f.test/" + unsaid}.Refused(503, []byte(unsaid)), "answered 503 Service Unavailable"},
		{Delivery{URL: "http://f.test/"}.Refused(299, []byte(unsaid)), "answered 299 "},
		{fmt.Errorf("x %s: %w", unsaid, refused), "dial tcp: connection refused"},
		{fmt.Errorf("malformed HTTP response %q", unsaid), "see the message's last error"},
		{errors.New(unsaid), "see the message's last error"},
		{io.ErrUnexpectedEOF, "see the message's last error"},
		{entities.Invalid("type: %s", unsaid), "invalid request"},
		{&eventlog.RefusedError{Err: &entities.KeyTakenError{Key: unsaid}}, "key taken"},
		{&entities.TransitionError{ID: unsaid, Refusal: entities.Conflict}, "conflict"},
		{&pgconn.PgError{Severity: "ERROR", Message: "no", Code: "XX000", Detail: unsaid}, "the database: ERROR: no (SQLSTATE XX000)"},
		{PublicError("no answer within 1m0s"), "no answer within 1m0s"},
		{errLeaseOver, errLeaseOver.Error()},
		{context.Canceled, "context canceled"},
		{&failed, "answered 500 Internal Server Error"},
		{unregistered, unregistered.Reason},
	} {
		if got := redact(tt.err); got != tt.want || strings.Contains(got, unsaid) {
			t.Errorf("%v: got %q, want %q", tt.err, got, tt.want)
		}
	}
}
