package pg

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// swallower stands between a pool and a database. While it is silent, nothing comes through, and no connection ends.
type swallower struct {
	mu     sync.Mutex
	speaks chan struct{} // closed while it lets answers through
}

// newSwallower returns a swallower in front of a new database, and the address of that.
func newSwallower(t *testing.T) (s *swallower, dsn string) {
	t.Helper()
	address := check.Value(url.Parse(testdb.New(t)))(t)
	l := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	s = &swallower{speaks: make(chan struct{})}
	t.Cleanup(s.speak)
	s.speak()
	target := address.Host
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			go s.copy(out, in)
			go s.copy(in, out)
		}
	}()
	address.Host = l.Addr().String()
	return s, address.String()
}

func (s *swallower) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		s.mu.Lock()
		speaks := s.speaks
		s.mu.Unlock()
		<-speaks
		if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}

func (s *swallower) fallSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.speaks = make(chan struct{})
}

func (s *swallower) speak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.speaks:
	default:
		close(s.speaks)
	}
}

// watchedPool returns a pool whose database is watched.
func watchedPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	p := NewPrimary(time.Now, slog.New(slog.DiscardHandler))
	pool := check.Value(migrations.Pool(t.Context(), dsn, migrations.DefaultSchema, p.Install))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { p.Watch(ctx, pool.Config().ConnConfig) })
	t.Cleanup(func() {
		cancel()
		watching.Wait()
		pool.Close()
	})
	return pool
}

// TestSilentDatabaseEndsStatements: what waits for an answer fails, what comes meanwhile fails at once, and all goes on
// when the database answers.
func TestSilentDatabaseEndsStatements(t *testing.T) {
	t.Parallel()
	s, dsn := newSwallower(t)
	pool := watchedPool(t, dsn)
	testdb.Exec(t, pool, `SELECT 1`)
	s.fallSilent()
	const clients = 30 // more than connections
	failed := make(chan error, clients)
	for range clients {
		go func() {
			_, err := pool.Exec(t.Context(), `SELECT 1`)
			failed <- err
		}()
	}
	for range clients {
		select {
		case err := <-failed:
			if !IsUnavailable(err) {
				t.Errorf("got error %v, want that the database is unavailable", err)
			}
		case <-time.After(deadline):
			t.Fatal("a statement waits for the silent database")
		}
	}
	if _, err := pool.Exec(t.Context(), `SELECT 1`); !IsUnavailable(err) {
		t.Errorf("got error %v, want that the database is unavailable", err)
	}
	s.speak()
	eventually(t, "the pool works again", func() bool {
		_, err := pool.Exec(t.Context(), `SELECT 1`)
		return err == nil
	})
}

// TestSlowStatementsAreNoSilence: nothing is read for long, but the database answers those who ask.
func TestSlowStatementsAreNoSilence(t *testing.T) {
	t.Parallel()
	pool := watchedPool(t, testdb.New(t))
	if _, err := pool.Exec(t.Context(), `SELECT pg_sleep(4)`); err != nil {
		t.Error(err)
	}
}

// TestSilenceIsNoticedWithinTwoSeconds is the arithmetic of [silence].
func TestSilenceIsNoticedWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	if longest := (maxSilent + 1) * watchInterval; longest > 2*time.Second {
		t.Errorf("silence is noticed after up to %s", longest)
	}
	type observation struct {
		reads       uint64
		late        bool
		ask, silent bool
	}
	quiet, asked := observation{reads: 1}, observation{reads: 1, ask: true}
	frozen, silent := observation{reads: 1, late: true}, observation{reads: 1, ask: true, silent: true}
	frozenLater := observation{reads: 1, late: true, ask: true}
	for name, looks := range map[string][]observation{
		"silent":            {quiet, asked, asked, asked, asked, asked, silent, silent, {reads: 2}},
		"frozen":            {quiet, frozen, frozen, frozen, frozen, frozen, frozen, frozen},
		"frozen meanwhile":  {quiet, asked, asked, asked, asked, asked, frozenLater, silent},
		"read in between":   {quiet, asked, asked, asked, asked, asked, {reads: 2}, {reads: 2, ask: true}},
		"read all the time": {quiet, {reads: 2}, {reads: 3}, {reads: 4}, {reads: 5}, {reads: 6}, {reads: 7}, {reads: 8}},
	} {
		var s silence
		for i, l := range looks {
			if ask, silent := s.check(l.reads, l.late); ask != l.ask || silent != l.silent {
				t.Errorf("%s, look %d: got ask %t, silent %t", name, i, ask, silent)
			}
		}
	}
}

// TestStatementsHaveADeadline: a single connection that has died is not noticed as silence.
func TestStatementsHaveADeadline(t *testing.T) {
	t.Parallel()
	s, dsn := newSwallower(t)
	defer s.speak() // before the pool closes its connections
	pool := testdb.Connect(t, dsn+"&statement_timeout=100ms", InstallDeadlines)
	for name, do := range map[string]func(*pgxpool.Conn) error{
		"statement": func(c *pgxpool.Conn) error {
			_, err := c.Exec(t.Context(), `SELECT 1`)
			return err
		},
		"batch": func(c *pgxpool.Conn) error {
			var b pgx.Batch
			b.Queue(`SELECT 1`)
			return c.SendBatch(t.Context(), &b).Close()
		},
	} {
		s.speak()
		conn := check.Value(pool.Acquire(t.Context()))(t)
		s.fallSilent()
		failed := make(chan error, 1)
		go func() { failed <- do(conn) }()
		select {
		case err := <-failed:
			if !IsUnavailable(err) {
				t.Errorf("%s: got error %v, want that the database is unavailable", name, err)
			}
		case <-time.After(deadline):
			t.Errorf("%s: waits without end", name)
		}
		conn.Release()
	}
}

// TestStatementsWithALimitOfTheirOwn: a transaction that may take longer ends neither in the database nor in the process.
func TestStatementsWithALimitOfTheirOwn(t *testing.T) {
	t.Parallel()
	pool := testdb.Connect(t, testdb.New(t)+"&statement_timeout=100ms", InstallDeadlines)
	for _, limit := range []time.Duration{0, time.Minute} {
		check.NoError(t, InTx(t.Context(), pool, func(tx pgx.Tx) error {
			ctx, err := WithStatementTimeout(t.Context(), tx, limit)
			if err == nil {
				_, err = tx.Exec(ctx, `SELECT pg_sleep(extract(epoch FROM $1::interval) + 0.5)`, answerMargin)
			}
			return err
		}))
	}
}

func TestSettingsOfPostgres(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "500": 500 * time.Millisecond, "30s": 30 * time.Second, "2min": 2 * time.Minute,
		"2 min": 2 * time.Minute, "250ms": 250 * time.Millisecond, "1h": time.Hour, "1d": 0, "none": 0,
	} {
		check.Equal(t, fmt.Sprint(value), settingOf(value), want)
	}
}
