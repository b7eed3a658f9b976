package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// groupsAtOnce is how many transactions of chains are under way at a time: enough to keep Postgres busy while others
	// wait for their commit to reach the disk.
	groupsAtOnce = 4
	// groupSize is how many chains one transaction has at most.
	groupSize = 32
	// groupTimeout ends a transaction of which nothing is heard.
	groupTimeout = 30 * time.Second
)

// group commits chains together: what comes while all transactions are under way shares the next one, with its round
// trip and its commit. Who comes alone is not kept waiting.
//
// A chain neither waits for the row of its run nor fails because others do not write, so the members of a transaction
// do not get into each other's way.
type group struct {
	pool *pgxpool.Pool

	mu       sync.Mutex
	underWay int
	waiting  []*member
}

// member is a chain that is to be executed, and in the end what became of it.
type member struct {
	run     entities.RunID
	chain   *entities.Chain
	done    chan struct{}
	written bool
	err     error
}

// execute is [entities.Chain.Execute].
func (g *group) execute(ctx context.Context, id entities.RunID, c *entities.Chain) (bool, error) {
	m := &member{run: id, chain: c, done: make(chan struct{})}
	if g.enter(m) {
		defer g.next()
		return c.Execute(ctx, g.pool)
	}
	select {
	case <-m.done:
		return m.written, m.err
	case <-ctx.Done():
		g.leave(m)
		return false, fmt.Errorf("write: %w", ctx.Err())
	}
}

// enter reports whether the chain may be executed at once. Else it waits for the next transaction.
func (g *group) enter(m *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay < groupsAtOnce {
		g.underWay++
		return true
	}
	g.waiting = append(g.waiting, m)
	return false
}

// leave gives up waiting. What is under way by then goes on.
func (g *group) leave(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, m); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
}

// next ends a transaction, and begins another one with those who wait.
func (g *group) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), groupSize)
	if n == 0 {
		g.underWay--
		return
	}
	members := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	go func() {
		defer g.next()
		g.commit(members)
	}()
}

// commit executes the members' chains in one transaction. If Postgres refuses it, each is executed by itself, to see
// whose fault it is.
func (g *group) commit(members []*member) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	err := g.together(ctx, members)
	for _, m := range members {
		switch {
		case isRefused(err):
			m.written, m.err = m.chain.Execute(ctx, g.pool)
		case err != nil:
			m.written, m.err = false, fmt.Errorf("write: %w", err)
		}
		close(m.done)
	}
}

// isRefused reports whether a statement failed, and nothing else: the transaction was surely rolled back.
func isRefused(err error) bool {
	pg := (*pgconn.PgError)(nil)
	return errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}

// together executes chains in one transaction, in the order of their runs: so two transactions that create the same
// runs wait for each other in one order.
func (g *group) together(ctx context.Context, members []*member) error {
	slices.SortFunc(members, func(a, b *member) int { return strings.Compare(string(a.run), string(b.run)) })
	var b pgx.Batch
	for _, m := range members {
		m.chain.Queue(&b, &m.written)
	}
	return g.pool.SendBatch(ctx, &b).Close()
}
