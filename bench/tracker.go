package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// report is what the function says of what it saw: one line of JSON for each run that completed, and for each message
// to the sink. Times are of the machine's clock, which the bench shares, in nanoseconds.
type report struct {
	Run        string  `json:"run,omitempty"`
	First      int64   `json:"first,omitempty"` // when the first step began
	Done       int64   `json:"done,omitempty"`  // when it was known to be completed
	Steps      int64   `json:"steps,omitempty"` // how long steps took together
	Gaps       []int64 `json:"gaps,omitempty"`  // from the end of each step to the beginning of the next
	Deliveries int     `json:"deliveries,omitempty"`
	Received   int64   `json:"received,omitempty"` // when it was called with a hook's payload

	Sent int64 `json:"sent,omitempty"` // when the message was sent
	At   int64 `json:"at,omitempty"`   // when it came
}

// tracker gathers reports in the function.
type tracker struct {
	mu   sync.Mutex
	out  *json.Encoder
	runs map[string]*tracked
}

type tracked struct {
	report

	last int64 // when the last step ended
}

func newTracker(out io.Writer) *tracker {
	return &tracker{out: json.NewEncoder(out), runs: map[string]*tracked{}}
}

// of is what is known of the run. The caller holds the lock.
func (t *tracker) of(run string) *tracked {
	r, ok := t.runs[run]
	if !ok {
		r = &tracked{report: report{Run: run}}
		t.runs[run] = r
	}
	return r
}

// called notes that the function was called about the run.
func (t *tracker) called(run string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(run).Deliveries++
}

// step notes that a step of the run was executed.
func (t *tracker) step(run string, began, ended time.Time) {
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
}

// received notes that the run got its hook's payload.
func (t *tracker) received(run string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.of(run); r.Received == 0 {
		r.Received = at.UnixNano()
	}
}

// done reports a run that is completed.
func (t *tracker) done(run string, at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.of(run)
	delete(t.runs, run)
	r.Done = at.UnixNano()
	return t.out.Encode(r.report)
}

// sunk reports a message to the sink.
func (t *tracker) sunk(sent int64, at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Encode(report{Sent: sent, At: at.UnixNano()})
}

// flushing writes lines through a buffer that is emptied often: a write of its own for each would be felt.
type flushing struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func newFlushing(w io.Writer) *flushing {
	f := &flushing{w: bufio.NewWriter(w)}
	go func() {
		for range time.Tick(2 * time.Millisecond) {
			f.mu.Lock()
			_ = f.w.Flush() // who reads it is gone, and so are we soon
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

// reports are what has come from the function, for those who wait for it.
type reports struct {
	mu   sync.Mutex
	runs map[string]chan report
	sink chan report
}

func newReports() *reports {
	return &reports{runs: map[string]chan report{}, sink: make(chan report, 1<<16)}
}

// listen takes in a line of the function's.
func (r *reports) listen(line string) {
	var of report
	if err := json.Unmarshal([]byte(line), &of); err != nil {
		say("function: %s", line)
		return
	}
	if of.Run == "" {
		r.sink <- of
		return
	}
	r.of(of.Run) <- of
}

// of is where the report of the run comes, or has come already.
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

// forget is for runs whose report has been taken.
func (r *reports) forget(run string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.runs, run)
}

// errNoReport is a run that went wrong in the function, or got lost.
var errNoReport = fmt.Errorf("the function has said nothing of a run for %s", runPatience)

// runPatience is how long a run may take: longer than the server takes to deliver again what got lost.
const runPatience = 3 * time.Minute
