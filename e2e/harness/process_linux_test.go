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

// TestProcessOutlivesStartingThread calls Launch on a thread that ends with its goroutine. The kernel must not kill the
// process with that thread.
func TestProcessOutlivesStartingThread(t *testing.T) {
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
		t.Errorf("the process ended before SIGTERM: %v", err)
	}
}

type launched struct {
	p   *Process
	err error
	tid int
}

// launchOnce launches a program from a thread that then ends.
func launchOnce(cmd *exec.Cmd) <-chan launched {
	done := make(chan launched, 1)
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() { // the main thread never ends, so use another one
			defer runtime.UnlockOSThread()
			done <- <-launchOnce(cmd)
			return
		}
		p, _, err := Launch("sleeper", cmd, regexp.MustCompile(`ready (1)`))
		done <- launched{p, err, syscall.Gettid()}
	}()
	return done
}
