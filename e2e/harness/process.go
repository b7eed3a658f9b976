package harness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Process is a process started by a test. Its standard input is a pipe that closes if the test process dies.
type Process struct {
	name  string
	cmd   *exec.Cmd
	input io.Closer
	out   *output
	ended chan struct{} // closed after the process has ended and err is set
	err   error
}

// errStuck means that the process did not end after SIGTERM and was killed.
var errStuck = errors.New("still running after SIGTERM")

// Launch starts a program, waits until its output matches the pattern, and returns the submatch. If cmd.Stderr is set,
// it gets a copy of all output. The caller must end the process.
func Launch(name string, cmd *exec.Cmd, ready *regexp.Regexp) (p *Process, found string, err error) {
	p = &Process{name: name, cmd: cmd, out: newOutput(ready), ended: make(chan struct{})}
	out := io.Writer(p.out)
	if cmd.Stderr != nil {
		out = io.MultiWriter(p.out, cmd.Stderr)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if p.input, err = cmd.StdinPipe(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	if err := p.start(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	select {
	case found = <-p.out.ready:
		return p, found, nil
	case <-p.ended:
		return nil, "", fmt.Errorf("%s ended at once: %w; its output:\n%s", name, p.err, p.Output())
	case <-time.After(Timeout):
		p.Kill()
		return nil, "", fmt.Errorf("%s was not ready within %s; its output:\n%s", name, Timeout, p.Output())
	}
}

// start starts the program. The goroutine is locked to its thread until the program ends, because Pdeathsig applies to
// the end of the starting thread, not of the process.
func (p *Process) start() error {
	DieWithParent(p.cmd)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.ended)
		}
	}()
	return <-started
}

// Start is Launch for a process that ends with the test. If the test fails, the process's output is logged.
func Start(t *testing.T, name string, cmd *exec.Cmd, ready *regexp.Regexp) (*Process, string) {
	t.Helper()
	p, found, err := Launch(name, cmd, ready)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Terminate(); errors.Is(err, errStuck) {
			t.Error(err) // callers check other exit errors with Stop
		}
		if t.Failed() {
			t.Logf("output of %s (process %d):\n%s", name, cmd.Process.Pid, p.Output())
		}
	})
	return p, found
}

// Stop terminates the process, and fails the test unless it exits cleanly. It does nothing if the process has ended.
func (p *Process) Stop(t *testing.T) {
	t.Helper()
	if !p.Alive() {
		return
	}
	if err := p.Terminate(); err != nil {
		t.Error(err)
	}
}

// Terminate sends SIGTERM, waits for the end of the process, and returns its exit error.
func (p *Process) Terminate() error {
	_ = p.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-p.ended:
	case <-time.After(Timeout):
		p.Kill()
		return fmt.Errorf("stop %s: %w for %s", p.name, errStuck, Timeout)
	}
	if p.err != nil {
		return fmt.Errorf("stop %s: %w", p.name, p.err)
	}
	return nil
}

// Kill ends the process without warning, like a crash.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
}

// Signal sends the process a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// PID returns the ID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Alive reports whether the process is still running.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Output returns the end of the process's output.
func (p *Process) Output() string { return p.out.tail() }
