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

// supervised is a process that is started again whenever it has ended, as a supervisor would.
type supervised struct {
	title   string
	command func() *exec.Cmd
	ready   *regexp.Regexp
	logPath string
	log     io.Writer

	mu          sync.Mutex
	process     *harness.Process // nil while it is down
	endExpected bool             // its end was asked for
	ended       chan struct{}    // closed when it is not supervised any more
}

func newSupervised(t *testing.T, title, log string, ready *regexp.Regexp, command func() *exec.Cmd) *supervised {
	t.Helper()
	return &supervised{title: title, command: command, ready: ready, logPath: log, log: openLog(t, log), ended: make(chan struct{})}
}

// gaveUp is what a server says in the end that lost the database while it was starting. It listens before it is
// done with that.
var gaveUp = regexp.MustCompile(`(?m)^stepwell: (start River|sign on): `)

// supervise starts the process, and starts it again whenever it has ended, until the context does. Nothing but us
// may end it.
func (u *supervised) supervise(ctx context.Context, t *testing.T) {
	t.Helper()
	go func() {
		defer close(u.ended)
		for ctx.Err() == nil {
			cmd := u.command()
			cmd.Stderr = u.log
			p, _, err := harness.Launch(u.title, cmd, u.ready)
			if err != nil {
				pause(ctx, retryPause) // what it needs may be down
				continue
			}
			u.set(p)
			select {
			case <-p.Ended():
			case <-ctx.Done():
				return
			}
			if !u.set(nil) && !gaveUp.MatchString(p.Output()) {
				t.Errorf("%s ended by itself (%v); it said:\n%s", u.title, p.Terminate(), p.Output())
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
			t.Logf("%s said:\n%s", u.title, p.Output())
		}
	})
}

// set notes which process there is, and reports whether the end of the one before was asked for.
func (u *supervised) set(p *harness.Process) (asked bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	asked = u.endExpected
	u.process, u.endExpected = p, false
	return asked
}

// up is the process, or nil while it is down.
func (u *supervised) up() *harness.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.process
}

// expectEnd is up for those who are about to end it.
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

// kill ends the process as a crash would.
func (u *supervised) kill(context.Context, time.Duration) error {
	if p := u.expectEnd(); p != nil {
		p.Kill()
	}
	return nil
}

// stop ends the process in good order.
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

// freeze lets the process do nothing for a while.
func (u *supervised) freeze(ctx context.Context, d time.Duration) error {
	p := u.up()
	if p == nil {
		return nil
	}
	if err := p.Signal(syscall.SIGSTOP); errors.Is(err, os.ErrProcessDone) {
		return nil // supervise says whether it may have
	}
	pause(ctx, d)
	return p.Signal(syscall.SIGCONT)
}
