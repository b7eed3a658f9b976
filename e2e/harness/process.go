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

// Process is one that a test started. Its standard input is a pipe, so that it can notice our death.
type Process struct {
	name  string
	cmd   *exec.Cmd
	input io.Closer
	out   *output
	ended chan struct{} // closed once err is its end
	err   error
}

// errStuck is a process that had to be killed.
var errStuck = errors.New("it went on after SIGTERM")

// Launch starts a program and returns what it says once it is ready: the submatch of the pattern. All it says
// also goes to cmd.Stderr, if that is set. Who calls it has to end the process.
func Launch(name string, cmd *exec.Cmd, ready *regexp.Regexp) (p *Process, found string, err error) {
	p = &Process{name: name, cmd: cmd, out: newOutput(ready), ended: make(chan struct{})}
	said := io.Writer(p.out)
	if cmd.Stderr != nil {
		said = io.MultiWriter(p.out, cmd.Stderr)
	}
	cmd.Stdout, cmd.Stderr = said, said
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
		return nil, "", fmt.Errorf("%s ended at once: %w; it said:\n%s", name, p.err, p.Said())
	case <-time.After(Patience):
		p.Kill()
		return nil, "", fmt.Errorf("%s was not ready within %s; it said:\n%s", name, Patience, p.Said())
	}
}

// start starts the program. The goroutine has a thread to itself until the program ends: the kernel takes the end
// of the thread that started it for ours.
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

// Start is Launch for a process that ends with the test. What it said is shown if the test fails.
func Start(t *testing.T, name string, cmd *exec.Cmd, ready *regexp.Regexp) (*Process, string) {
	t.Helper()
	p, found, err := Launch(name, cmd, ready)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Terminate(); errors.Is(err, errStuck) {
			t.Error(err) // that it did not end well is for those to mind who expect it to
		}
		if t.Failed() {
			t.Logf("%s (process %d) said:\n%s", name, cmd.Process.Pid, p.Said())
		}
	})
	return p, found
}

// Stop ends the process in good order, which it has to do without an error. It may have ended before.
func (p *Process) Stop(t *testing.T) {
	t.Helper()
	if !p.Alive() {
		return
	}
	if err := p.Terminate(); err != nil {
		t.Error(err)
	}
}

// Terminate ends the process in good order, and returns how it ended if not well.
func (p *Process) Terminate() error {
	_ = p.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-p.ended:
	case <-time.After(Patience):
		p.Kill()
		return fmt.Errorf("stop %s: %w for %s", p.name, errStuck, Patience)
	}
	if p.err != nil {
		return fmt.Errorf("stop %s: %w", p.name, p.err)
	}
	return nil
}

// Kill ends the process as a crash would.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
}

// Signal sends the process a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Alive reports whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Said is the end of what the process has said.
func (p *Process) Said() string { return p.out.tail() }
