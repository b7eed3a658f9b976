package testdb

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// namePrefix starts the name of every test database. The number of its process's claim follows.
const namePrefix = "stepwell_test_"

// claimClass is the first key of our advisory locks, which keeps them apart from those of others. The second key is the
// claim's number.
const claimClass = 0x53574c54 // "SWLT"

// claim reserves a number for the names of this process's databases, for as long as its connection lives.
type claim struct {
	conn   *pgx.Conn
	number int32
}

// stakeClaim drops the databases of dead processes, then reserves a number.
func stakeClaim(ctx context.Context, dsn string) (*claim, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &claim{conn: conn}
	err = c.sweep(ctx)
	if err == nil {
		err = c.acquire(ctx)
	}
	if err != nil {
		c.release(ctx)
		return nil, err
	}
	return c, nil
}

// prefix starts the names of this process's databases.
func (c *claim) prefix() string {
	return namePrefix + strconv.Itoa(int(c.number)) + "_"
}

// acquire draws numbers until one is free.
func (c *claim) acquire(ctx context.Context) error {
	for {
		c.number = rand.Int32() //nolint:gosec // not a secret
		if free, err := c.lock(ctx, c.number); free || err != nil {
			return err
		}
	}
}

// sweep drops the databases of dead processes.
func (c *claim) sweep(ctx context.Context) error {
	names, err := c.databases(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		number, ok := numberIn(name)
		if !ok {
			continue
		}
		if err := c.sweepOne(ctx, name, number); err != nil {
			return err
		}
	}
	return nil
}

// sweepOne drops the database if its number is free, which means that its process is dead.
func (c *claim) sweepOne(ctx context.Context, name string, number int32) error {
	free, err := c.lock(ctx, number)
	if err != nil || !free {
		return err
	}
	if _, err := c.conn.Exec(ctx, dropDatabase(name)); err != nil {
		return fmt.Errorf("drop database of a dead process: %w", err)
	}
	if _, err := c.conn.Exec(ctx, `SELECT pg_advisory_unlock($1, $2)`, claimClass, number); err != nil {
		return fmt.Errorf("unlock number: %w", err)
	}
	return nil
}

// databases lists the test databases of all processes.
func (c *claim) databases(ctx context.Context) ([]string, error) {
	rows, err := c.conn.Query(ctx, `SELECT datname FROM pg_database WHERE starts_with(datname, $1)`, namePrefix)
	if err != nil {
		return nil, fmt.Errorf("list databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list databases: %w", err)
	}
	return names, nil
}

// numberIn returns the claim's number in the name of a test database. It reports false for other names.
func numberIn(name string) (int32, bool) {
	digits, _, ours := strings.Cut(strings.TrimPrefix(name, namePrefix), "_")
	number, err := strconv.ParseInt(digits, 10, 32)
	return int32(number), ours && err == nil
}

// lock tries to take the number's advisory lock.
func (c *claim) lock(ctx context.Context, number int32) (free bool, err error) {
	err = c.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, $2)`, claimClass, number).Scan(&free)
	if err != nil {
		return false, fmt.Errorf("lock number: %w", err)
	}
	return free, nil
}

// release frees the number by disconnecting.
func (c *claim) release(ctx context.Context) {
	_ = c.conn.Close(ctx) // Postgres releases the lock even if this fails
}
