package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// settings are the settings of the private Postgres, the same for the floor and the server. All others are initdb's
// defaults. Every commit waits for the disk. Checkpoints are so rare that none falls into a measured window.
var settings = [][2]string{
	{"fsync", "on"},
	{"synchronous_commit", "on"},
	{"full_page_writes", "on"},
	{"shared_buffers", "1GB"},
	{"max_connections", "200"},
	{"max_wal_size", "8GB"},
	{"checkpoint_timeout", "1h"},
	{"shared_preload_libraries", "pg_stat_statements"},
	{"pg_stat_statements.max", "10000"},
}

const (
	admin = "postgres" // the bench's role
	role  = "stepwell" // the role of the server and of pgbench
)

// cluster is a private Postgres.
type cluster struct {
	dir      string // of all data
	bin      string // folder of the programs
	port     int
	postgres *process
	account  account
	conn     *pgx.Conn
	serial   int // number of the last database
}

var postgresReady = regexp.MustCompile(`(database system is ready to accept connections)`)

// startCluster creates a Postgres in a temporary folder and starts it.
func startCluster(ctx context.Context, bin string) (_ *cluster, err error) {
	if bin == "" {
		if bin, err = findPostgres(); err != nil {
			return nil, err
		}
	}
	c := &cluster{bin: bin}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", "stepwell-bench-"); err != nil {
		return fmt.Errorf("make a folder for Postgres: %w", err)
	}
	if c.account, err = postgresAccount(); err != nil {
		return err
	}
	if err := c.account.own(c.dir); err != nil {
		return fmt.Errorf("change owner of data folder: %w", err)
	}
	if err := c.init(ctx); err != nil {
		return err
	}
	cmd := c.account.command(context.WithoutCancel(ctx), c.program("postgres"), "-D", c.data())
	if c.postgres, _, err = launch("Postgres", cmd, postgresReady, nil); err != nil {
		return err
	}
	c.postgres.stops = syscall.SIGINT // fast shutdown: disconnects all sessions
	if c.conn, err = pgx.Connect(ctx, c.url(admin, admin)); err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	_, err = c.conn.Exec(ctx, `
		CREATE ROLE `+role+` LOGIN; GRANT pg_read_all_stats TO `+role+`; CREATE EXTENSION pg_stat_statements`)
	if err != nil {
		return fmt.Errorf("prepare Postgres: %w", err)
	}
	return nil
}

func (c *cluster) init(ctx context.Context) error {
	init := c.account.command(ctx, c.program("initdb"), "-D", c.data(), "-U", admin, "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync")
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	var err error
	if c.port, err = freePort(); err != nil {
		return err
	}
	lines := []string{"", "listen_addresses = '127.0.0.1'", fmt.Sprintf("port = %d", c.port),
		fmt.Sprintf("unix_socket_directories = '%s'", c.dir)}
	for _, s := range settings {
		lines = append(lines, fmt.Sprintf("%s = '%s'", s[0], s[1]))
	}
	f, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("configure Postgres: %w", err)
	}
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("configure Postgres: %w", err)
	}
	return nil
}

// stop stops Postgres and removes its files.
func (c *cluster) stop() error {
	if c.conn != nil {
		_ = c.conn.Close(context.Background())
	}
	var err error
	if c.postgres != nil {
		err = c.postgres.stop()
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

func (c *cluster) data() string               { return filepath.Join(c.dir, "data") }
func (c *cluster) program(name string) string { return filepath.Join(c.bin, name) }

func (c *cluster) url(who, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", who, c.port, database)
}

// newDatabase creates an empty database, owned by the server's role.
func (c *cluster) newDatabase(ctx context.Context) (string, error) {
	c.serial++
	name := fmt.Sprintf("bench%d", c.serial)
	if _, err := c.conn.Exec(ctx, `CREATE DATABASE `+name+` OWNER `+role); err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	return name, nil
}

// drop drops a database, so that autovacuum of it does not affect later measurements.
func (c *cluster) drop(database string) error {
	if _, err := c.conn.Exec(context.Background(), `DROP DATABASE `+database+` WITH (FORCE)`); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// open connects to a database, with the server's schema in the search path.
func (c *cluster) open(ctx context.Context, database string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, c.url(admin, database)+"&search_path=stepwell,public")
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", database, err)
	}
	return conn, nil
}

// checkpoint waits until autovacuum has finished and writes a checkpoint, so that neither affects the next measurement.
func (c *cluster) checkpoint(ctx context.Context) error {
	for deadline := time.Now().Add(runTimeout); ; time.Sleep(10 * time.Millisecond) {
		var vacuums int
		err := c.conn.QueryRow(ctx, `
			SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'`).Scan(&vacuums)
		if err != nil {
			return fmt.Errorf("look for autovacuum: %w", err)
		}
		if vacuums == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("autovacuum is still running after %s", runTimeout)
		}
	}
	if _, err := c.conn.Exec(ctx, `CHECKPOINT`); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// findPostgres returns the program folder of the machine's newest Postgres with pgbench.
func findPostgres() (string, error) {
	if path, err := exec.LookPath("pgbench"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "initdb")); err == nil {
				return filepath.Dir(path), nil
			}
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if err != nil || len(found) == 0 {
		return "", errors.New("found no Postgres with pgbench; use -postgres to specify its folder")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4]) // names that are not numbers sort first
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(version(a), version(b)) })), nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// account is the user that runs Postgres, which refuses to run as root.
type account struct{ credential *syscall.Credential }

func postgresAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return account{}, fmt.Errorf("read IDs of %s: %w", name, err)
		}
		return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, errors.New("postgres refuses to run as root, and there is no user postgres or nobody")
}

func (a account) own(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// command returns a command that runs as the account, in its own process group, so that Ctrl-C does not stop it before
// the bench does.
func (a account) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: a.credential}
	return cmd
}
