package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/stepwell-dev/stepwell/site/cast"
)

//go:embed order.py
var order []byte

// scene is what was recorded, and what the server kept of it.
type scene struct {
	recording cast.Recording
	began     time.Time
	log       []event
}

// event is an entry in the log of the run.
type event struct {
	Seq           int
	Type          string
	CorrelationID string
	CreatedAt     time.Time
}

// play runs the scene: an order begins, its app and its server are killed while it sleeps, and it goes on.
func play(ctx context.Context, repository string, pace time.Duration) (_ scene, err error) {
	set, err := newStage(repository)
	if err != nil {
		return scene{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(set.folder)) }()
	sh, err := start(ctx, set.folder, set.env, pace)
	if err != nil {
		return scene{}, err
	}
	defer sh.kill()
	var log []event
	for _, act := range []func() error{
		func() error { return sh.run(ctx, "cat order.py") },
		func() error { return sh.run(ctx, "stepwell dev > log 2>&1 & server=$!") },
		func() error { return set.command(ctx, "health") },
		func() error { return sh.run(ctx, "python3 -u order.py & app=$!") },
		func() error { return set.command(ctx, "deployments", "show", "shop") },
		func() error { return sh.run(ctx, `run=$(stepwell runs start order --input '"teapot"')`) },
		func() error { return sh.shows(ctx, "  packed a teapot\n") },
		func() error { return set.sleeps(ctx) },
		func() error { return sh.run(ctx, "kill -9 $server $app; wait") },
		func() error { return set.isDead(ctx) },
		func() error { return sh.run(ctx, "stepwell dev >> log 2>&1 & server=$!") },
		func() error { return set.command(ctx, "health") },
		func() error { return sh.run(ctx, "python3 -u order.py & app=$!") },
		func() error { return sh.shows(ctx, "  shipped the teapot\n") },
		func() (err error) { log, err = set.log(ctx, "--follow"); return err },
		func() error { return sh.run(ctx, "stepwell runs events $run | sed 's/ *[a-zA-Z]*=.*//'") },
	} {
		if err := act(); err != nil {
			return scene{}, err
		}
	}
	recording := cast.Recording{
		Title: "An order survives kill -9 of its app and its server", Width: 68, Height: 24, IdleLimit: 3 * time.Second,
		Output: sh.output,
	}
	return scene{recording, sh.began, log}, nil
}

// stage is a folder with the app, where a server of its own can run.
type stage struct {
	folder, stepwell, listen string
	env                      []string
}

func newStage(repository string) (*stage, error) {
	repository, err := filepath.Abs(repository)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "stepwell-recording-")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	set := &stage{folder: folder, stepwell: filepath.Join(repository, "bin", "stepwell"), listen: listener.Addr().String()}
	set.env = []string{
		"PATH=" + filepath.Dir(set.stepwell) + ":" + os.Getenv("PATH"), "HOME=" + folder, "LANG=C.UTF-8",
		"PYTHONPATH=" + filepath.Join(repository, "sdk", "python"), "STEPWELL_DATA_DIR=" + filepath.Join(folder, "data"),
		"STEPWELL_LISTEN=" + set.listen, "STEPWELL_URL=http://" + set.listen, "STEPWELL_OPEN_BROWSER=false",
	}
	// Another user runs the Postgres of root.
	return set, errors.Join(listener.Close(), os.Chmod(folder, 0o755),
		os.WriteFile(filepath.Join(folder, "order.py"), order, 0o600))
}

// command runs a command that is not shown until it succeeds.
func (s *stage) command(ctx context.Context, args ...string) error {
	return eventually(ctx, func() error {
		_, err := s.output(ctx, args...)
		return err
	})
}

// eventually repeats an attempt until it succeeds.
func eventually(ctx context.Context, attempt func() error) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", waitLimit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// output is what a command that is not shown prints.
func (s *stage) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.stepwell, args...)
	cmd.Env = s.env
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("stepwell %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// sleeps waits until the log says that the only run waits.
func (s *stage) sleeps(ctx context.Context) error {
	return eventually(ctx, func() error {
		log, err := s.log(ctx)
		if err == nil && log[len(log)-1].Type != "wait_created" {
			err = errors.New("the run does not sleep")
		}
		return err
	})
}

// isDead reports an error if anything listens at the server's address.
func (s *stage) isDead(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.listen)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err == nil {
		err = errors.Join(errors.New("the server lives"), conn.Close())
	}
	return err
}

// log reads the log of the only run.
func (s *stage) log(ctx context.Context, flags ...string) ([]event, error) {
	runs, err := objects[struct{ ID string }](ctx, s, "runs", "list")
	if err != nil || len(runs) != 1 {
		return nil, fmt.Errorf("got %d runs: %w", len(runs), err)
	}
	return objects[event](ctx, s, append([]string{"runs", "events", runs[0].ID}, flags...)...)
}

// objects are those that a command prints.
func objects[T any](ctx context.Context, s *stage, args ...string) ([]T, error) {
	out, err := s.output(ctx, append(args, "--json")...)
	if err != nil {
		return nil, err
	}
	var list []T
	for line := range bytes.Lines(out) {
		var one T
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		list = append(list, one)
	}
	return list, nil
}
