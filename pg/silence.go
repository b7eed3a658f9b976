package pg

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// watchInterval is how often [Primary.Watch] checks whether the database has said anything.
	watchInterval = 250 * time.Millisecond
	// maxSilent is how many intervals the database may say nothing, although it was asked. With the rest of an interval,
	// a request learns of it within 2 s.
	maxSilent = 6
	// pingTimeout is how long one ping may take before the next one tries another connection.
	pingTimeout = 4 * watchInterval
)

// errSilent is the error of connections that are not opened because the database does not answer.
var errSilent = errors.New("the database does not answer")

// silence decides whether the database is silent.
type silence struct {
	reads  uint64 // the number of reads at the last check
	missed int    // checks in a row at which there was nothing new
}

// check takes the number of reads so far, and reports whether the database should be asked for a sign, and whether it
// is silent. A check that comes late proves nothing: this process was frozen, or had no processor.
func (s *silence) check(reads uint64, late bool) (ask, silent bool) {
	switch {
	case reads != s.reads:
		s.reads, s.missed = reads, 0
	case !late:
		s.missed++
	}
	return s.missed > 0, s.missed >= maxSilent
}

// Watch notices when the database says nothing any more, on any connection: its processes or its host are stopped, or
// the network swallows everything. Statements would otherwise wait for an answer until the kernel gives the connection
// up, and requests with them. Watch closes all connections, and opens none before the database has answered it again.
// It asks only when nothing has been read for a while, on a connection of its own: a slow statement, a busy pool or a
// commit that waits for a standby are no silence. It returns when the context ends.
func (p *Primary) Watch(ctx context.Context, config *pgx.ConnConfig) {
	ask := make(chan struct{}, 1)
	pinging := make(chan struct{})
	go func() {
		defer close(pinging)
		p.ping(ctx, config, ask)
	}()
	defer func() { <-pinging }()
	ticks := time.NewTicker(watchInterval)
	defer ticks.Stop()
	var s silence
	var since time.Time // when the silence was noticed; zero if there is none
	for last := p.now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		now := p.now()
		asks, silent := s.check(p.reads.Load(), now.Sub(last) > 2*watchInterval)
		last = now
		if asks {
			poke(ask)
		}
		switch {
		case silent && since.IsZero():
			since = now
			p.fallSilent(ctx)
		case !silent && !since.IsZero():
			p.speakAgain()
			p.logger.WarnContext(ctx, "the database answers again", "after", now.Sub(since))
			since = time.Time{}
		}
	}
}

// ping asks the database for a sign of life whenever asked has an item, until the context ends. What it reads counts as
// one; errors do not matter.
func (p *Primary) ping(ctx context.Context, config *pgx.ConnConfig, asked <-chan struct{}) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
		}
		if conn == nil || conn.IsClosed() {
			conn, _ = pgx.ConnectConfig(context.WithValue(ctx, asking{}, true), config)
			continue
		}
		pinging, cancel := context.WithTimeout(ctx, pingTimeout)
		_ = conn.Ping(pinging)
		cancel()
	}
}

// asking marks the context of the connections that may be opened while the database is silent.
type asking struct{}

// fallSilent closes all connections, and has none opened.
func (p *Primary) fallSilent(ctx context.Context) {
	p.logger.ErrorContext(ctx, "the database does not answer: requests fail until it does")
	p.mu.Lock()
	p.silence()
	p.mu.Unlock()
	p.drop("it does not answer: all connections are closed", func(*nodeConn) bool { return true })
}

// speakAgain lets connections be opened.
func (p *Primary) speakAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.speaking, p.silence = context.WithCancel(context.Background())
}

// connect opens a connection with dial, unless the database is silent or becomes so meanwhile.
func (p *Primary) connect(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	p.mu.Lock()
	speaking := p.speaking
	p.mu.Unlock()
	if ctx.Value(asking{}) != nil {
		speaking = context.Background()
	}
	if speaking.Err() != nil {
		return nil, errSilent
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(speaking, cancel)()
	conn, err := dial(ctx)
	if err == nil {
		conn = p.track(conn)
	}
	if speaking.Err() == nil {
		return conn, err
	}
	if err == nil {
		_ = conn.Close() // tracked, perhaps after all others were closed
	}
	return nil, errSilent
}
