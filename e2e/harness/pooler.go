package harness

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations"
)

// Ways to the database in E2E_POOLER.
const (
	// PoolerAndDirect lets servers reach Postgres by a pooler, and past it what needs a session.
	PoolerAndDirect = "direct"
	// PoolerOnly lets servers reach Postgres by a pooler only.
	PoolerOnly = "only"
)

// poolerSettings are what sessions of a pooler must have; see deploy/README.md.
const poolerSettings = `
	search_path = ` + migrations.DefaultSchema + `; jit = off; enable_seqscan = off;
	statement_timeout = '30s'; lock_timeout = '10s'; idle_in_transaction_session_timeout = '15s'`

// pooler is the PgBouncer of this test process, once there is one.
var pooler struct {
	sync.Mutex
	dir, address string
	process      *Process
}

// PoolerSessions is how many sessions the pooler has for a database.
const PoolerSessions = 10

// BehindPooler returns the variables of a server that reaches the database by PgBouncer in transaction mode. The first
// call starts it, for all databases of the server, with [PoolerSessions] for each. [Main] stops it.
func BehindPooler(dsn, way string) ([]string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	address, err := startPooler(config)
	if err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	if err := setForPooler(config); err != nil {
		return nil, fmt.Errorf("set the role's settings: %w", err)
	}
	pooled := url.URL{
		Scheme: "postgres", User: url.UserPassword(config.User, config.Password), Host: address,
		Path: config.Database, RawQuery: "sslmode=disable",
	}
	env := []string{"DATABASE_URL=" + pooled.String()}
	if way == PoolerAndDirect {
		env = append(env, "STEPWELL_DIRECT_DATABASE_URL="+dsn)
	}
	return env, nil
}

// setForPooler gives the role the settings in the database.
func setForPooler(config *pgx.ConnConfig) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	alter := "ALTER ROLE CURRENT_USER IN DATABASE " + pgx.Identifier{config.Database}.Sanitize() + " SET "
	for setting := range strings.SplitSeq(poolerSettings, ";") {
		if _, err := conn.Exec(ctx, alter+strings.TrimSpace(setting)); err != nil {
			return err
		}
	}
	return nil
}

// startPooler starts PgBouncer before the Postgres of the configuration, unless it runs, and returns its address.
func startPooler(config *pgx.ConnConfig) (string, error) {
	pooler.Lock()
	defer pooler.Unlock()
	if pooler.process != nil {
		return pooler.address, nil
	}
	dir, err := os.MkdirTemp("", "pooler-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // PgBouncer has another user
		return "", err
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	users := filepath.Join(dir, "users")
	files := map[string]string{
		users: fmt.Sprintf("%q %q\n", config.User, config.Password),
		filepath.Join(dir, "ini"): fmt.Sprintf("[databases]\n* = host=%s port=%d\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"+
			"listen_port = %d\nunix_socket_dir =\nauth_type = trust\nauth_file = %s\npool_mode = transaction\n"+
			"default_pool_size = %d\nmax_client_conn = 5000\nlog_connections = 0\nlog_disconnections = 0\n",
			config.Host, config.Port, port, users, PoolerSessions),
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	args := []string{filepath.Join(dir, "ini")}
	if os.Geteuid() == 0 { // which it refuses
		args = append([]string{"-u", "nobody"}, args...)
	}
	pooler.process, _, err = Launch("PgBouncer", exec.Command("/usr/sbin/pgbouncer", args...), poolerReady)
	pooler.dir, pooler.address = dir, fmt.Sprintf("127.0.0.1:%d", port)
	return pooler.address, err
}

// poolerReady matches what PgBouncer logs when it listens.
var poolerReady = regexp.MustCompile(`(process up)`)

// stopPooler stops PgBouncer, if it runs.
func stopPooler() {
	pooler.Lock()
	defer pooler.Unlock()
	if pooler.process == nil {
		return
	}
	pooler.process.Kill()
	_ = os.RemoveAll(pooler.dir)
}

// poolerEnv replaces the database in the variables of a server by the way to it that E2E_POOLER names, if it is set.
func poolerEnv(variables []string) []string {
	way := os.Getenv("E2E_POOLER")
	if way == "" {
		return variables
	}
	var replaced []string
	for _, variable := range variables {
		dsn, found := strings.CutPrefix(variable, "DATABASE_URL=")
		if !found {
			replaced = append(replaced, variable)
			continue
		}
		env, err := BehindPooler(dsn, way)
		if err != nil {
			panic(err) // of a suite that was asked to run behind a pooler
		}
		replaced = append(replaced, env...)
	}
	return replaced
}
