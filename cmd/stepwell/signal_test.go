package main

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestSecondSignalEndsTheServerAtOnce, though the first is still waiting for a delivery.
func TestSecondSignalEndsTheServerAtOnce(t *testing.T) {
	t.Parallel()
	app := newHanging(t)
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
	deadline := time.After(patience)
	for {
		if err := server.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		select {
		case state := <-ended:
			if status, ok := state.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
				t.Errorf("it ended with %v, want by the signal", state)
			}
			return
		case <-deadline:
			t.Fatal("it does not end")
		case <-tick.C:
		}
	}
}
