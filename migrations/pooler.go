package migrations

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrPooler is the error of a database that is reached through a pooler which does not keep a session for each client.
// Locks, notifications and prepared statements of a session would be those of whoever comes next.
var ErrPooler = errors.New("the address of the database leads to a connection pooler in transaction mode, but" +
	" migrations need sessions of their own: set STEPWELL_DIRECT_DATABASE_URL to the address of Postgres itself")

// poolerTries is how often two connections are compared. Others may take the session in between.
const poolerTries = 10

// checkSessions fails with [ErrPooler] if the connections of the configuration do not have sessions of their own. It
// changes nothing, so that nothing is left behind a pooler.
func checkSessions(ctx context.Context, config *pgx.ConnConfig) error {
	config = config.Copy()
	config.RuntimeParams = nil // which a pooler may refuse
	var ask [2]func() (int, error)
	for i := range ask {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		ask[i] = func() (int, error) { return backend(ctx, conn.PgConn()) }
	}
	return compareSessions(ask[0], ask[1])
}

// compareSessions asks for the processes of two connections in turns, and fails with [ErrPooler] if that of one changes
// or is the other's.
func compareSessions(first, second func() (int, error)) error {
	var before [2]int
	for i := range poolerTries {
		one, err := first()
		if err != nil {
			return err
		}
		two, err := second()
		if err != nil {
			return err
		}
		if now := [2]int{one, two}; one == two || i > 0 && now != before {
			return ErrPooler
		}
		before = [2]int{one, two}
	}
	return nil
}

// backend returns the process of a connection. It prepares no statement, which a pooler may not support.
func backend(ctx context.Context, conn *pgconn.PgConn) (int, error) {
	results, err := conn.Exec(ctx, `SELECT pg_backend_pid()`).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("ask for the session: %w", err)
	}
	return strconv.Atoi(string(results[0].Rows[0][0]))
}

// refusedSettings explains the error of a pooler that refuses the settings with which connections start.
func refusedSettings(err error) error {
	const protocolViolation = "08P01"
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refused.Code != protocolViolation || !strings.Contains(refused.Message, "startup parameter") {
		return fmt.Errorf("connect: %w", err)
	}
	return fmt.Errorf("DATABASE_URL leads to a connection pooler that refuses settings of connections (%s):"+
		" give the address of Postgres itself, or make the pooler ignore them and set them on the role", refused.Message)
}
