package gate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
)

// conn is a client's connection to Postgres that stops before each statement. It knows the protocol's framing: every
// message has a type and a length, except the client's first, which has no type.
type conn struct {
	net.Conn

	session  *Session
	greeted  bool              // the client has sent its first message
	unsent   []byte            // the start of a message that is not complete yet
	prepared map[string]string // SQL of the prepared statements by name
	bound    string            // SQL of the statement that was bound last
	executed bool              // the client has sent an Execute since the last Sync

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond // signals changes to them
	reading bool       // a goroutine is in net.Conn.Read, for [conn.Read] or [conn.roundTrip]
	inbox   []byte     // complete messages that the client has not read yet
	partial []byte     // the start of the next message
	answers int        // completed statements since the last roundTrip began
	ready   int        // ReadyForQuery messages since then
	copying bool       // the server waits for COPY data
	failed  bool       // the server reported an error, and ignores messages until the next Sync
	status  byte       // transaction status of the last ReadyForQuery: 'I' outside a transaction
}

func newConn(nc net.Conn, s *Session) *conn {
	c := &conn{Conn: nc, session: s, prepared: map[string]string{}}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// errDisconnected is the error of a client whose connection the gate closed.
var errDisconnected = errors.New("gate: the connection was closed")

// Write sends the client's messages, and stops before each statement.
func (c *conn) Write(p []byte) (int, error) {
	c.unsent = append(c.unsent, p...)
	var out []byte
	for {
		m, ok := c.nextMessage()
		if !ok {
			break
		}
		var err error
		if out, err = c.forward(m, out); err != nil {
			return 0, err
		}
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// nextMessage takes a complete message of the client from unsent, if there is one.
func (c *conn) nextMessage() ([]byte, bool) {
	typeSize := 1
	if !c.greeted {
		typeSize = 0
	}
	m, rest, ok := cutMessage(c.unsent, typeSize)
	if ok {
		c.greeted, c.unsent = true, rest
	}
	return m, ok
}

// cutMessage cuts the first message off b.
func cutMessage(b []byte, typeSize int) (m, rest []byte, ok bool) {
	if len(b) < typeSize+4 {
		return nil, b, false
	}
	n := typeSize + int(binary.BigEndian.Uint32(b[typeSize:]))
	if len(b) < n {
		return nil, b, false
	}
	return b[:n:n], b[n:], true
}

// forward appends a message to out, the messages to send. Before a statement it sends out and stops; after a statement
// it waits for the answer.
func (c *conn) forward(m, out []byte) ([]byte, error) {
	if m[0] == 'P' { // Parse: name, text
		name := textAt(m, 5)
		c.prepared[name] = textAt(m, 6+len(name))
	}
	if !c.session.isControlled() {
		return append(out, m...), nil
	}
	switch m[0] {
	case 'B':
		return c.bind(m, out)
	case 'E':
		return c.execute(m, out)
	case 'S':
		return c.sync(m, out)
	case 'Q':
		return c.query(m, out)
	case 'c': // CopyDone ends a COPY, before which the connection has already stopped
		return nil, c.roundTrip(append(out, m...), c.isReady)
	default:
		return append(out, m...), nil
	}
}

// textAt returns the NUL-terminated string at byte i of a message.
func textAt(m []byte, i int) string {
	text, _, _ := bytes.Cut(m[i:], []byte{0})
	return string(text)
}

// begin is the statement that begins transactions.
const begin = "begin"

// bind stops before a statement: Postgres takes its snapshot at Bind.
func (c *conn) bind(m, out []byte) ([]byte, error) {
	if c.hasFailed() {
		return append(out, m...), nil
	}
	c.bound = c.prepared[textAt(m, 6+len(textAt(m, 5)))] // after the portal's name
	if c.bound == begin {
		return append(out, m...), nil // as in query
	}
	return slices.Clone(m), c.stopBefore(out, c.bound)
}

// execute waits for the statement's answer. A Flush makes the server answer now rather than at the next Sync.
func (c *conn) execute(m, out []byte) ([]byte, error) {
	if c.hasFailed() {
		return append(out, m...), nil
	}
	if c.bound == begin {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.status = 'T'
		return append(out, m...), nil
	}
	c.executed = true
	const flush = "H\x00\x00\x00\x04"
	return nil, c.roundTrip(append(append(out, m...), flush...), func() bool { return c.answers > 0 || c.failed })
}

// sync stops before a Sync that commits: one outside an explicit transaction.
func (c *conn) sync(m, out []byte) ([]byte, error) {
	commits := c.executed && c.locked(func() bool { return c.status == 'I' && !c.failed })
	c.executed = false
	if !commits {
		return append(out, m...), nil
	}
	if err := c.stopBefore(out, "COMMIT"); err != nil {
		return nil, err
	}
	return nil, c.roundTrip(m, c.isReady)
}

// query stops before a statement of the simple protocol, and waits for its answer.
func (c *conn) query(m, out []byte) ([]byte, error) {
	sql := textAt(m, 5)
	if sql == begin || strings.HasPrefix(sql, "--") {
		return append(out, m...), nil // takes no lock and no snapshot; only sets now()
	}
	if !strings.Contains(sql, " ") {
		sql = strings.ToUpper(sql) // COMMIT and ROLLBACK
	} else if c.locked(func() bool { return c.status == 'I' }) {
		sql += "; COMMIT" // which comes with the statement
	}
	if err := c.stopBefore(out, sql); err != nil {
		return nil, err
	}
	return nil, c.roundTrip(m, func() bool { return c.isReady() || c.copying })
}

func (c *conn) isReady() bool { return c.ready > 0 }

// stopBefore sends the messages before a statement, and returns when the statement may be sent.
func (c *conn) stopBefore(out []byte, sql string) error {
	if _, err := c.Conn.Write(out); err != nil {
		return err
	}
	if c.session.stopBefore(sql) == disconnect {
		_ = c.Close()
		return errDisconnected
	}
	return nil
}

// roundTrip sends a statement and waits for its answer, which it leaves in inbox for the client.
func (c *conn) roundTrip(out []byte, answered func() bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers, c.ready = 0, 0
	if _, err := c.Conn.Write(out); err != nil {
		return err
	}
	if err := c.fillUntil(answered); err != nil {
		return err
	}
	if !c.copying && c.session.takeLoss() {
		c.inbox = nil
		_ = c.Close()
		return errDisconnected
	}
	return nil
}

// Read returns messages of the server.
func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fillUntil(func() bool { return len(c.inbox) > 0 }); err != nil {
		return 0, err
	}
	n := copy(p, c.inbox)
	c.inbox = c.inbox[n:]
	return n, nil
}

// fillUntil reads messages of the server until ok.
func (c *conn) fillUntil(ok func() bool) error {
	for !ok() {
		if c.reading {
			c.changed.Wait()
			continue
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
	return nil
}

// fill reads at least one byte from the server and records the complete messages.
func (c *conn) fill() error {
	chunk := make([]byte, 8<<10)
	c.reading = true
	c.mu.Unlock()
	n, err := c.Conn.Read(chunk)
	c.mu.Lock()
	c.reading = false
	c.changed.Broadcast()
	if n == 0 && err != nil {
		return err
	}
	c.partial = append(c.partial, chunk[:n]...)
	for {
		m, rest, ok := cutMessage(c.partial, 1)
		if !ok {
			return nil
		}
		c.partial = rest
		c.record(m)
	}
}

// record puts a message of the server into inbox and updates the connection's state.
func (c *conn) record(m []byte) {
	c.inbox = append(c.inbox, m...)
	switch m[0] {
	case 'C', 'I', 's': // CommandComplete, EmptyQueryResponse, PortalSuspended
		c.answers++
	case 'G': // CopyInResponse
		c.copying = true
	case 'E': // ErrorResponse
		c.failed = true
	case 'Z': // ReadyForQuery
		c.ready, c.status, c.copying, c.failed = c.ready+1, m[5], false, false
	}
}

// locked evaluates a condition on guarded fields.
func (c *conn) locked(condition func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return condition()
}

func (c *conn) hasFailed() bool { return c.locked(func() bool { return c.failed }) }
