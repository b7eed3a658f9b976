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

// unit is a process that is started again whenever it has ended, as a supervisor would.
type unit struct {
	title   string
	command func() *exec.Cmd
	ready   *regexp.Regexp
	logPath string
	log     io.Writer

	mu      sync.Mutex
	process *harness.Process // nil while it is down
	asked   bool             // its end was asked for
	ended   chan struct{}    // closed when it is not supervised any more
}

func newUnit(t *testing.T, title, log string, ready *regexp.Regexp, command func() *exec.Cmd) *unit {
	t.Helper()
	return &unit{title: title, command: command, ready: ready, logPath: log, log: openLog(t, log), ended: make(chan struct{})}
}

// gaveUp is what a server says in the end that lost the database while it was starting. It listens before it is
// done with that.
var gaveUp = regexp.MustCompile(`(?m)^stepwell: (start River|sign on): `)

// supervise starts the process, and starts it again whenever it has ended, until the context does. Nothing but us
// may end it.
func (u *unit) supervise(ctx context.Context, t *testing.T) {
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
			if !u.set(nil) && !gaveUp.MatchString(p.Said()) {
				t.Errorf("%s ended by itself (%v); it said:\n%s", u.title, p.Terminate(), p.Said())
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
			t.Logf("%s said:\n%s", u.title, p.Said())
		}
	})
}

// set notes which process there is, and reports whether the end of the one before was asked for.
func (u *unit) set(p *harness.Process) (asked bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	asked = u.asked
	u.process, u.asked = p, false
	return asked
}

// up is the process, or nil while it is down.
func (u *unit) up() *harness.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.process
}

// ask is up for those who are about to end it.
func (u *unit) ask() *harness.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = u.process != nil
	return u.process
}

// awaitUp waits until the process is up.
func (u *unit) awaitUp(t *testing.T) {
	t.Helper()
	harness.Eventually(t, u.title+" is up", func() bool { return u.up() != nil })
}

// kill ends the process as a crash would.
func (u *unit) kill(context.Context, time.Duration) error {
	if p := u.ask(); p != nil {
		p.Kill()
	}
	return nil
}

// stop ends the process in good order.
func (u *unit) stop(context.Context, time.Duration) error {
	p := u.ask()
	if p == nil {
		return nil
	}
	if err := p.Terminate(); !gaveUp.MatchString(p.Said()) {
		return err
	}
	return nil
}

// freeze lets the process do nothing for a while.
func (u *unit) freeze(ctx context.Context, d time.Duration) error {
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
