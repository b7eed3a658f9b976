package harness

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// TestProcessOutlivesTheThreadThatAskedForIt: a thread ends with a goroutine that keeps it to itself, and the kernel
// kills what that thread has started.
func TestProcessOutlivesTheThreadThatAskedForIt(t *testing.T) {
	t.Parallel()
	l := <-launchOnce(exec.Command("sh", "-c", "echo ready 1; exec sleep 300"))
	if l.err != nil {
		t.Fatal(l.err)
	}
	Eventually(t, "the thread has ended", func() bool {
		_, err := os.Stat("/proc/self/task/" + strconv.Itoa(l.tid))
		return errors.Is(err, os.ErrNotExist)
	})
	err := l.p.Terminate()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the process ended before it was asked to: %v", err)
	}
}

type launched struct {
	p   *Process
	err error
	tid int
}

// launchOnce launches a program from a thread that ends thereafter.
func launchOnce(cmd *exec.Cmd) <-chan launched {
	done := make(chan launched, 1)
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() { // this thread never ends, so it is to be another
			defer runtime.UnlockOSThread()
			done <- <-launchOnce(cmd)
			return
		}
		p, _, err := Launch("sleeper", cmd, regexp.MustCompile(`ready (1)`))
		done <- launched{p, err, syscall.Gettid()}
	}()
	return done
}
