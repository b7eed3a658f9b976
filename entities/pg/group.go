package pg

import (
	"cmp"
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

// chained is a chain as a member of a group. It does not wait for the row of its run, nor fail because others do not
// write.
type conditionalStatement struct {
	*Conditional

	run     entities.RunID
	written bool
}

// execute is [entities.Chain.Execute], as a member of the group.
func (g *GroupCommit) ExecuteConditional(ctx context.Context, id entities.RunID, c *Conditional) (bool, error) {
	m := &conditionalStatement{Conditional: c, run: id}
	if err := g.Do(ctx, m); err != nil {
		return false, err
	}
	return m.written, nil
}

// Rank implements [Member].
func (m *conditionalStatement) Order() LockOrder { return LockOrder{LockRun, string(m.run)} }

// Execute implements [Member].
func (m *conditionalStatement) Execute(ctx context.Context, pool *pgxpool.Pool) (err error) {
	m.written, err = m.Conditional.Execute(ctx, pool)
	return err
}

// Queue implements [Member].
func (m *conditionalStatement) Queue(b *pgx.Batch) { m.Conditional.Queue(b, &m.written) }

const (
	// groupsAtOnce is how many transactions of members are under way at a time: enough to keep Postgres busy while others
	// wait for their commit to reach the disk.
	groupsAtOnce = 4
	// groupSize is how many members one transaction has at most.
	groupSize = 32
	// groupTimeout ends a transaction of which nothing is heard.
	groupTimeout = 30 * time.Second
)

// Group commits statements together: what comes while all transactions are under way shares the next one, with its
// round trip and its commit. Who comes alone is not kept waiting. What a process writes by such statements should go
// through one group, whatever it is, so that it meets.
//
// Who shares a transaction holds what it has locked until the others are done as well. So members wait for locks in one
// order, that of their ranks, which is the order of everybody who waits for such a lock while he holds another.
type GroupCommit struct {
	pool *pgxpool.Pool

	mu       sync.Mutex
	underWay int
	waiting  []*waiter
}

// NewGroup makes a group that commits to the database behind pool.
func NewGroupCommit(pool *pgxpool.Pool) *GroupCommit { return &GroupCommit{pool: pool} }

// Member is one statement that is a transaction by itself, or shares one. It keeps its result, which can be read when
// [Group.Do] has returned without an error. It may be executed once more after it was queued; then that counts.
type Statement interface {
	// Rank is what it may have to wait for.
	Order() LockOrder
	// Execute executes it as a transaction of its own.
	Execute(ctx context.Context, pool *pgxpool.Pool) error
	// Queue queues it. Reading the result must fail with the database's errors alone, as those are told to all who share
	// the transaction: that a statement found nothing to do is a result.
	Queue(b *pgx.Batch)
}

// Rank is a member's place in the order of all that somebody may wait for while he holds what others wait for.
type LockOrder struct {
	Class LockClass
	Name  string
}

// RankOf is a kind of rows that are waited for.
type LockClass int

// The kinds of rows, in the order in which they are locked. The rows that a lease ends come first, as they do for who
// deletes a message with its key. Then come runs: those that are created wait for rivals of the same ID, and statements
// about a run may lock the messages of its work; the rows of runs that are there are never waited for by members, and
// by nobody else who holds what members want. Keys are last: who appends holds his run when he claims them. If two
// create one run in different ways, with a key that both claim, that is the other way round for one of them; Postgres
// then ends one wait, and what it refuses is tried again.
const (
	LockLease LockClass = iota
	LockRun
	LockKey
)

// compare is the order.
func (r LockOrder) compare(o LockOrder) int {
	return cmp.Or(cmp.Compare(r.Class, o.Class), strings.Compare(r.Name, o.Name))
}

// waiter is a member that waits for a transaction, and in the end what became of that.
type waiter struct {
	Statement

	done chan struct{}
	err  error
}

// Do executes a member, by itself or with others. The error is that of its own statement, or of the transaction, of
// which it is not certain then that it was not committed, as with any commit. If the context ends before the member's
// turn has come, nothing was written; afterwards it goes on to its end, whose outcome is returned.
func (g *GroupCommit) Do(ctx context.Context, m Statement) error {
	w := &waiter{Statement: m, done: make(chan struct{})}
	if g.enter(w) {
		defer g.next()
		return m.Execute(ctx, g.pool)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if g.leave(w) {
			return fmt.Errorf("write: %w", ctx.Err())
		}
		<-w.done
	}
	if isRefused(w.err) { // and it may be somebody else's fault
		return m.Execute(ctx, g.pool)
	}
	return w.err
}

// enter reports whether the member may be executed at once. Else it waits for the next transaction.
func (g *GroupCommit) enter(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay < groupsAtOnce {
		g.underWay++
		return true
	}
	g.waiting = append(g.waiting, w)
	return false
}

// leave gives up waiting, and reports whether that is not too late.
func (g *GroupCommit) leave(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, w)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// next ends a transaction, and begins another one with those who wait.
func (g *GroupCommit) next() {
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

// Pause makes statements wait, as if all transactions were under way, until resume is called. Tests make statements
// share a transaction with it.
func (g *GroupCommit) Pause() (resume func()) {
	g.mu.Lock()
	g.underWay += groupsAtOnce
	g.mu.Unlock()
	return func() {
		for range groupsAtOnce {
			g.next()
		}
	}
}

// Load returns how many transactions are under way, and how many statements wait for one.
func (g *GroupCommit) Load() (underWay, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.underWay, len(g.waiting)
}

// commit executes the members in one transaction, in the order of their ranks, and tells each what became of it.
func (g *GroupCommit) commit(members []*waiter) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	slices.SortStableFunc(members, func(a, b *waiter) int { return a.Order().compare(b.Order()) })
	var b pgx.Batch
	for _, w := range members {
		w.Queue(&b)
	}
	err := g.pool.SendBatch(ctx, &b).Close()
	for _, w := range members {
		if err != nil {
			w.err = fmt.Errorf("write: %w", err)
		}
		close(w.done)
	}
}

// isRefused reports whether a statement failed, and nothing else: the transaction was surely rolled back.
func isRefused(err error) bool {
	pg := (*pgconn.PgError)(nil)
	return errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}
