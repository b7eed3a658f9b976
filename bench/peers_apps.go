package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// peersFolder is the module with the apps of the peers, relative to the server's module.
const peersFolder = "bench/peers"

// buildPeer builds the app of a peer, and returns its path.
func (b *bench) buildPeer(ctx context.Context, app, dir string) (string, error) {
	say("building the app of %s", app)
	path := filepath.Join(dir, app)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./"+app)
	cmd.Dir = filepath.Join(b.root, peersFolder)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
}

// versionOf returns the name and the version of a module that a program was built with.
func versionOf(program, module string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", module, err)
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return module + " " + d.Version, nil
		}
	}
	return "", fmt.Errorf("%s was built without %s", program, module)
}

// startApp starts the app of the peer.
func (of *contender) startApp(ctx context.Context, path string, env ...string) error {
	a, err := launchApp(exec.CommandContext(context.WithoutCancel(ctx), path), "app "+filepath.Base(path), env...)
	if err != nil {
		return err
	}
	of.function, of.stops = a.process, append(of.stops, a.stop)
	of.load = func(ctx context.Context, shape string, inFlight int, window time.Duration) (*sample, error) {
		got, err := a.measure(ctx, "runs", measurement{Workflow: shape, InFlight: inFlight, WindowMs: window.Milliseconds()})
		s := got.sample(len(got.Latencies))
		if err != nil { // that runs of a peer fail is a result, too
			s.add(time.Time{}, time.Time{}, err)
		}
		return s, ctx.Err()
	}
	return nil
}

// startDBOS starts DBOS, which is a library of the app.
func startDBOS(ctx context.Context, _ *bench, of *contender, app string) error {
	version, err := versionOf(app, "github.com/dbos-inc/dbos-transact-golang")
	if err != nil {
		return err
	}
	of.about = version + "; default settings; it has no server: the app starts the runs itself"
	database, err := of.newDatabase(ctx)
	if err != nil {
		return err
	}
	return of.startApp(ctx, app, "DATABASE_URL="+database)
}

// restateReady matches the log line of a server that can be told of an app.
var restateReady = regexp.MustCompile(`"Server listening".*"server_name":"admin-api-server"`)

// startRestate starts a server of Restate, which stores everything in files, and the app.
func startRestate(ctx context.Context, b *bench, of *contender, app string) error {
	sdk, err := versionOf(app, "github.com/restatedev/sdk-go")
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
	dir, err := os.MkdirTemp(b.cluster.dir, "restate-") // on the disk of Postgres
	if err != nil {
		return fmt.Errorf("make a folder for Restate: %w", err)
	}
	of.stops = append(of.stops, func() error { return os.RemoveAll(dir) })
	env := []string{"HOME=" + dir, "RESTATE_DISABLE_TELEMETRY=true", "RESTATE_LOG_FORMAT=json"}
	at := map[string]string{}
	for _, name := range []string{"RESTATE_INGRESS__BIND_ADDRESS", "RESTATE_ADMIN__BIND_ADDRESS", "RESTATE_BIND_ADDRESS"} {
		port, err := freePort()
		if err != nil {
			return err
		}
		at[name] = fmt.Sprintf("127.0.0.1:%d", port)
		env = append(env, name+"="+at[name])
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "--no-logo", "--base-dir", dir, "--listen-mode", "tcp")
	cmd.Env = env
	if of.server, _, err = launch("Restate", cmd, restateReady, nil); err != nil {
		return err
	}
	of.stops = append(of.stops, of.server.stop)
	return of.startApp(ctx, app, "RESTATE_INGRESS=http://"+at["RESTATE_INGRESS__BIND_ADDRESS"],
		"RESTATE_ADMIN=http://"+at["RESTATE_ADMIN__BIND_ADDRESS"])
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
