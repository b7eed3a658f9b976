package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// fullFor is how long a server is not ready after a statement failed for want of disk space. If it still
// is full, the first request after that says so again.
const fullFor = 10 * time.Second

// disk watches all statements of a pool for those that fail because the database's disk is full: nothing
// but a write that needs space can tell.
type disk struct {
	now  func() time.Time
	full atomic.Pointer[time.Time] // the last time; nil while there was none
}

// watch makes the pool report to the disk.
func (d *disk) watch(c *pgxpool.Config) { c.ConnConfig.Tracer = d }

// trouble says what is wrong; nothing when nothing is.
func (d *disk) trouble() string {
	if at := d.full.Load(); at != nil && d.now().Sub(*at) < fullFor {
		return "the database's disk is full"
	}
	return ""
}

func (d *disk) saw(err error) {
	const diskFull = "53100"
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == diskFull {
		now := d.now()
		d.full.Store(&now)
	}
}

// TraceQueryStart implements [pgx.QueryTracer].
func (d *disk) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (d *disk) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	d.saw(data.Err)
}

// TraceBatchStart implements [pgx.BatchTracer].
func (d *disk) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (d *disk) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	d.saw(data.Err)
}

// TraceBatchEnd implements [pgx.BatchTracer].
func (d *disk) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	d.saw(data.Err)
}
