package pg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// dividedPool opens a pool of n connections that are divided.
func dividedPool(t *testing.T, n int32) (*pgxpool.Pool, *Connections) {
	t.Helper()
	d := NewConnections(time.Now)
	pool := testdb.Pool(t, func(c *pgxpool.Config) { c.MaxConns = n }, d.Install)
	return pool, d
}

// hold acquires connections for a project until it gets no more at once.
func hold(t *testing.T, pool *pgxpool.Pool, d *Connections, project string) (held []*pgxpool.Conn) {
	t.Helper()
	for d.pool.Room(project, connectionFactor) > 0 {
		conn := check.Value(pool.Acquire(share.For(t.Context(), project)))(t)
		held = append(held, conn)
	}
	return held
}

// TestProjectLeavesConnectionsToOthers: a project that holds every connection that it can get keeps neither another
// project nor the server itself from one. What it waits for is its own.
func TestProjectLeavesConnectionsToOthers(t *testing.T) {
	t.Parallel()
	pool, d := dividedPool(t, 20)
	held := hold(t, pool, d, "a")
	check.Equal(t, "connections of 20 that a project alone holds", len(held), 12)
	waiting := make(chan error, 1)
	go func() {
		_, err := pool.Exec(share.For(t.Context(), "a"), `SELECT 1`)
		waiting <- err
	}()
	eventually(t, "another one of the project waits", func() bool { return d.pool.Room("a", connectionFactor) == 0 })
	for _, project := range []string{"b", "c", ""} {
		if _, err := pool.Exec(share.For(t.Context(), project), `SELECT 1`); err != nil {
			t.Errorf("project %q: %v", project, err)
		}
	}
	if len(waiting) > 0 {
		t.Error("the project has got more than its share")
	}
	for _, conn := range held {
		conn.Release()
	}
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	if n, waited := d.Waits(); n != 1 || waited <= 0 {
		t.Errorf("%d acquisitions waited %s, want 1", n, waited)
	}
	check.Equal(t, "connections are still held", d.pool.Held(), 0)
}

// TestBusyProjectGivesWay: while another one is active, a project gets no more than a third of what projects may take.
func TestBusyProjectGivesWay(t *testing.T) {
	t.Parallel()
	_, d := dividedPool(t, 20)
	if !d.pool.Try("b", 1, connectionFactor) {
		t.Fatal("no connection is free")
	}
	check.Equal(t, "connections of 20 that a project may hold beside an active one", d.pool.Room("a", connectionFactor), 5)
}

// TestEveryPoolIsUsedWhole: a project alone uses all connections of a pool that is too small to be divided.
func TestEveryPoolIsUsedWhole(t *testing.T) {
	t.Parallel()
	for conns, want := range map[int32]int{1: 1, 2: 2, 3: 3, 4: 3, 8: 5} {
		pool, d := dividedPool(t, conns)
		held := hold(t, pool, d, "a")
		check.Equal(t, fmt.Sprintf("connections of %d that a project alone holds", conns), len(held), want)
		for _, conn := range held {
			conn.Release()
		}
	}
}

// TestNoConnectionOfAShareIsLost: acquisitions whose context ends while they wait, or that fail, give back what they
// took.
func TestNoConnectionOfAShareIsLost(t *testing.T) {
	t.Parallel()
	pool, d := dividedPool(t, 4)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(share.For(t.Context(), []string{"a", "b", ""}[i%3]),
					time.Duration(rand.IntN(5))*time.Millisecond)
				if _, err := pool.Exec(ctx, `SELECT pg_sleep(0.001)`); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	eventually(t, "all connections are back", func() bool { return d.pool.Held() == 0 })
	pool.Close()
	if _, err := pool.Acquire(share.For(t.Context(), "a")); err == nil || d.pool.Held() != 0 {
		t.Errorf("a closed pool: error %v, %d connections are held", err, d.pool.Held())
	}
}
