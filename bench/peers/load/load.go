// Package load lets the bench measure a peer: it serves an HTTP API by which the bench has runs started and awaited, in
// the process of the peer's app.
package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Nap is how long a run with a signal sleeps when the signal has come.
const Nap = 50 * time.Millisecond

// Input is the input of all workflows: a number of steps, one after the other or all at once, or a signal. Each step
// returns 1, and the workflow the sum.
type Input struct {
	Steps  int
	AtOnce bool
	Signal bool // waits for a signal, and then for a Nap
}

// Serve prints "listening" and the port, and serves the API until the process gets SIGTERM. Run starts a run, sends the
// signal if the input wants one, and waits for the result.
func Serve(run func(ctx context.Context, in Input) (int, error)) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /measure/runs", func(w http.ResponseWriter, r *http.Request) {
		got, err := measure(r, run)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(got) // the bench may be gone
	})
	fmt.Println("listening", l.Addr().(*net.TCPAddr).Port)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// measured is the answer. Latencies are in milliseconds.
type measured struct {
	Seconds   float64   `json:"seconds"`
	Latencies []float64 `json:"latencies"`
}

// measure lets each of a number of clients repeat a run for the window.
func measure(r *http.Request, run func(context.Context, Input) (int, error)) (got measured, err error) {
	var want struct {
		Workflow           string
		InFlight, WindowMs int
	}
	if err := json.NewDecoder(r.Body).Decode(&want); err != nil {
		return got, fmt.Errorf("read the request: %w", err)
	}
	in, err := inputOf(want.Workflow)
	if err != nil {
		return got, err
	}
	var mu sync.Mutex
	var working sync.WaitGroup
	began := time.Now()
	for range want.InFlight {
		working.Go(func() {
			for time.Since(began) < time.Duration(want.WindowMs)*time.Millisecond && r.Context().Err() == nil {
				at := time.Now()
				sum, e := run(r.Context(), in)
				took := time.Since(at)
				if e == nil && sum != in.Steps {
					e = fmt.Errorf("a run of %s returned %d", want.Workflow, sum)
				}
				mu.Lock()
				got.Latencies, err = append(got.Latencies, took.Seconds()*1e3), errors.Join(err, e)
				mu.Unlock()
				if e != nil {
					return
				}
			}
		})
	}
	working.Wait()
	got.Seconds = time.Since(began).Seconds()
	return got, err
}

// inputOf parses the name of a workflow: seq-3, wide-50, signal.
func inputOf(workflow string) (in Input, err error) {
	if workflow == "signal" {
		return Input{Signal: true}, nil
	}
	var kind string
	if _, err := fmt.Sscanf(workflow, "%3s-%d", &kind, &in.Steps); err == nil && kind == "seq" {
		return in, nil
	}
	if _, err := fmt.Sscanf(workflow, "wide-%d", &in.Steps); err != nil {
		return in, fmt.Errorf("unknown workflow %q", workflow)
	}
	in.AtOnce = true
	return in, nil
}
