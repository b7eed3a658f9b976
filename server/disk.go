package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// diskFullFor is how long the server is unready after a statement failed because the database's disk is full. If the
// disk still is full then, the next failing statement makes the server unready again.
const diskFullFor = 10 * time.Second

// diskMonitor traces all statements of a pool for disk-full errors. No other signal is available: only a write that
// needs space fails.
type diskMonitor struct {
	now  func() time.Time
	full atomic.Pointer[time.Time] // time of the last disk-full error; nil if there was none
}

// install sets the monitor as the pool's tracer.
func (d *diskMonitor) install(c *pgxpool.Config) { c.ConnConfig.Tracer = d }

// problem returns why the server is unready, or "".
func (d *diskMonitor) problem() string {
	if at := d.full.Load(); at != nil && d.now().Sub(*at) < diskFullFor {
		return "the database's disk is full"
	}
	return ""
}

func (d *diskMonitor) record(err error) {
	const diskFull = "53100"
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == diskFull {
		now := d.now()
		d.full.Store(&now)
	}
}

// TraceQueryStart implements [pgx.QueryTracer].
func (d *diskMonitor) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (d *diskMonitor) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	d.record(data.Err)
}

// TraceBatchStart implements [pgx.BatchTracer].
func (d *diskMonitor) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (d *diskMonitor) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	d.record(data.Err)
}

// TraceBatchEnd implements [pgx.BatchTracer].
func (d *diskMonitor) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	d.record(data.Err)
}
