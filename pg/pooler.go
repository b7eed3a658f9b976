package pg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrPoolerSettings is the error of a pooler whose sessions do not have the settings that the server needs.
var ErrPoolerSettings = errors.New("DATABASE_URL leads to a connection pooler in transaction mode, whose sessions" +
	" lack settings that the server needs")

// applicationName is the one setting that poolers accept from their clients.
const applicationName = "application_name"

// Pooler adapts a pool to a connection pooler in transaction mode, where each transaction may have another session. So
// the settings of the sessions are not the client's: they must be those of the role. And no statement is prepared: a
// connection remembers only what Postgres has said of its parameters and results.
type Pooler struct {
	config   *pgx.ConnConfig
	settings map[string]string
}

// Install changes the configuration of a pool. It must come after all that add settings.
func (p *Pooler) Install(config *pgxpool.Config) {
	c := config.ConnConfig
	p.config = c
	p.settings = maps.Clone(c.RuntimeParams)
	delete(p.settings, applicationName)
	c.RuntimeParams = map[string]string{applicationName: c.RuntimeParams[applicationName]}
	c.DefaultQueryExecMode, c.StatementCacheCapacity = pgx.QueryExecModeCacheDescribe, 0
}

// Check fails with [ErrPoolerSettings] if the sessions of the pooler do not have the settings that Install has taken
// out. It connects by itself: the pool may expect to find its tables.
func (p *Pooler) Check(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	missing, err := p.missing(ctx, conn)
	if err != nil {
		return fmt.Errorf("check the settings of the pooler: %w", err)
	}
	if len(missing) == 0 {
		return nil
	}
	alter := fmt.Sprintf("ALTER ROLE %s IN DATABASE %s ", pgx.Identifier{p.config.User}.Sanitize(),
		pgx.Identifier{p.config.Database}.Sanitize())
	return fmt.Errorf("%w: execute %s%s, and make the pooler reconnect (RECONNECT)", ErrPoolerSettings, alter,
		strings.Join(missing, "; "+alter))
}

// missing returns the settings that differ, as SQL. Postgres has forms of its own for durations and sizes, so what it
// makes of the wanted values is compared.
func (p *Pooler) missing(ctx context.Context, conn *pgx.Conn) (missing []string, err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	names := slices.Sorted(maps.Keys(p.settings))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = p.settings[name]
	}
	got, err := readSettings(ctx, tx, names)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `SELECT set_config(name, value, true) FROM unnest($1::text[], $2::text[]) AS s (name, value)`,
		names, values)
	if err != nil {
		return nil, err
	}
	want, err := readSettings(ctx, tx, names)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if unquoted(got[i]) != unquoted(want[i]) {
			missing = append(missing, fmt.Sprintf("SET %s = %s", name, literal(values[i])))
		}
	}
	return missing, nil
}

// unquoted returns the value of a setting without the quotes around it, if it has any: a name needs none.
func unquoted(value string) string {
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		return value[1 : n-1]
	}
	return value
}

// literal returns the SQL for the value of a setting: a list of names, such as a search path, or a text.
func literal(value string) string {
	if strings.HasPrefix(value, `"`) {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", "''") + "'"
}

// readSettings returns the values of settings.
func readSettings(ctx context.Context, tx pgx.Tx, names []string) (values []string, err error) {
	err = tx.QueryRow(ctx, `
		SELECT array_agg(current_setting(name) ORDER BY place) FROM unnest($1::text[]) WITH ORDINALITY AS s (name, place)`,
		names).Scan(&values)
	return values, err
}

// ErrOtherDatabase is the error of two addresses that should be of one database.
var ErrOtherDatabase = errors.New("STEPWELL_DIRECT_DATABASE_URL leads to another database than DATABASE_URL")

// CheckSameDatabase fails with [ErrOtherDatabase] unless a lock of one pool's session is seen by those of the other.
func CheckSameDatabase(ctx context.Context, sessions, pool *pgxpool.Pool) error {
	return InTxOnce(ctx, sessions, pgx.TxOptions{}, func(tx pgx.Tx) error {
		var process int
		err := tx.QueryRow(ctx, `
			SELECT pg_backend_pid() FROM pg_advisory_xact_lock(hashtextextended(gen_random_uuid()::text, 0))`).Scan(&process)
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		var seen bool
		err = pool.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`, process).Scan(&seen)
		if err == nil && !seen {
			err = ErrOtherDatabase
		}
		return err
	})
}
