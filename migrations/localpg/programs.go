package localpg

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// superuser is the only role of a private server.
const superuser = "stepwell"

// programs are initdb and postgres of one version, in one folder.
type programs struct {
	dir   string
	major int
}

// String returns the version and the folder.
func (p programs) String() string {
	return fmt.Sprintf("Postgres %d in %s", p.major, p.dir)
}

// versionLine matches the output of postgres --version, such as "postgres (PostgreSQL) 15.14 (Debian 15.14-1)".
var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect reads the version of the programs in dir. It runs postgres as the account that will use it.
func inspect(ctx context.Context, dir string, a account) (programs, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version") //nolint:gosec // the point of it
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environment("/"), a.procAttr()
	out, err := cmd.Output()
	if err != nil {
		return programs{}, fmt.Errorf("run postgres --version: %w", err)
	}
	match := versionLine.FindSubmatch(out)
	if match == nil {
		return programs{}, fmt.Errorf("read version: %q is not Postgres's", strings.TrimSpace(string(out)))
	}
	major, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return programs{}, fmt.Errorf("read version: %w", err)
	}
	return programs{dir: dir, major: major}, nil
}

// environment returns a child's environment: none of our variables that change Postgres's behaviour (PGDATA, LC_…).
func environment(home string) []string {
	env := []string{"HOME=" + home, "LC_ALL=C"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// prepare runs initdb, into a folder that becomes the data folder only when it is complete.
func (p programs) prepare(ctx context.Context, f *folder, o Options) error {
	if _, err := os.Stat(f.data()); err == nil {
		return nil
	}
	unfinished := f.data() + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("remove unfinished data: %w", err)
	}
	hashed, err := f.writeVerifier()
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(hashed) }() // Postgres has its own copy
	args := []string{"--pgdata", unfinished, "--username", superuser, "--pwfile", hashed,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions"}
	if o.relaxed() {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.dir, "initdb"), args...) //nolint:gosec // the point of it
	if err := p.run(cmd, f, newTail(o.logger())); err != nil {
		return err
	}
	if err := os.Rename(unfinished, f.data()); err != nil {
		return fmt.Errorf("create data: %w", err)
	}
	return nil
}

// run runs a program in the folder and waits for it.
func (p programs) run(cmd *exec.Cmd, f *folder, log *tail) error {
	p.configure(cmd, f)
	cmd.Stdout, cmd.Stderr = log, log
	err := cmd.Run()
	if cmd.ProcessState != nil && !cmd.ProcessState.Success() {
		return &ExitError{Program: filepath.Base(cmd.Path), Status: cmd.ProcessState.String(), Log: log.String()}
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", filepath.Base(cmd.Path), err)
	}
	return nil
}

// command returns the postgres command, with our settings before those of the caller.
func (p programs) command(f *folder, port int, settings map[string]string) *exec.Cmd {
	args := []string{
		"-D", f.data(),
		"-c", "port=" + strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=",
		"-c", "logging_collector=off",
	}
	args = append(args, arguments(settings)...)
	cmd := exec.Command(filepath.Join(p.dir, "postgres"), args...) //nolint:gosec // the point of it
	p.configure(cmd, f)
	return cmd
}

// arguments returns the settings as command-line arguments of postgres, sorted by name.
func arguments(settings map[string]string) []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// configure makes the command run in the folder, as its account. The process holds the server's lock while it lives.
func (p programs) configure(cmd *exec.Cmd, f *folder) {
	cmd.Dir, cmd.Env, cmd.SysProcAttr = f.dir, environment(f.dir), f.account.procAttr()
	cmd.ExtraFiles = []*os.File{f.server}
}
