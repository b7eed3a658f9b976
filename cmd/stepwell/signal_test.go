package main

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestSecondSignalKillsServer: also while the first one waits for a delivery to finish.
func TestSecondSignalKillsServer(t *testing.T) {
	t.Parallel()
	app := newHangingApp(t)
	server := serveInChild(t, testdb.New(t), "STEPWELL_DEPLOYMENTS=shop="+app.url, "STEPWELL_SHUTDOWN_GRACE=1m")
	send(t, server.base)
	app.next(t)
	ended := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := server.Wait()
		ended <- state
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(waitLimit)
	for {
		if err := server.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		select {
		case state := <-ended:
			if status, ok := state.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
				t.Errorf("got %v, want the process to end by the signal", state)
			}
			return
		case <-deadline:
			t.Fatal("the server does not end")
		case <-tick.C:
		}
	}
}
