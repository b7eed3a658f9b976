package migrations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Defaults of a [Migrator].
const (
	defaultLockTimeout = 2 * time.Second
	defaultPause       = 3 * time.Second
	defaultMaxWait     = 5 * time.Minute
)

const (
	// lockPoll is the pause between two attempts to get the lock.
	lockPoll = 100 * time.Millisecond
	// lockLog is how many attempts there are for one log line about who has it: every 30 s.
	lockLog = 300
)

// lockID is the advisory lock of the process that migrates a database.
const lockID = 0x5354_4550_5745_4c4c // "STEPWELL"

// migrating is the application_name of the sessions that migrate.
const migrating = "stepwell migrate"

// Migrator migrates databases beside live traffic. All other statements on a table queue behind a migration that waits
// for its lock. So a migration waits only briefly, is rolled back and, after a pause for the others, tried again.
type Migrator struct {
	// Logger logs what a migration waits for. Nil for none.
	Logger *slog.Logger
	// LockTimeout bounds the wait for one lock, and thus how long others are held up; 2 s if zero.
	LockTimeout time.Duration
	// Pause is the time between two attempts; 3 s if zero.
	Pause time.Duration
	// MaxWait is how long after the first attempt without a lock others follow; 5 min if zero.
	MaxWait time.Duration

	files fs.FS // nil for those of the program
}

// Up migrates with the defaults of [Migrator.Up] and logs nothing.
func Up(ctx context.Context, dsn, schema string) error { return Migrator{}.Up(ctx, dsn, schema) }

// Up migrates the schema in the database of dsn, and creates it if needed. Several processes may call it at once: one
// migrates, and the others wait for it and find nothing to do. It fails with a [*LockedError] if others hold a lock
// for too long, and with a [*SchemaError] if the schema is that of a release too far away. The options are those of
// [Pool].
func (m Migrator) Up(ctx context.Context, dsn, schema string, options ...func(*pgxpool.Config)) error {
	if !schemaName.MatchString(schema) {
		return fmt.Errorf("schema name %q: want lower-case letters, digits and underscores, at most 48", schema)
	}
	pool, err := Pool(ctx, dsn, schema, append(slices.Clip(options), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = migrating
		c.ConnConfig.RuntimeParams["lock_timeout"] = milliseconds(cmp.Or(m.LockTimeout, defaultLockTimeout))
	})...)
	if err != nil {
		return err
	}
	defer pool.Close()

	// The lock belongs to a connection of its own: each migration runs in its own transaction on a connection of the
	// pool, which may have only one. Disconnecting releases the lock.
	config := pool.Config().ConnConfig
	config.RuntimeParams["application_name"] = migrating + " (lock)"
	if err := checkSessions(ctx, config); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return refusedSettings(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := m.lock(ctx, conn); err != nil {
		return fmt.Errorf("lock migrations: %w", err)
	}
	if err := createSchema(ctx, pool, schema); err != nil {
		return fmt.Errorf("create schema: %w", err)
	}
	return m.persist(ctx, conn.Config(), func() error {
		if err := m.upStepwell(ctx, pool, schema); err != nil {
			return err
		}
		return upRiver(ctx, pool, schema)
	})
}

// lock waits until no other process migrates. It asks again and again, each time in a transaction of its own, instead
// of waiting in the database: CREATE INDEX CONCURRENTLY in the other process waits for the end of each transaction in
// which a statement had a snapshot when it looked.
func (m Migrator) lock(ctx context.Context, conn *pgx.Conn) error {
	for tries := 0; ; tries++ {
		if free, err := tryLock(ctx, conn); err != nil || free {
			return err
		}
		if tries%lockLog == 0 {
			var holder string // it may have just ended
			_ = conn.QueryRow(ctx, lockHolderSQL, lockID).Scan(&holder)
			m.logger().InfoContext(ctx, "waiting for another process that migrates the database", "holder", holder)
		}
		if err := sleep(ctx, lockPoll); err != nil {
			return err
		}
	}
}

// tryLock takes the lock if it is free. The lock is that of a transaction, which then stays open and idle: whatever is
// between this process and Postgres, it ends with it. The protocol is the simple one, because the extended one keeps
// the snapshot of a transaction's last statement.
func tryLock(ctx context.Context, conn *pgx.Conn) (free bool, err error) {
	if _, err := conn.Exec(ctx, `BEGIN`); err != nil {
		return false, err
	}
	_, err = conn.Exec(ctx, `SELECT set_config(name, '0', true) FROM pg_settings
		WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')`)
	if err != nil {
		return false, err
	}
	err = conn.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, pgx.QueryExecModeSimpleProtocol, lockID).Scan(&free)
	if err == nil && !free {
		_, err = conn.Exec(ctx, `ROLLBACK`)
	}
	return free, err
}

// lockHolderSQL describes who holds the lock. What the role may not see of others is unknown.
const lockHolderSQL = `
	SELECT format('process %s of %s at %s, since %s', holder.pid,
		coalesce(nullif(holder.application_name, ''), 'an unnamed application'),
		coalesce(host(holder.client_addr), 'an unknown address'),
		coalesce(to_char(coalesce(holder.xact_start, holder.backend_start) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
			'an unknown time'))
	FROM pg_locks lock JOIN pg_stat_activity holder USING (pid)
	WHERE lock.locktype = 'advisory' AND lock.granted AND lock.objsubid = 1 AND holder.datname = current_database()
		AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND lock.classid::bigint = $1::bigint >> 32 AND lock.objid::bigint = $1::bigint & 4294967295`

func (m Migrator) logger() *slog.Logger { return cmp.Or(m.Logger, slog.New(slog.DiscardHandler)) }

// persist calls migrate until it no longer fails for lack of a lock, or for too long. Migrations that were committed
// stay so; the next attempt goes on with the one that failed. The configuration is that of the connections that find
// out who holds the lock.
func (m Migrator) persist(ctx context.Context, config *pgx.ConnConfig, migrate func() error) error {
	maxWait := cmp.Or(m.MaxWait, defaultMaxWait)
	var over <-chan time.Time
	var holder string
	for attempt := 1; ; attempt++ {
		blocked := watch(ctx, config, cmp.Or(m.LockTimeout, defaultLockTimeout)/4)
		err := migrate()
		holder = cmp.Or(blocked(), holder) // an attempt may be too short to find it
		if !isLocked(err) {
			return err
		}
		if over == nil {
			over = time.After(maxWait)
		}
		locked := &LockedError{Holder: holder, MaxWait: maxWait, Cause: err}
		m.logger().WarnContext(ctx, "a migration waits for a lock and will be tried again",
			"migration", locked.migration(), "holder", holder, "attempt", attempt)
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), locked)
		case <-over:
			return locked
		case <-time.After(cmp.Or(m.Pause, defaultPause)):
		}
	}
}

// LockedError reports that a migration could not lock what it changes.
type LockedError struct {
	// Holder says which object was locked at last, and by which processes; empty if that is not known.
	Holder string
	// MaxWait is how long it was tried.
	MaxWait time.Duration
	// Cause is the error of the last attempt.
	Cause error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s did not get its locks within %s; last, %s: end that transaction, then migrate again: %v",
		e.migration(), e.MaxWait, cmp.Or(e.Holder, "an unknown process held one"), e.Cause)
}

// Unwrap returns the error of the last attempt.
func (e *LockedError) Unwrap() error { return e.Cause }

// migration returns the file of the migration that failed.
func (e *LockedError) migration() string {
	if partial, ok := errors.AsType[*goose.PartialError](e.Cause); ok {
		return path.Base(partial.Failed.Source.Path)
	}
	return "a migration of River"
}

// isLocked reports whether a migration failed because it waited too long for a lock, or would have waited forever.
func isLocked(err error) bool {
	const lockNotAvailable, deadlock = "55P03", "40P01"
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == lockNotAvailable || pg.Code == deadlock)
}

// watch looks regularly for what a migration waits for. The function that it returns ends the search and returns what
// was found last. Without the privilege to see other processes, it finds nothing, which is no error; nor is it one if
// there is no connection for it. It does not use that of the lock, whose transaction stays open: CREATE INDEX
// CONCURRENTLY waits for the end of each transaction in which a statement has a snapshot when it begins to wait.
func watch(ctx context.Context, config *pgx.ConnConfig, every time.Duration) (end func() string) {
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan string)
	go func() {
		found <- lastHolder(ctx, config, every)
	}()
	return func() string {
		cancel()
		return <-found
	}
}

// lastHolder looks for what a migration waits for until the context ends, and returns what it found last.
func lastHolder(ctx context.Context, config *pgx.ConnConfig, every time.Duration) (last string) {
	if sleep(ctx, every) != nil {
		return ""
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for {
		var now *string
		if err := conn.QueryRow(context.WithoutCancel(ctx), holderSQL, migrating).Scan(&now); err == nil && now != nil {
			last = *now
		}
		if sleep(ctx, every) != nil {
			return last
		}
	}
}

// holderSQL describes what the sessions that migrate wait for, and who holds it.
const holderSQL = `
	SELECT string_agg(DISTINCT format('%s is locked by process %s of %s (%s, transaction open for %s s)',
		coalesce('table ' || lock.relation::regclass, 'a ' || lock.locktype), holder.pid,
		coalesce(nullif(holder.application_name, ''), 'an unnamed application'), holder.state,
		round(extract(epoch FROM clock_timestamp() - holder.xact_start))), '; ')
	FROM pg_stat_activity waiting
	JOIN pg_locks lock ON lock.pid = waiting.pid AND NOT lock.granted
	CROSS JOIN unnest(pg_blocking_pids(waiting.pid)) AS blocking (pid)
	JOIN pg_stat_activity holder ON holder.pid = blocking.pid
	WHERE waiting.application_name = $1 AND waiting.datname = current_database()`

// upStepwell runs the migrations of Stepwell's tables.
func (m Migrator) upStepwell(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	dir := m.files
	if dir == nil {
		var err error
		if dir, err = fs.Sub(files, "sql"); err != nil {
			return fmt.Errorf("open migrations: %w", err)
		}
	}
	known, err := newestKnown(dir, ".")
	if err != nil {
		return err
	}
	applied, err := newestApplied(ctx, pool, schema)
	if err != nil {
		return err
	}
	if err := compatible(schema, applied, known); err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, stdlib.OpenDBFromPool(pool), dir)
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	defer func() { _ = provider.Close() }()
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// upRiver runs the migrations of River's tables.
func upRiver(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: schema})
	if err != nil {
		return fmt.Errorf("read River migrations: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate River: %w", err)
	}
	return nil
}

// milliseconds returns the value of a Postgres setting.
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// sleep waits, or returns the context's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
