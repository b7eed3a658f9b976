package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stepwell-dev/stepwell/site/cast"
)

// mark ends the output of a command. No command prints it.
const mark = "\x1e"

// waitLimit limits the wait for what a command causes, for busy machines.
const waitLimit = time.Minute

// shell is a bash whose output is recorded, with that of all programs it starts.
type shell struct {
	pace  time.Duration // how long a command can be read before it is run
	stdin io.WriteCloser
	cmd   *exec.Cmd
	done  chan struct{} // closed when no program has the output any more

	mu     sync.Mutex
	began  time.Time
	output []cast.Output
	marks  int
	grown  chan struct{} // closed, and replaced, when output has come
}

// start starts a shell in a folder.
func start(ctx context.Context, folder string, env []string, pace time.Duration) (*shell, error) {
	s := &shell{pace: pace, grown: make(chan struct{}), done: make(chan struct{})}
	s.began = time.Now() //nolint:forbidigo // it is a program that records when something comes
	s.cmd = exec.CommandContext(ctx, "bash", "--norc", "-s")
	s.cmd.Dir, s.cmd.Env = folder, env
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer writer.Close() //nolint:errcheck // the shell has it
	s.cmd.Stdout, s.cmd.Stderr = writer, writer
	if s.stdin, err = s.cmd.StdinPipe(); err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	go s.read(reader)
	return s, nil
}

func (s *shell) read(from *os.File) {
	defer close(s.done)
	defer from.Close() //nolint:errcheck // nothing was written
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		s.show(buffer[:n])
		if err != nil {
			return
		}
	}
}

// show records an output as it comes.
func (s *shell) show(output []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks += bytes.Count(output, []byte(mark))
	if text := strings.ReplaceAll(string(output), mark, ""); text != "" {
		s.output = append(s.output, cast.Output{At: time.Since(s.began).Round(time.Millisecond), Text: text})
	}
	close(s.grown)
	s.grown = make(chan struct{})
}

// run shows a command, and after a pause runs it until it has ended or is in the background.
func (s *shell) run(ctx context.Context, command string) error {
	s.show([]byte("$ " + command + "\n"))
	select {
	case <-time.After(s.pace):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	marks := s.marks
	s.mu.Unlock()
	if _, err := fmt.Fprintf(s.stdin, "%s\nprintf '\\x1e'\n", command); err != nil {
		return err
	}
	return s.until(ctx, command, func() bool { return s.marks > marks })
}

// until waits until the output is as wanted.
func (s *shell) until(ctx context.Context, what string, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		s.mu.Lock()
		holds, grown := is(), s.grown
		s.mu.Unlock()
		if holds {
			return nil
		}
		select {
		case <-grown:
		case <-s.done:
			return fmt.Errorf("the shell ended before this: %s; it printed:\n%s", what, s.text())
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %s; the shell printed:\n%s", waitLimit, what, s.text())
		}
	}
}

// shows waits until the text has been printed.
func (s *shell) shows(ctx context.Context, text string) error {
	return s.until(ctx, text, func() bool { return strings.Contains(s.joined(), text) })
}

// joined is all output; s.mu is held.
func (s *shell) joined() string { return cast.Recording{Output: s.output}.Text() }

func (s *shell) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined()
}

// kill ends the shell and all that it has started, and waits until they have ended.
func (s *shell) kill() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM) // the server stops its Postgres
	<-s.done
	_ = s.cmd.Wait() // it was killed
}
