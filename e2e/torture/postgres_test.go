package torture

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

// postgres is a private Postgres that restarts with the same port and data.
type postgres struct {
	options localpg.Options
	address string // of the database, for servers

	mu     sync.Mutex
	server *localpg.Server
}

func newPostgres(t *testing.T) *postgres {
	t.Helper()
	p := &postgres{options: localpg.Options{
		Dir: filepath.Join(harness.OpenDir(t), "db"), Port: harness.FreePort(t), Relaxed: true,
	}}
	var err error
	if p.server, err = localpg.Start(t.Context(), p.options); err != nil {
		t.Fatal(err)
	}
	p.address = p.server.DSN()
	t.Cleanup(func() { _ = p.server.Stop(context.Background()) })
	return p
}

// immediate restarts Postgres as after a crash (pg_ctl restart -m immediate), after the given downtime.
func (p *postgres) immediate(_ context.Context, down time.Duration) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return p.restart(ended, down)
}

// fast restarts Postgres cleanly (pg_ctl restart -m fast), after the given downtime.
func (p *postgres) fast(_ context.Context, down time.Duration) error {
	return p.restart(context.Background(), down)
}

func (p *postgres) restart(how context.Context, down time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.server.Stop(how)
	pause(context.Background(), down)
	for deadline := time.Now().Add(harness.Timeout); ; pause(context.Background(), retryPause) {
		server, failure := localpg.Start(context.Background(), p.options)
		if failure == nil {
			p.server = server
			return err
		}
		if time.Now().After(deadline) {
			return errors.Join(err, failure)
		}
	}
}

// cut terminates all sessions of the servers.
func (p *postgres) cut(ctx context.Context, _ time.Duration) error {
	return p.exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`)
}

// exec executes a statement if the database is up.
func (p *postgres) exec(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Timeout)
	defer cancel()
	conn, err := p.connect(ctx)
	if err != nil {
		return nil // another fault has it down
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// connect opens a session of the test, with the servers' schema in the search path.
func (p *postgres) connect(ctx context.Context) (*pgx.Conn, error) {
	address, err := url.Parse(p.address)
	if err != nil {
		return nil, err
	}
	query := address.Query()
	query.Set("search_path", "stepwell")
	query.Set("application_name", "torture")
	query.Set("connect_timeout", "10")
	address.RawQuery = query.Encode()
	return pgx.Connect(ctx, address.String())
}

// query queries the database for rows of one value or of structs.
func query[T any](ctx context.Context, p *postgres, how pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, how)
}

// mustQuery is query for a database that must be up.
func mustQuery[T any](t *testing.T, p *postgres, how pgx.RowToFunc[T], sql string, args ...any) []T {
	t.Helper()
	list, err := query(t.Context(), p, how, sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// count returns the number that the statement selects.
func (p *postgres) count(ctx context.Context, sql string, args ...any) (int, error) {
	list, err := query(ctx, p, pgx.RowTo[int], sql, args...)
	if err != nil {
		return 0, err
	}
	return list[0], nil
}
