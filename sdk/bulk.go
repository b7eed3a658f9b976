package stepwell

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// mostAtOnce is how many requests start runs, or wait for some, at the same time.
	mostAtOnce = 64
	// turn is how long a run is waited for while others wait for their turn.
	turn = time.Second
)

// StartAll starts a run for each input, up to 64 at the same time, and returns their handles in the order of the
// inputs. Each returns the options of the run with the index; nil gives none. After an error it starts no more: the
// handles of those that it has not started are nil. To repeat it safely, give each run an idempotency key with [Once].
func (d *Workflow[I, O]) StartAll(
	ctx context.Context, c *Client, inputs []I, each func(index int) []StartOption,
) ([]*Run[O], error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	runs, next := make([]*Run[O], len(inputs)), make(chan int)
	var starting sync.WaitGroup
	for range min(mostAtOnce, len(inputs)) {
		starting.Go(func() {
			for i := range next {
				var options []StartOption
				if each != nil {
					options = each(i)
				}
				run, err := d.Start(ctx, c, inputs[i], options...)
				if err != nil {
					cancel(err)
				}
				runs[i] = run
			}
		})
	}
	for i := 0; i < len(inputs) && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	starting.Wait()
	return runs, context.Cause(ctx)
}

// RunEnd is the end of one of several runs.
type RunEnd[O any] struct {
	// Index is that of the run's handle.
	Index  int
	Run    *Run[O]
	Output O
}

// Ends yields the runs as they end, each once, with its output, or the error that [Run.Wait] returns. It waits for up
// to 64 at the same time: of 640 runs, one that has ended is found after about ten seconds at the latest. When ctx
// ends, all that are left have its error. Handles that are nil are left out.
func Ends[O any](ctx context.Context, runs []*Run[O]) iter.Seq2[RunEnd[O], error] {
	return func(yield func(RunEnd[O], error) bool) {
		left, ended, over := make(chan *awaited[O], len(runs)), make(chan *awaited[O]), make(chan struct{})
		for i, run := range runs {
			if run != nil {
				left <- &awaited[O]{RunEnd: RunEnd[O]{Index: i, Run: run}, path: run.path("wait")}
			}
		}
		ctx, cancel := context.WithCancel(ctx)
		var waiters sync.WaitGroup
		defer waiters.Wait()
		defer cancel()
		defer close(over)
		all := len(left)
		for range min(mostAtOnce, all) {
			waiters.Go(func() { awaitTurns(ctx, left, ended, over) })
		}
		for range all {
			if w := <-ended; !yield(w.RunEnd, w.err) {
				return
			}
		}
	}
}

// awaited is a run that is waited for.
type awaited[O any] struct {
	RunEnd[O]

	path string // of the request that waits
	err  error
}

// once waits for the end of the run, not longer than so long, and reports whether it knows that or an error.
func (w *awaited[O]) once(ctx context.Context, longest time.Duration) (ended bool) {
	var info RunDetails
	w.err = w.Run.c.do(ctx, apiRequest{
		method: http.MethodGet, path: w.path, query: url.Values{"timeout": {longest.String()}}, poll: longest,
	}, &info)
	if w.err != nil {
		return true
	}
	w.path = apiPath("runs", info.ID, "wait") // of the run as which it has continued
	w.Output, ended, w.err = w.Run.ended(info)
	return ended
}

// awaitTurns waits for runs, one after the other, and sends those that have ended. While others wait for their turn, it
// does not wait for one of them for long.
func awaitTurns[O any](ctx context.Context, left, ended chan *awaited[O], over chan struct{}) {
	for {
		var w *awaited[O]
		select {
		case w = <-left:
		case <-over:
			return
		}
		longest := poll
		if len(left) > 0 {
			longest = turn
		}
		if !w.once(ctx, longest) {
			left <- w // there is room for all
			continue
		}
		select {
		case ended <- w:
		case <-over:
			return
		}
	}
}

// WaitAll waits for the end of all runs, and returns their outputs in the order of their handles. The error joins those
// of all runs without an output.
func WaitAll[O any](ctx context.Context, runs []*Run[O]) ([]O, error) {
	outputs, errs := make([]O, len(runs)), make([]error, len(runs))
	for end, err := range Ends(ctx, runs) {
		outputs[end.Index], errs[end.Index] = end.Output, err
	}
	return outputs, errors.Join(errs...)
}
