package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// peersFolder is the module with the apps of the peers, relative to the server's module.
const peersFolder = "bench/peers"

// programs returns how to build the programs of a peer.
func programs(packages ...string) func(ctx context.Context, b *bench, dir string) error {
	return func(ctx context.Context, b *bench, dir string) error {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", dir + "/"}, packages...)...)
		cmd.Dir = filepath.Join(b.root, peersFolder)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w: %s", err, out)
		}
		return nil
	}
}

// version returns the name and the version of a module that a program of the peer was built from.
func (of *contender) version(program, module string) (string, error) {
	info, err := buildinfo.ReadFile(filepath.Join(of.bin, program))
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", module, err)
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return module + " " + m.Version, nil
		}
	}
	return "", fmt.Errorf("%s was built without %s", program, module)
}

// startApp starts the app of the peer.
func (of *contender) startApp(ctx context.Context, name string, env ...string) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(of.bin, name))
	return of.loadBy(launchApp(cmd, "app "+name, env...))
}

// loadBy lets an app that has been launched, unless that failed, carry out the load.
func (of *contender) loadBy(a *app, err error) error {
	if err != nil {
		return err
	}
	of.function, of.stops = a.Process, append(of.stops, a.Terminate)
	of.load = func(ctx context.Context, shape string, inFlight int, window time.Duration) (*sample, error) {
		got, err := a.measure(ctx, "runs", measurement{
			Workflow: cmp.Or(of.workflows[shape], shape), InFlight: inFlight, WindowMs: window.Milliseconds(),
		})
		s := got.sample(len(got.Latencies))
		if err != nil { // that runs of a peer fail is a result, too
			s.add(time.Time{}, time.Time{}, err)
		}
		return s, ctx.Err()
	}
	return nil
}

// startServer starts the server of the peer.
func (of *contender) startServer(
	ctx context.Context, ready *regexp.Regexp, env []string, program string, args ...string,
) (err error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	cmd.Env = env
	if of.server, _, err = harness.Launch(filepath.Base(program), cmd, ready); err != nil {
		return err //nolint:wrapcheck // says what has failed
	}
	of.stops = append(of.stops, of.server.Terminate)
	return nil
}

// newFolder creates a folder on the disk of Postgres for the time of the measurement.
func (of *contender) newFolder() (string, error) {
	dir, err := os.MkdirTemp(of.cluster.dir, "peer-")
	if err != nil {
		return "", fmt.Errorf("make a folder for a peer: %w", err)
	}
	of.stops = append(of.stops, func() error { return os.RemoveAll(dir) })
	return dir, nil
}

// startDBOS starts DBOS, which is a library of the app.
func startDBOS(ctx context.Context, _ *bench, of *contender) error {
	version, err := of.version("dbos", "github.com/dbos-inc/dbos-transact-golang")
	if err != nil {
		return err
	}
	of.about = version + "; default settings; it has no server: the app starts the runs itself"
	database, err := of.newDatabase(ctx)
	if err != nil {
		return err
	}
	return of.startApp(ctx, "dbos", "DATABASE_URL="+of.cluster.url(database))
}

// restateReady matches the log line of a server that accepts registrations.
var restateReady = regexp.MustCompile(`("Server listening".*"server_name":"admin-api-server")`)

// startRestate starts a server of Restate, which stores everything in files, and the app.
func startRestate(ctx context.Context, b *bench, of *contender) error {
	sdk, err := of.version("restate", "github.com/restatedev/sdk-go")
	if err != nil {
		return err
	}
	program, err := b.restateServer(ctx)
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return fmt.Errorf("ask Restate for its version: %w", err)
	}
	of.about = strings.TrimSpace(string(version)) + ", " + sdk + "; one node, default settings; each write is synced"
	dir, err := of.newFolder()
	if err != nil {
		return err
	}
	const ingress, admin, fabric = "RESTATE_INGRESS__BIND_ADDRESS", "RESTATE_ADMIN__BIND_ADDRESS", "RESTATE_BIND_ADDRESS"
	env, at := []string{"HOME=" + dir, "RESTATE_DISABLE_TELEMETRY=true", "RESTATE_LOG_FORMAT=json"}, map[string]string{}
	for _, name := range []string{ingress, admin, fabric} {
		port, err := freePort()
		if err != nil {
			return err
		}
		at[name] = fmt.Sprintf("127.0.0.1:%d", port)
		env = append(env, name+"="+at[name])
	}
	err = of.startServer(ctx, restateReady, env, program, "--no-logo", "--base-dir", dir, "--listen-mode", "tcp")
	if err != nil {
		return err
	}
	return of.startApp(ctx, "restate", "RESTATE_INGRESS=http://"+at[ingress], "RESTATE_ADMIN=http://"+at[admin])
}

// freePort returns a port on which nothing listens.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// restateServer installs the server of Restate, and returns its path.
func (b *bench) restateServer(ctx context.Context) (string, error) {
	dir := filepath.Join(b.root, peersFolder)
	if err := npm(ctx, dir, "ci", "--prefer-offline"); err != nil {
		return "", err
	}
	// The package restate-server is only a script that starts that of the platform.
	found, err := filepath.Glob(filepath.Join(dir, "node_modules/@restatedev/restate-server-*/bin/restate-server"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("found %d servers of Restate for this platform, want one", len(found))
	}
	return filepath.Abs(found[0])
}

// temporalReady matches the log line of a server that serves its API.
var temporalReady = regexp.MustCompile(`("msg":"Starting to serve on frontend listener")`)

// startTemporal starts a server of Temporal with all its services, on two databases, and the app. Its ports are the
// default ones, because it cannot store most of those that the kernel calls free.
func startTemporal(ctx context.Context, _ *bench, of *contender) error {
	server, err1 := of.version("server", "go.temporal.io/server")
	sdk, err2 := of.version("temporal", "go.temporal.io/sdk")
	dir, err3 := of.newFolder()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	of.about = server + ", " + sdk + "; one process, default settings: 4 shards, at most 30 connections; local " +
		"activities, whose results are on disk with the end of the workflow's task"
	env := []string{"DB=postgres12", "POSTGRES_SEEDS=127.0.0.1", "DB_PORT=" + strconv.Itoa(of.cluster.port),
		"POSTGRES_USER=" + role, "POSTGRES_PWD=" + password, "TEMPORAL_BROADCAST_ADDRESS=127.0.0.1",
		"DYNAMIC_CONFIG_FILE_PATH=" + dir + "/none.yaml"}
	for _, kind := range [][2]string{{"DBNAME", "temporal"}, {"VISIBILITY_DBNAME", "visibility"}} {
		database, err := of.newDatabase(ctx)
		if err != nil {
			return err
		}
		for _, task := range [][]string{{"setup-schema", "-v", "0.0"},
			{"update-schema", "--schema-name", "postgresql/v12/" + kind[1]}} {
			args := []string{"--plugin", "postgres12", "--ep", "127.0.0.1", "-p", strconv.Itoa(of.cluster.port), "-u", role,
				"--pw", password, "--db", database}
			cmd := exec.CommandContext(ctx, filepath.Join(of.bin, "sql"), append(args, task...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("create Temporal's schema: %w: %s", err, out)
			}
		}
		env = append(env, kind[0]+"="+database)
	}
	if err := os.WriteFile(filepath.Join(dir, "none.yaml"), nil, 0o644); err != nil {
		return fmt.Errorf("configure Temporal: %w", err)
	}
	program := filepath.Join(of.bin, "server")
	if err := of.startServer(ctx, temporalReady, env, program, "--allow-no-auth", "start"); err != nil {
		return err
	}
	return of.startApp(ctx, "temporal", "TEMPORAL_ADDRESS=127.0.0.1:7233")
}

// buildWorldApp builds the app of the Workflow SDK.
func buildWorldApp(ctx context.Context, b *bench, _ string) error {
	return buildApp(ctx, filepath.Join(b.root, appFolder))
}

// startWorldPostgres starts the app of the Workflow SDK on that SDK's own World for Postgres.
func startWorldPostgres(ctx context.Context, b *bench, of *contender) error {
	dir := filepath.Join(b.root, appFolder)
	for _, name := range []string{"workflow", "@workflow/world-postgres"} {
		var installed struct{ Version string }
		text, err := os.ReadFile(filepath.Join(dir, "node_modules", name, "package.json"))
		if err == nil {
			err = json.Unmarshal(text, &installed)
		}
		if err != nil {
			return fmt.Errorf("read the version of %s: %w", name, err)
		}
		of.about += name + " " + installed.Version + ", "
	}
	of.about += "default settings: 10 concurrent jobs, 10 connections; it works in the app's process, one thread of Node"
	of.workflows = map[string]string{"seq-1": "one", "seq-3": "three", "seq-10": "ten", "wide-50": "wide"}
	of.lacks = signalNap // its app has none
	database, err := of.newDatabase(ctx)
	if err != nil {
		return err
	}
	return of.loadBy(launchOnWorldPostgres(ctx, dir, of.cluster.url(database)))
}
