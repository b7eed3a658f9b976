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

// conn is a client's connection to Postgres that holds each statement back. It knows just enough of the
// protocol: every message is a type and a length, but for the first of the client, which has no type.
type conn struct {
	net.Conn

	session *Session
	greeted bool
	// unsent is the beginning of a message whose end has not been written yet.
	unsent []byte
	// prepared are the texts of the prepared statements by their names.
	prepared map[string]string
	// bound is the text of the statement that was bound last.
	bound string
	// executed says that the server was asked to execute something since the last Sync.
	executed bool

	mu sync.Mutex // guards what follows
	// news tells of changes to it.
	news *sync.Cond
	// reading says that somebody waits for the server, [conn.Read] or [conn.ask]: not both at once.
	reading bool
	// inbox is what was read and not yet taken by the client, and partial the rest: less than a message.
	inbox, partial []byte
	// answers and ready count the server's messages since the last statement was sent.
	answers, ready int
	// copying says that the server waits for data.
	copying bool
	// failed says that the server refused something and ignores all until it is ready again.
	failed bool
	// status is that of the transaction when the server was last ready: 'I' when there is none.
	status byte
}

func newConn(nc net.Conn, s *Session) *conn {
	c := &conn{Conn: nc, session: s, prepared: map[string]string{}}
	c.news = sync.NewCond(&c.mu)
	return c
}

// errCut is what a client gets that was cut off.
var errCut = errors.New("gate: the connection was cut")

// Write sends what the client has to say, and stops before every statement.
func (c *conn) Write(p []byte) (int, error) {
	c.unsent = append(c.unsent, p...)
	var out []byte
	for {
		m, ok := c.next()
		if !ok {
			break
		}
		var err error
		if out, err = c.pass(m, out); err != nil {
			return 0, err
		}
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// next takes a whole message of the client, if there is one.
func (c *conn) next() ([]byte, bool) {
	kind := 1
	if !c.greeted {
		kind = 0
	}
	m, rest, ok := cut(c.unsent, kind)
	if ok {
		c.greeted, c.unsent = true, rest
	}
	return m, ok
}

// cut cuts the first message off what is in b; kind is the size of its type.
func cut(b []byte, kind int) (m, rest []byte, ok bool) {
	if len(b) < kind+4 {
		return nil, b, false
	}
	n := kind + int(binary.BigEndian.Uint32(b[kind:]))
	if len(b) < n {
		return nil, b, false
	}
	return b[:n:n], b[n:], true
}

// pass adds a message to out, what is to be sent. Before a statement it sends all before it and waits at the
// gate; after one it waits for the server to be done with it.
func (c *conn) pass(m, out []byte) ([]byte, error) {
	if m[0] == 'P' { // Parse: name, text
		name := textAt(m, 5)
		c.prepared[name] = textAt(m, 6+len(name))
	}
	if !c.session.holds() {
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
	case 'c': // CopyDone: the end of a statement that was halted before
		return nil, c.ask(append(out, m...), c.isReady)
	default:
		return append(out, m...), nil
	}
}

// textAt is the text that begins at byte i of a message.
func textAt(m []byte, i int) string {
	text, _, _ := bytes.Cut(m[i:], []byte{0})
	return string(text)
}

// begin is how transactions begin.
const begin = "begin"

// bind is the beginning of a statement: Postgres takes its snapshot here.
func (c *conn) bind(m, out []byte) ([]byte, error) {
	if c.hasFailed() {
		return append(out, m...), nil
	}
	c.bound = c.prepared[textAt(m, 6+len(textAt(m, 5)))] // after the portal's name
	if c.bound == begin {
		return append(out, m...), nil // as in query
	}
	return slices.Clone(m), c.halt(out, c.bound)
}

// execute is the end of a statement. The server is told to answer at once, not just at the next Sync.
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
	return nil, c.ask(append(append(out, m...), flush...), func() bool { return c.answers > 0 || c.failed })
}

// sync is the commit, when there is no transaction.
func (c *conn) sync(m, out []byte) ([]byte, error) {
	commits := c.executed && c.asks(func() bool { return c.status == 'I' && !c.failed })
	c.executed = false
	if !commits {
		return append(out, m...), nil
	}
	if err := c.halt(out, "COMMIT"); err != nil {
		return nil, err
	}
	return nil, c.ask(m, c.isReady)
}

// query is a statement without parameters.
func (c *conn) query(m, out []byte) ([]byte, error) {
	sql := textAt(m, 5)
	if sql == begin || strings.HasPrefix(sql, "--") {
		return append(out, m...), nil // it takes no lock and no snapshot, but it does stop the clock of now()
	}
	if !strings.Contains(sql, " ") {
		sql = strings.ToUpper(sql) // COMMIT and ROLLBACK
	}
	if err := c.halt(out, sql); err != nil {
		return nil, err
	}
	return nil, c.ask(m, func() bool { return c.isReady() || c.copying })
}

func (c *conn) isReady() bool { return c.ready > 0 }

// halt sends what comes before a statement and waits until the statement may go on.
func (c *conn) halt(out []byte, sql string) error {
	if _, err := c.Conn.Write(out); err != nil {
		return err
	}
	if c.session.pass(sql) == cutBefore {
		_ = c.Close()
		return errCut
	}
	return nil
}

// ask sends a statement and waits for its answer, which is then there for the client to read.
func (c *conn) ask(out []byte, answered func() bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers, c.ready = 0, 0
	if _, err := c.Conn.Write(out); err != nil {
		return err
	}
	if err := c.fillUntil(answered); err != nil {
		return err
	}
	if c.session.loses() && !c.copying {
		c.inbox = nil
		_ = c.Close()
		return errCut
	}
	return nil
}

// Read hands out what the server said.
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

// fillUntil reads what the server says until ok.
func (c *conn) fillUntil(ok func() bool) error {
	for !ok() {
		if c.reading {
			c.news.Wait()
			continue
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
	return nil
}

// fill reads what the server has sent, at least a byte of it, and notes what that means.
func (c *conn) fill() error {
	chunk := make([]byte, 8<<10)
	c.reading = true
	c.mu.Unlock()
	n, err := c.Conn.Read(chunk)
	c.mu.Lock()
	c.reading = false
	c.news.Broadcast()
	if n == 0 && err != nil {
		return err
	}
	c.partial = append(c.partial, chunk[:n]...)
	for {
		m, rest, ok := cut(c.partial, 1)
		if !ok {
			return nil
		}
		c.partial = rest
		c.note(m)
	}
}

// note keeps a message of the server for the client.
func (c *conn) note(m []byte) {
	c.inbox = append(c.inbox, m...)
	switch m[0] {
	case 'C', 'I', 's': // the statement is done
		c.answers++
	case 'G': // it wants data to copy
		c.copying = true
	case 'E':
		c.failed = true
	case 'Z':
		c.ready, c.status, c.copying, c.failed = c.ready+1, m[5], false, false
	}
}

// asks reads what is guarded.
func (c *conn) asks(question func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return question()
}

func (c *conn) hasFailed() bool { return c.asks(func() bool { return c.failed }) }
