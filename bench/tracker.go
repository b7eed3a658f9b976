package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// report is a line of JSON that the function prints for each completed run, and for each payload of a long log. Times are
// in nanoseconds of the machine's clock, which the bench shares.
type report struct {
	Run        string  `json:"run,omitempty"`
	First      int64   `json:"first,omitempty"` // start of the first step
	Done       int64   `json:"done,omitempty"`  // when the function knew of the completion
	Steps      int64   `json:"steps,omitempty"` // total duration of steps
	Gaps       []int64 `json:"gaps,omitempty"`  // from the end of each step to the start of the next
	Deliveries int     `json:"deliveries,omitempty"`

	Sent int64 `json:"sent,omitempty"` // when a payload was sent
	At   int64 `json:"at,omitempty"`   // when its call had been dealt with
}

// tracker collects reports in the function.
type tracker struct {
	mu   sync.Mutex
	out  *json.Encoder
	runs map[string]*tracked
}

type tracked struct {
	report

	last int64 // end of the last step
}

func newTracker(out io.Writer) *tracker {
	return &tracker{out: json.NewEncoder(out), runs: map[string]*tracked{}}
}

// of returns the record of a run. The caller must hold the lock.
func (t *tracker) of(run string) *tracked {
	r, ok := t.runs[run]
	if !ok {
		r = &tracked{report: report{Run: run}}
		t.runs[run] = r
	}
	return r
}

// called records a call of the function for the run.
func (t *tracker) called(run string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(run).Deliveries++
}

// step records the execution of a step, and returns how many the run has executed.
func (t *tracker) step(run string, began, ended time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.of(run)
	if r.First == 0 {
		r.First = began.UnixNano()
	} else {
		r.Gaps = append(r.Gaps, began.UnixNano()-r.last)
	}
	r.last = ended.UnixNano()
	r.Steps += ended.Sub(began).Nanoseconds()
	return len(r.Gaps) + 1
}

// done reports a completed run.
func (t *tracker) done(run string, at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.of(run)
	delete(t.runs, run)
	r.Done = at.UnixNano()
	return t.out.Encode(r.report)
}

// resumed reports that the call with a payload has been dealt with.
func (t *tracker) resumed(sent int64, at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Encode(report{Sent: sent, At: at.UnixNano()})
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

// reports holds the reports received from the function until they are read.
type reports struct {
	mu      sync.Mutex
	runs    map[string]chan report
	resumed chan report
}

func newReports() *reports {
	return &reports{runs: map[string]chan report{}, resumed: make(chan report, 1<<16)}
}

// listen processes a line of the function's output.
func (r *reports) listen(line string) {
	var of report
	if err := json.Unmarshal([]byte(line), &of); err != nil {
		say("function: %s", line)
		return
	}
	if of.Run == "" {
		r.resumed <- of
		return
	}
	r.of(of.Run) <- of
}

// of returns the channel for the report of a run.
func (r *reports) of(run string) chan report {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.runs[run]
	if !ok {
		c = make(chan report, 1)
		r.runs[run] = c
	}
	return c
}

// forget deletes the channel of a run.
func (r *reports) forget(run string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.runs, run)
}

// errNoReport means that a run failed in the function or was lost.
var errNoReport = fmt.Errorf("no report of a run from the function within %s", runTimeout)

// runTimeout limits the duration of a run. It is longer than the server needs to redeliver a lost message.
const runTimeout = 3 * time.Minute
