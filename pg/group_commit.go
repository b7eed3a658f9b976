package pg

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities/rescue"
)

const (
	// groupsAtOnce is how many transactions run at a time, of which executedAtOnce may be before their commit.
	groupsAtOnce, executedAtOnce = 6, 4
	// leastBeside is the least number of statements for which a transaction begins while another one is being executed.
	leastBeside = 4
	// longestExecution is how long a transaction counts as being executed: one that waits for a lock must not hold up
	// others for long.
	longestExecution = 20 * time.Millisecond
	// groupSize is the most statements in one transaction, and groupBytes about the most that they write.
	groupSize  = 32
	groupBytes = 256 << 10
	// busyFor is how long a GroupCommit stays busy with at least leastBusy statements under way. Under load their number
	// varies by as many as fill a transaction.
	busyFor   = 500 * time.Millisecond
	leastBusy = groupSize / 4
	// GroupTimeout bounds one transaction.
	GroupTimeout = 30 * time.Second
	// largeStatement is from how many bytes a statement shares no transaction, and largeBytes how many bytes such
	// statements may write at once. With the factor largeFactor a project that is alone gets half of them.
	largeStatement = 64 << 10
	largeBytes     = 16 << 20
	largeFactor    = 1
)

// GroupCommit commits statements together. While no transaction is being executed, a statement is executed at once, as
// a transaction of its own. Statements that arrive meanwhile wait, and share the next one: they save round trips and
// writes of the WAL to disk. The next one begins as soon as the commit of the one before it does, and its statements
// are executed while that waits for the disk: a statement waits for the end of one such write, and for its own. So load
// makes groups larger, and a statement on an idle server does not wait. A process should send all such statements
// through one GroupCommit, whatever their kind, so that they meet.
//
// The transactions are divided between projects ([share.KeyOf]): those that wait get the places of the next one in
// turns, so that a statement never waits for more than one transaction because of another project. Large statements,
// which take long, are executed alone, beside the transactions, and share a number of bytes between projects.
//
// The locks of a statement are kept until the whole transaction ends. To avoid deadlocks, the statements of a
// transaction are executed in their [LockOrder]. Every other transaction that waits for one of these locks while it
// holds another must follow the same order.
type GroupCommit struct {
	pool *pgxpool.Pool
	// atOnce is how many transactions run at a time.
	atOnce int
	// beside is how many statements have to wait for a transaction to begin while another one is being executed: the fewer
	// processors, the more, since more and smaller transactions cost more.
	beside  int
	longest time.Duration // see longestExecution
	large   *share.Pool   // bytes

	mu        sync.Mutex
	running   int // transactions
	executing int // of these, groups whose commit has not begun
	underWay  int // statements that are executed or wait
	waiting   int // statements
	// filled is set if enough statements to fill a transaction have been under way lately; unfill, a timer, ends it.
	filled bool
	unfill *time.Timer
	lines  map[string]*line
	// order has the lines with statements that wait, the next one first.
	order []*line
}

// line is what a project has under way.
type line struct {
	underWay int
	waiting  []*waiter
}

// NewGroupCommit returns a GroupCommit for the database behind pool.
func NewGroupCommit(pool *pgxpool.Pool) *GroupCommit {
	return &GroupCommit{
		pool: pool, atOnce: groupsAtOnce, beside: max(groupSize/runtime.GOMAXPROCS(0), leastBeside),
		longest: longestExecution, large: share.NewPool(largeBytes), lines: map[string]*line{},
	}
}

// NewSerialCommit returns a GroupCommit that runs one transaction at a time. It is for statements that try the same
// locks, and so do not apply in two transactions at a time, but do in one.
func NewSerialCommit(pool *pgxpool.Pool) *GroupCommit {
	g := NewGroupCommit(pool)
	g.atOnce = 1
	return g
}

// Statement can be executed as a transaction of its own or share one with others. It keeps its result, to be read
// after [GroupCommit.Do] returns nil. If a shared transaction fails, its statements are executed a second time, each
// alone; the last result replaces those before.
type Statement interface {
	// Order is the place of the statement among those of its transaction.
	Order() LockOrder
	// Size is about how many bytes the statement writes.
	Size() int
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

	size int
	done chan struct{}
	err  error
	// unsent is set if the transaction was not begun: a statement of it panicked.
	unsent bool
}

// Do executes a statement, alone or with others. It returns the error of the statement itself or of the shared
// transaction. As with any commit, an error of the connection does not tell whether the transaction was committed.
//
// If the context ends before the statement's transaction begins, nothing is written. Once the transaction has begun, Do
// waits for its outcome and returns it: the transaction also belongs to others.
func (g *GroupCommit) Do(ctx context.Context, s Statement) error {
	key, size := share.KeyOf(ctx), s.Size()
	if size >= largeStatement {
		return g.doLarge(ctx, key, min(int64(size), g.large.Most(largeFactor)), s)
	}
	w := &waiter{Statement: s, size: size, done: make(chan struct{})}
	defer g.leave(key)
	if g.startOrWait(key, w) {
		defer g.end()
		// The transaction is one of few for all projects: it must not wait for a connection behind others of its project.
		return g.Alone(share.For(ctx, ""), s)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if g.abandon(key, w) {
			return fmt.Errorf("write: %w", ctx.Err())
		}
		<-w.done
	}
	// The transaction was rolled back, perhaps because of another statement. After any other error it may have been
	// committed.
	if w.unsent || isStatementError(w.err) {
		return g.Alone(ctx, s)
	}
	return w.err
}

// doLarge executes a large statement when its project may write so many bytes.
func (g *GroupCommit) doLarge(ctx context.Context, key string, size int64, s Statement) error {
	if err := g.large.Take(ctx, key, size, largeFactor); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	defer g.large.Release(key, size)
	return g.Alone(ctx, s)
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
			g.end()
		}
	}
}

// Load returns how many transactions are running, and how many statements wait for one.
func (g *GroupCommit) Load() (running, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, g.waiting
}

// UnderWay returns how many statements are executed or wait, without large ones.
func (g *GroupCommit) UnderWay() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.underWay
}

// UnderWayOf returns how many of them are the project's.
func (g *GroupCommit) UnderWayOf(project string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.lines[project]; l != nil {
		return l.underWay
	}
	return 0
}

// Busy reports whether enough statements are under way to fill a transaction, or some are and enough have been lately.
// More of them get no cheaper.
func (g *GroupCommit) Busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.underWay >= groupSize || g.underWay >= leastBusy && g.filled
}

// fill notes that enough statements are under way to fill a transaction. The mutex is held.
func (g *GroupCommit) fill() {
	g.filled = true
	if g.unfill != nil {
		g.unfill.Reset(busyFor)
		return
	}
	g.unfill = time.AfterFunc(busyFor, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.filled = false
	})
}

// startOrWait reports whether the statement may be executed at once, as nothing else is. If not, the statement now
// waits for the next transaction, which may begin at once.
func (g *GroupCommit) startOrWait(key string, w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lines[key]
	if l == nil {
		l = &line{}
		g.lines[key] = l
	}
	l.underWay++
	if g.underWay++; g.underWay >= groupSize {
		g.fill()
	}
	if g.running == 0 {
		g.running++
		return true
	}
	if l.waiting = append(l.waiting, w); len(l.waiting) == 1 {
		g.order = append(g.order, l)
	}
	g.waiting++
	g.begin()
	return false
}

// leave ends what startOrWait began.
func (g *GroupCommit) leave(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lines[key]
	g.underWay--
	if l.underWay--; l.underWay == 0 {
		delete(g.lines, key)
	}
}

// abandon removes a statement that waits. It reports false if the statement's transaction has begun.
func (g *GroupCommit) abandon(key string, w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lines[key]
	i := slices.Index(l.waiting, w)
	if i < 0 {
		return false
	}
	g.waiting--
	if l.waiting = slices.Delete(l.waiting, i, i+1); len(l.waiting) == 0 {
		g.order = slices.DeleteFunc(g.order, func(other *line) bool { return other == l })
	}
	return true
}

// begin begins transactions for what waits, as many as may run. The mutex is held.
func (g *GroupCommit) begin() {
	for g.waiting > 0 && g.running < g.atOnce &&
		(g.executing == 0 || g.executing < executedAtOnce && g.waiting >= g.beside) {
		g.running++
		g.executing++
		go g.commit(g.take())
	}
}

// executed is called when the statements of a group are executed, and only their commit is left.
func (g *GroupCommit) executed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.executing--
	g.begin()
}

// end is called at the end of a transaction.
func (g *GroupCommit) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.begin()
}

// take takes the statements of the next transaction: one of each project in turn, until it is full.
func (g *GroupCommit) take() (group []*waiter) {
	for size := 0; len(g.order) > 0 && len(group) < groupSize && size < groupBytes; {
		l := g.order[0]
		w := l.waiting[0]
		g.order = g.order[1:]
		if l.waiting = l.waiting[1:]; len(l.waiting) > 0 {
			g.order = append(g.order, l)
		}
		g.waiting--
		group = append(group, w)
		size += w.size
	}
	return group
}

// commit executes the statements in one transaction, in lock order, and passes its outcome to each.
func (g *GroupCommit) commit(group []*waiter) {
	executed := sync.OnceFunc(g.executed)
	defer g.end()
	defer executed()
	defer time.AfterFunc(g.longest, executed).Stop()
	// The statements' own contexts do not count: one that ends must not fail the others.
	ctx, cancel := context.WithTimeout(context.Background(), GroupTimeout)
	defer cancel()
	slices.SortStableFunc(group, func(a, b *waiter) int { return a.Order().compare(b.Order()) })
	var b pgx.Batch
	err := rescue.Do(ctx, "commit", func() error {
		for _, w := range group {
			w.Queue(&b)
		}
		return nil
	})
	unsent := err != nil
	if !unsent {
		err = rescue.Do(ctx, "commit", func() error {
			afterLast(&b, executed)
			return NewPool(g.pool).runExecuted(ctx, &b)
		})
	}
	for _, w := range group {
		w.err, w.unsent = Wrap(err, "write"), unsent
		close(w.done)
	}
}

// afterLast calls a function when the result of the batch's last statement has been read, which something must read.
func afterLast(b *pgx.Batch, call func()) {
	if b.Len() == 0 || b.QueuedQueries[b.Len()-1].Fn == nil {
		return
	}
	last := b.QueuedQueries[b.Len()-1]
	read := last.Fn
	last.Fn = func(results pgx.BatchResults) error {
		defer call()
		return read(results)
	}
}
