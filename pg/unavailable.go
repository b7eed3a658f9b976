package pg

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// unavailableCodes are the SQLSTATEs, beside the classes of unavailableClasses, that are about the state of the
// database and not about the statement.
var unavailableCodes = []string{
	"25006", // read_only_sql_transaction: the node is a standby, or was demoted
	"25P03", // idle_in_transaction_session_timeout: this process stalled
	"25P04", // transaction_timeout
	"40001", // serialization_failure, and
	"40P01", // deadlock_detected: after several tries
	"55P03", // lock_not_available: lock_timeout passed
	"57014", // query_canceled: statement_timeout passed
	"57P01", // admin_shutdown
	"57P02", // crash_shutdown
	"57P03", // cannot_connect_now: starting, stopping or recovering
	"57P05", // idle_session_timeout
	codeMoving,
}

// unavailableClasses are the SQLSTATE classes of connection exceptions and of insufficient resources, such as too many
// connections or a full disk.
var unavailableClasses = []string{"08", "53"}

// IsUnavailable reports whether the error means that the database cannot do the work now: it cannot be reached, has no
// node that accepts writes, is starting or stopping, lacks resources, or does not answer in time. The same request may
// succeed later. As with any lost connection, a write that failed like this may have been committed.
func IsUnavailable(err error) bool {
	if fromServer, ok := errors.AsType[*pgconn.PgError](err); ok {
		return slices.Contains(unavailableCodes, fromServer.Code) ||
			len(fromServer.Code) == 5 && slices.Contains(unavailableClasses, fromServer.Code[:2])
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	// The driver reports a connection that ends within an answer as one of these.
	return pgconn.Timeout(err) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
