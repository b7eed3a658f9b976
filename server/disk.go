package server

import (
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// diskFullFor is how long the server is unready after a statement failed because the database's disk is full. If the
// disk still is full then, the next failing statement makes the server unready again.
const diskFullFor = 10 * time.Second

// diskMonitor looks for disk-full errors of a pool's statements. No other signal is available: only a write that needs
// space fails.
type diskMonitor struct {
	now  func() time.Time
	full atomic.Pointer[time.Time] // time of the last disk-full error; nil if there was none
}

// install has the monitor see the errors of the pool's connections.
func (d *diskMonitor) install(c *pgxpool.Config) {
	const diskFull = "53100"
	next := c.ConnConfig.OnPgError
	c.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == diskFull {
			now := d.now()
			d.full.Store(&now)
		}
		return next(conn, err)
	}
}

// problem returns why the server is unready, or "".
func (d *diskMonitor) problem() string {
	if at := d.full.Load(); at != nil && d.now().Sub(*at) < diskFullFor {
		return "the database's disk is full"
	}
	return ""
}
