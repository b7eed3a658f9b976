package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// completion is a line of JSON that the function prints for each run that it has completed by the wire. At is in
// nanoseconds of the machine's clock, which the bench shares.
type completion struct {
	Run string `json:"run"`
	At  int64  `json:"at"`
}

// flushing is a buffered writer that flushes every 2 ms. A system call per line would affect the measurement.
type flushing struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func newFlushing(w io.Writer) *flushing {
	f := &flushing{w: bufio.NewWriter(w)}
	go func() {
		for range time.Tick(2 * time.Millisecond) {
			f.mu.Lock()
			_ = f.w.Flush() // fails only if the bench has ended
			f.mu.Unlock()
		}
	}()
	return f
}

func (f *flushing) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.w.Write(p)
}

// completions holds what the function has printed, until it is read.
type completions struct {
	mu   sync.Mutex
	runs map[string]chan time.Time
}

func newCompletions() *completions { return &completions{runs: map[string]chan time.Time{}} }

// listen processes a line of the function's output.
func (c *completions) listen(line string) {
	var of completion
	if err := json.Unmarshal([]byte(line), &of); err != nil {
		say("function: %s", line)
		return
	}
	c.of(of.Run) <- time.Unix(0, of.At)
}

// of returns the channel for the completion of a run.
func (c *completions) of(run string) chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.runs[run]
	if !ok {
		at = make(chan time.Time, 1)
		c.runs[run] = at
	}
	return at
}

// forget deletes the channel of a run.
func (c *completions) forget(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, run)
}

// errNotCompleted means that a run failed in the function or was lost.
var errNotCompleted = fmt.Errorf("the function has not completed a run within %s", runTimeout)

// runTimeout limits the duration of a run. It is longer than the server needs to redeliver a lost message.
const runTimeout = 3 * time.Minute
