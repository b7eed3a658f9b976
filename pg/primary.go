package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// hostTimeout limits the attempt to connect to a host, unless the URL sets connect_timeout.
	hostTimeout = 5 * time.Second
	// dropPause is the shortest time between two drops of all connections.
	dropPause = time.Second
	// refusalPause is the shortest time between two log lines about nodes that were refused.
	refusalPause = 10 * time.Second
)

// errNotPrimary is returned, wrapped in a [pgconn.ConnectError], by connection attempts to a node that must not be
// written to.
var errNotPrimary = errors.New("not the primary")

// Primary keeps the connections of a process on the primary of a Postgres cluster, however that fails over.
//
//   - A connection is used only if its node accepts writes. With several hosts in the database URL, the driver tries
//     the next one. This is libpq's target_session_attrs=read-write; the URL need not say it.
//   - A node must not be older than the newest primary that this process has seen. Each promotion begins a new timeline
//     with a higher number. A former primary that comes back still accepts writes, on its old timeline, but what is
//     written to it is lost.
//   - When a statement fails because its node is read-only, or the database says nothing any more, all connections are
//     closed at once. That includes those that only listen, which would never notice.
//
// What was seen is remembered as long as the process lives. [Primary.Find] and [Primary.KeepSurveying] add what the
// other hosts of the URL say. Postgres itself cannot tell a former primary from the present one, so a process that
// starts while only the former one can be reached writes to it: fencing is the task of the cluster manager.
type Primary struct {
	now    func() time.Time
	logger *slog.Logger

	mu      sync.Mutex
	newest  map[string]timeline // by system identifier
	open    map[*nodeConn]struct{}
	dropped time.Time
	refused time.Time // when a refusal was last logged
	// speaking ends when the database is found to be silent (see [Primary.Watch]), and silence ends it.
	speaking context.Context
	silence  context.CancelFunc

	reads atomic.Uint64 // of all connections
}

// NewPrimary returns a Primary that has seen no node. Now is the clock.
func NewPrimary(now func() time.Time, logger *slog.Logger) *Primary {
	p := &Primary{now: now, logger: logger, newest: map[string]timeline{}, open: map[*nodeConn]struct{}{}}
	p.speakAgain()
	return p
}

// timeline is the number of a timeline; 0 if the node does not tell it, as some managed databases.
type timeline uint32

// nodeConn is a connection to a node, of which the Primary can close all.
type nodeConn struct {
	net.Conn

	primary *Primary
	// system and timeline describe the node. They are set when the node has described itself, under the Primary's
	// mutex.
	system   string
	timeline timeline
	closed   bool // under the Primary's mutex
}

// Read implements [net.Conn].
func (c *nodeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.primary.reads.Add(1)
	}
	return n, err
}

// Close implements [net.Conn].
func (c *nodeConn) Close() error {
	c.primary.mu.Lock()
	delete(c.primary.open, c)
	c.closed = true
	c.primary.mu.Unlock()
	return c.Conn.Close()
}

// Install makes all connections that are opened with the configuration follow the rules of the Primary. These are the
// pool's and those that others open with the pool's configuration.
func (p *Primary) Install(config *pgxpool.Config) {
	c := config.ConnConfig
	dial, onError := c.DialFunc, c.OnPgError
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.connect(ctx, func(ctx context.Context) (net.Conn, error) { return dial(ctx, network, address) })
	}
	c.ValidateConnect = p.validate
	c.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		const readOnly = "25006"
		if err.Code != readOnly {
			return onError == nil || onError(conn, err)
		}
		p.dropAll("a node became read-only: all connections are closed")
		return false // closes this one
	}
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) { return !p.isClosed(conn), nil }
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = hostTimeout
	}
}

// track adds a new connection to those that can be closed.
func (p *Primary) track(conn net.Conn) *nodeConn {
	detectDeadPeer(conn)
	tracked := &nodeConn{Conn: conn, primary: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[tracked] = struct{}{}
	return tracked
}

// trackedConn returns the tracked connection under a connection of the driver, perhaps below TLS.
func trackedConn(conn net.Conn) *nodeConn {
	for {
		switch c := conn.(type) {
		case *nodeConn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// isClosed reports whether the connection was closed by dropAll while it was idle in the pool.
func (p *Primary) isClosed(conn *pgx.Conn) bool {
	tracked := trackedConn(conn.PgConn().Conn())
	p.mu.Lock()
	defer p.mu.Unlock()
	return tracked != nil && tracked.closed
}

// validate implements [pgconn.ValidateConnectFunc].
func (p *Primary) validate(ctx context.Context, conn *pgconn.PgConn) error {
	n, err := describe(ctx, conn)
	if err != nil {
		return err
	}
	if n.readOnly {
		return p.refuse(ctx, conn, "read-only")
	}
	if tracked := trackedConn(conn.Conn()); tracked != nil { // before the comparison, so that a newer primary closes it
		p.mu.Lock()
		tracked.system, tracked.timeline = n.system, n.timeline
		p.mu.Unlock()
	}
	if newest := p.learn(n); n.timeline < newest {
		return p.refuse(ctx, conn, fmt.Sprintf("a former primary: its timeline is %d, that of the newest primary %d",
			n.timeline, newest))
	}
	return nil
}

// refuse logs that a node is not used, and returns the error.
func (p *Primary) refuse(ctx context.Context, conn *pgconn.PgConn, reason string) error {
	address := conn.Conn().RemoteAddr().String()
	if p.isDue(&p.refused, refusalPause) {
		p.logger.WarnContext(ctx, "refused a database node", "address", address, "reason", reason)
	}
	return fmt.Errorf("%w: %s is %s", errNotPrimary, address, reason)
}

// learn records a writable node and returns the newest timeline of its cluster. Connections to nodes that are now known
// to be former primaries are closed.
func (p *Primary) learn(n nodeState) timeline {
	p.mu.Lock()
	newest, known := p.newest[n.system]
	isNewer := known && n.timeline > newest && newest > 0
	if n.timeline > newest {
		p.newest[n.system] = n.timeline
		newest = n.timeline
	}
	p.mu.Unlock()
	if isNewer {
		p.drop("a newer primary was found: connections to older ones are closed", func(c *nodeConn) bool {
			return c.system == n.system && c.timeline > 0 && c.timeline < n.timeline
		})
	}
	if n.timeline == 0 {
		return 0 // unknown, so not comparable
	}
	return newest
}

// dropAll closes all connections, unless it has just done so: the first error of many is enough.
func (p *Primary) dropAll(reason string) {
	if p.isDue(&p.dropped, dropPause) {
		p.drop(reason, func(*nodeConn) bool { return true })
	}
}

// isDue reports whether the pause since the last time is over, and sets that time to now if it is.
func (p *Primary) isDue(last *time.Time, pause time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Sub(*last) < pause {
		return false
	}
	*last = p.now()
	return true
}

// drop closes the selected connections, even those in use. Select is called with the mutex held.
func (p *Primary) drop(reason string, selected func(*nodeConn) bool) {
	var old []*nodeConn
	p.mu.Lock()
	for c := range p.open {
		if selected(c) {
			old = append(old, c)
		}
	}
	p.mu.Unlock()
	if len(old) == 0 {
		return
	}
	p.logger.Warn("database: "+reason, "connections", len(old))
	for _, c := range old {
		_ = c.Close() // it is of no use any more
	}
}

// nodeState is what a node says about itself.
type nodeState struct {
	readOnly bool
	system   string // the cluster's identifier; empty if unknown
	timeline timeline
}

// describe asks a node about itself, in one round trip. Not all databases that speak Postgres's protocol have
// timelines, and a role may lack the right to ask: only the first statement must succeed.
func describe(ctx context.Context, conn *pgconn.PgConn) (nodeState, error) {
	results, err := conn.Exec(ctx, `
		SHOW transaction_read_only;
		SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END;
		SELECT system_identifier FROM pg_control_system()`).ReadAll()
	values := make([]string, 3)
	for i, r := range results {
		if i < len(values) && r.Err == nil && len(r.Rows) == 1 {
			values[i] = string(r.Rows[0][0])
		}
	}
	if values[0] == "" {
		if err == nil {
			err = errors.New("the node does not tell whether it is read-only")
		}
		return nodeState{}, err
	}
	if err != nil && !isStatementError(err) {
		return nodeState{}, err
	}
	number, err := strconv.ParseUint(values[1], 16, 32)
	if err != nil {
		number = 0 // unknown
	}
	return nodeState{readOnly: values[0] == "on", system: values[2], timeline: timeline(number)}, nil
}

// isStatementError reports whether Postgres refused a statement. Its transaction is rolled back, and the connection is
// still good.
func isStatementError(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.SeverityUnlocalized == "ERROR"
}
