package pg

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// groupsAtOnce is how many transactions run at a time: enough to keep Postgres busy while others wait for their
	// commit to reach the disk.
	groupsAtOnce = 4
	// groupSize is the most statements in one transaction.
	groupSize = 32
	// groupTimeout bounds one transaction.
	groupTimeout = 30 * time.Second
)

// GroupCommit commits statements together. While fewer than four transactions are running, a statement is executed at
// once, as a transaction of its own. Statements that arrive while all four are running wait, and share the next one:
// they save round trips and writes of the WAL to disk. So load makes groups larger, and a statement on an idle server
// does not wait. A process should send all such statements through one GroupCommit, whatever their kind, so that
// they meet.
//
// The locks of a statement are kept until the whole transaction ends. To avoid deadlocks, the statements of a
// transaction are executed in their [LockOrder]. Every other transaction that waits for one of these locks while it
// holds another must follow the same order.
type GroupCommit struct {
	pool *pgxpool.Pool
	// atOnce is how many transactions run at a time.
	atOnce int
	// underWay counts the statements that are executed or wait.
	underWay atomic.Int64

	mu      sync.Mutex
	running int // transactions
	waiting []*waiter
}

// NewGroupCommit returns a GroupCommit for the database behind pool.
func NewGroupCommit(pool *pgxpool.Pool) *GroupCommit {
	return &GroupCommit{pool: pool, atOnce: groupsAtOnce}
}

// NewSerialCommit returns a GroupCommit that runs one transaction at a time. It is for statements that try the same
// locks, and so do not apply in two transactions at a time, but do in one.
func NewSerialCommit(pool *pgxpool.Pool) *GroupCommit { return &GroupCommit{pool: pool, atOnce: 1} }

// Statement can be executed as a transaction of its own or share one with others. It keeps its result, to be read
// after [GroupCommit.Do] returns nil. If a shared transaction fails, its statements are executed a second time, each
// alone; the last result replaces those before.
type Statement interface {
	// Order is the place of the statement among those of its transaction.
	Order() LockOrder
	// Execute executes the statement as a transaction of its own.
	Execute(ctx context.Context, pool *pgxpool.Pool) error
	// Queue queues the statement. Reading its result may fail only with an error of the database, because the error is
	// reported for all statements of the transaction. To change no row is a result, not an error.
	Queue(b *pgx.Batch)
}

// LockOrder is a statement's place in the global order of locks: by class, and by name within a class.
type LockOrder struct {
	Class LockClass
	Name  string
}

// LockClass is a kind of rows that transactions wait for.
type LockClass int

// The lock classes, in the order in which transactions lock them.
const (
	// LockLease is of statements that end a lease, whose message they lock. It comes first because a transaction that
	// deletes a message with its key locks the message before the key.
	LockLease LockClass = iota
	// LockRun is of statements about a run. The creation of a run waits for another creation of the same ID. Existing
	// runs are never waited for, neither here (see [Conditional]) nor by transactions that hold a lock which a
	// statement needs. A statement about a run may also lock the messages of the run's work, delete the message whose
	// delivery it ends, and claim the keys of messages about the run, which other statements about the run cannot do
	// meanwhile.
	LockRun
	// LockKey is of statements that claim the key of a message. It comes last because an append holds its run when it
	// claims keys. Keys that are claimed in different ways at the same time, by two creations of one run or by answers
	// and plain sends, can still deadlock; Postgres then ends one of the transactions, which is retried.
	LockKey
)

func (o LockOrder) compare(other LockOrder) int {
	return cmp.Or(cmp.Compare(o.Class, other.Class), strings.Compare(o.Name, other.Name))
}

// waiter is a statement that waits for a transaction, and the error of that transaction once done is closed.
type waiter struct {
	Statement

	done chan struct{}
	err  error
}

// Do executes a statement, alone or with others. It returns the error of the statement itself or of the shared
// transaction. As with any commit, an error of the connection does not tell whether the transaction was committed.
//
// If the context ends before the statement's transaction begins, nothing is written. Once the transaction has begun, Do
// waits for its outcome and returns it: the transaction also belongs to others.
func (g *GroupCommit) Do(ctx context.Context, s Statement) error {
	g.underWay.Add(1)
	defer g.underWay.Add(-1)
	w := &waiter{Statement: s, done: make(chan struct{})}
	if g.startOrWait(w) {
		defer g.next()
		return g.Alone(ctx, s)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if g.abandon(w) {
			return fmt.Errorf("write: %w", ctx.Err())
		}
		<-w.done
	}
	// The transaction was rolled back, perhaps because of another statement. After any other error it may have been
	// committed.
	if isStatementError(w.err) {
		return g.Alone(ctx, s)
	}
	return w.err
}

// Alone executes a statement as a transaction of its own, and again after an error that is [Retryable]: Postgres may
// choose it as the victim of a deadlock.
func (g *GroupCommit) Alone(ctx context.Context, s Statement) error {
	return retry(ctx, g.pool, func() error { return s.Execute(ctx, g.pool) })
}

// ExecuteConditional executes a [Conditional], alone or with other statements, and reports whether it applied; see
// [Conditional.Queue].
func (g *GroupCommit) ExecuteConditional(ctx context.Context, c *Conditional) (applied bool, err error) {
	err = g.Do(ctx, c)
	return err == nil && c.applied, err
}

// Pause makes new statements wait, as if all transactions were running, until resume is called. Tests use it to make
// statements share a transaction.
func (g *GroupCommit) Pause() (resume func()) {
	g.mu.Lock()
	g.running += g.atOnce
	g.mu.Unlock()
	return func() {
		for range g.atOnce {
			g.next()
		}
	}
}

// Load returns how many transactions are running, and how many statements wait for one.
func (g *GroupCommit) Load() (running, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, len(g.waiting)
}

// UnderWay returns how many statements are executed or wait.
func (g *GroupCommit) UnderWay() int { return int(g.underWay.Load()) }

// Busy reports whether enough statements are under way to fill a transaction. More of them get no cheaper.
func (g *GroupCommit) Busy() bool { return g.UnderWay() >= groupSize }

// startOrWait reports whether the statement may be executed at once. If not, the statement now waits for the next
// transaction.
func (g *GroupCommit) startOrWait(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running < g.atOnce {
		g.running++
		return true
	}
	g.waiting = append(g.waiting, w)
	return false
}

// abandon removes a statement that waits. It reports false if the statement's transaction has begun.
func (g *GroupCommit) abandon(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, w)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// next is called at the end of a transaction, and begins another one if statements wait.
func (g *GroupCommit) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), groupSize)
	if n == 0 {
		g.running--
		return
	}
	group := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	go func() {
		defer g.next()
		g.commit(group)
	}()
}

// commit executes the statements in one transaction, in lock order, and passes its outcome to each.
func (g *GroupCommit) commit(group []*waiter) {
	// The statements' own contexts do not count: one that ends must not fail the others.
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	slices.SortStableFunc(group, func(a, b *waiter) int { return a.Order().compare(b.Order()) })
	var b pgx.Batch
	for _, w := range group {
		w.Queue(&b)
	}
	err := NewPool(g.pool).Run(ctx, &b)
	for _, w := range group {
		w.err = Wrap(err, "write")
		close(w.done)
	}
}
