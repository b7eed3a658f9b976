package torture

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// supervised is a process that is restarted whenever it has ended, as by a supervisor.
type supervised struct {
	title   string
	command func() *exec.Cmd
	ready   *regexp.Regexp
	logPath string
	log     io.Writer

	mu          sync.Mutex
	process     *harness.Process // nil while it is down
	endExpected bool             // a fault is ending the process
	ended       chan struct{}    // closed when supervision has ended
}

func newSupervised(t *testing.T, title, log string, ready *regexp.Regexp, command func() *exec.Cmd) *supervised {
	t.Helper()
	return &supervised{title: title, command: command, ready: ready, logPath: log, log: openLog(t, log), ended: make(chan struct{})}
}

// gaveUp matches the last output of a server that lost the database during its start, after it had begun to listen.
var gaveUp = regexp.MustCompile(`(?m)^stepwell: (start River|sign on): `)

// supervise starts the process and restarts it until the context ends. The test fails if the process exits on its own.
func (u *supervised) supervise(ctx context.Context, t *testing.T) {
	t.Helper()
	go func() {
		defer close(u.ended)
		for ctx.Err() == nil {
			cmd := u.command()
			cmd.Stderr = u.log
			p, _, err := harness.Launch(u.title, cmd, u.ready)
			if err != nil {
				pause(ctx, retryPause) // Postgres may be down
				continue
			}
			u.set(p)
			select {
			case <-p.Ended():
			case <-ctx.Done():
				return
			}
			if !u.set(nil) && !gaveUp.MatchString(p.Output()) {
				t.Errorf("%s exited on its own (%v); its output:\n%s", u.title, p.Terminate(), p.Output())
			}
		}
	}()
	t.Cleanup(func() {
		<-u.ended
		p := u.up()
		if p == nil {
			return
		}
		p.Kill()
		if t.Failed() {
			t.Logf("output of %s:\n%s", u.title, p.Output())
		}
	})
}

// set sets the current process, and reports whether the end of the previous one was expected.
func (u *supervised) set(p *harness.Process) (asked bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	asked = u.endExpected
	u.process, u.endExpected = p, false
	return asked
}

// up returns the process, or nil while it is down.
func (u *supervised) up() *harness.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.process
}

// expectEnd returns the process like up, and marks its end as expected.
func (u *supervised) expectEnd() *harness.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.endExpected = u.process != nil
	return u.process
}

// awaitUp waits until the process is up.
func (u *supervised) awaitUp(t *testing.T) {
	t.Helper()
	harness.Eventually(t, u.title+" is up", func() bool { return u.up() != nil })
}

// kill ends the process without warning, like a crash.
func (u *supervised) kill(context.Context, time.Duration) error {
	if p := u.expectEnd(); p != nil {
		p.Kill()
	}
	return nil
}

// stop ends the process gracefully.
func (u *supervised) stop(context.Context, time.Duration) error {
	p := u.expectEnd()
	if p == nil {
		return nil
	}
	if err := p.Terminate(); !gaveUp.MatchString(p.Output()) {
		return err
	}
	return nil
}

// freeze suspends the process for a while.
func (u *supervised) freeze(ctx context.Context, d time.Duration) error {
	p := u.up()
	if p == nil {
		return nil
	}
	if err := p.Signal(syscall.SIGSTOP); errors.Is(err, os.ErrProcessDone) {
		return nil // supervise checks whether that was expected
	}
	pause(ctx, d)
	return p.Signal(syscall.SIGCONT)
}
