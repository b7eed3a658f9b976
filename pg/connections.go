package pg

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/share"
)

const (
	// connectionFactor is the factor of [share.Pool] by which projects share the connections.
	connectionFactor = 4
	// ownConnections is the part of a pool that projects cannot take: one of 4. Group commits and the server's own work
	// use them.
	ownConnections = 4
	// contendedConnections is the part of what projects may take that one may hold while others are active: one of 3.
	contendedConnections = 3
)

// Connections divides the connections of a pool between the projects for which work is done; see [share.KeyOf]. A
// project that has its share waits for one of its own connections, however many are idle. Work for no project takes any
// that is idle. It is a tracer, because that is where a pool can be made to wait for something else than a connection.
type Connections struct {
	now    func() time.Time
	pool   *share.Pool
	waits  atomic.Int64
	waited atomic.Int64 // nanoseconds
}

// NewConnections returns a division for one pool. Now is the clock.
func NewConnections(now func() time.Time) *Connections { return &Connections{now: now} }

// Install makes the connections of the pool divided.
func (d *Connections) Install(config *pgxpool.Config) {
	divided := int64(config.MaxConns - config.MaxConns/ownConnections)
	d.pool = share.NewPool(divided)
	d.pool.Contended = max(1, divided/contendedConnections)
	if c := config.ConnConfig; c.Tracer != nil {
		c.Tracer = multitracer.New(c.Tracer, d)
	} else {
		c.Tracer = d
	}
}

// Waits returns how many acquisitions waited because their project had its share, and for how long in all.
func (d *Connections) Waits() (n int64, waited time.Duration) {
	return d.waits.Load(), time.Duration(d.waited.Load())
}

// unshared marks the context of an acquisition that ended before its project had a unit.
type unshared struct{}

// TraceAcquireStart implements [pgxpool.AcquireTracer]. It waits until the project may have another connection.
func (d *Connections) TraceAcquireStart(
	ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData,
) context.Context {
	key := share.KeyOf(ctx)
	if key == "" || d.pool.Try(key, 1, connectionFactor) {
		return ctx
	}
	began := d.now()
	err := d.pool.Take(ctx, key, 1, connectionFactor)
	d.waits.Add(1)
	d.waited.Add(int64(d.now().Sub(began)))
	if err != nil { // the context has ended, and so the acquisition fails
		return context.WithValue(ctx, unshared{}, true)
	}
	return ctx
}

// keyOfConnection is the entry of a connection's own data that has the project which holds the connection.
const keyOfConnection = "stepwell.share"

// TraceAcquireEnd implements [pgxpool.AcquireTracer].
func (d *Connections) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	key := share.KeyOf(ctx)
	switch {
	case key == "" || ctx.Value(unshared{}) != nil:
	case data.Err != nil:
		d.pool.Release(key, 1)
	default:
		data.Conn.PgConn().CustomData()[keyOfConnection] = key
	}
}

// TraceRelease implements [pgxpool.ReleaseTracer].
func (d *Connections) TraceRelease(_ *pgxpool.Pool, data pgxpool.TraceReleaseData) {
	held := data.Conn.PgConn().CustomData()
	if key, ok := held[keyOfConnection].(string); ok {
		delete(held, keyOfConnection)
		d.pool.Release(key, 1)
	}
}

// TraceQueryStart implements [pgx.QueryTracer], as every tracer of a pool must.
func (*Connections) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (*Connections) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
