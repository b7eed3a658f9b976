package pg

import (
	"bytes"
	"context"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// InstallExecuted lets a [GroupCommit] know when the statements of a transaction are executed and only their commit is
// left. Without it, it learns of both together, and its transactions overlap less.
func InstallExecuted(config *pgxpool.Config) {
	config.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		return &flushingConn{Conn: conn}, nil
	}
}

// flushingConn is a connection that can ask Postgres for the results of a batch before its commit. Postgres would
// otherwise keep them until the commit is on disk.
type flushingConn struct {
	net.Conn

	flushes bool // a Flush is inserted before each Sync
	buffer  []byte
}

// The last message of a batch, which commits it, and that with a request for the results before it.
var (
	syncMessage      = []byte("S\x00\x00\x00\x04")
	flushSyncMessage = []byte("H\x00\x00\x00\x04S\x00\x00\x00\x04")
)

// Write implements [net.Conn]. The driver writes a batch as a whole.
func (c *flushingConn) Write(b []byte) (int, error) {
	if !c.flushes || !bytes.HasSuffix(b, syncMessage) {
		return c.Conn.Write(b)
	}
	c.buffer = append(append(c.buffer[:0], b[:len(b)-len(syncMessage)]...), flushSyncMessage...)
	n, err := c.Conn.Write(c.buffer)
	return min(n, len(b)), err
}

// NetConn returns the connection below.
func (c *flushingConn) NetConn() net.Conn { return c.Conn }

// flush has Postgres send the results of batches before their commits until end is called.
func flush(conn *pgx.Conn) (end func()) {
	c, ok := conn.PgConn().Conn().(*flushingConn)
	if !ok {
		return func() {}
	}
	c.flushes = true
	return func() { c.flushes = false }
}
