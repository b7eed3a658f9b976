package stepwell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// defaultSlots is how many calls a worker makes at a time.
	defaultSlots = 100
	// idlePoll is how long the server waits for a call while none is in hand. While there are calls, a poll must come
	// every second: patience is how long its answer may take then, and longestRetry how long the pause after a failure is.
	idlePoll, patience, longestRetry = 20 * time.Second, 10 * time.Second, time.Second
)

// Work makes the app a worker, until ctx ends: it asks the server of the configuration or STEPWELL_URL for calls, and
// makes up to Slots of them at a time. Nothing has to reach the program, so it needs no port, no URL and no signing
// keys, only the key STEPWELL_API_KEY of the role worker. It registers the app: new runs of its workflows go to it.
//
// The server makes the calls of a worker that dies, or is silent for three seconds, by another one. What the silent one
// still sends is refused. When ctx ends, Work takes no more calls, lets those in hand finish for 20 seconds, and gives
// the others back; see [App.Shutdown]. It also ends when the server refuses the worker.
func (a *App) Work(ctx context.Context) error {
	w, err := a.newWorker()
	if err != nil {
		return err
	}
	polling, enough := context.WithCancel(context.WithoutCancel(ctx))
	defer enough()
	refused := make(chan error, 1)
	go func() { refused <- w.poll(polling) }()
	select {
	case err = <-refused:
	case <-ctx.Done():
		w.close(polling)
	}
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptsFinish)
	defer cancel()
	if err := a.Shutdown(finishing); err != nil {
		a.logger.WarnContext(ctx, "calls were cut short", "error", err)
	}
	w.await(lastAnswers) // those that are given back
	return err
}

// worker asks for calls and makes them.
type worker struct {
	app          *App
	client       *Client
	deployment   string
	registration json.RawMessage

	serving sync.WaitGroup

	mu    sync.Mutex
	slots int
	hand  map[string]context.CancelCauseFunc // ends the calls in hand, by invocation
}

func (a *App) newWorker() (*worker, error) {
	config := ClientConfigFromEnv()
	if a.serving.server == "" {
		a.serving.server = config.URL
	}
	config.URL, config.HTTP = a.serving.server, a.serving.http
	c, err := NewClient(config)
	if err != nil {
		return nil, err
	}
	id, registration, err := a.Registration("")
	if err != nil {
		return nil, err
	}
	return &worker{
		app: a, client: c, deployment: id, registration: registration, slots: a.slots,
		hand: map[string]context.CancelCauseFunc{},
	}, nil
}

// close ends the poll that waits, by another one that wants no calls, as all that follow.
func (w *worker) close(ctx context.Context) {
	w.mu.Lock()
	w.slots = 0
	w.mu.Unlock()
	if got, err := w.ask(ctx, 0, nil); err == nil {
		w.take(ctx, got)
	}
}

// await waits until no call is in hand, not longer than so long.
func (w *worker) await(longest time.Duration) {
	idle := make(chan struct{})
	go func() {
		w.serving.Wait()
		close(idle)
	}()
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// workBody is the request of a worker.
type workBody struct {
	Deployment   string          `json:"deployment"`
	Worker       string          `json:"worker"`
	Slots        int             `json:"slots"`
	Wait         string          `json:"wait"`
	Calls        []string        `json:"calls"`
	Registration json.RawMessage `json:"registration,omitempty"`
}

// taken is what a worker gets.
type taken struct {
	Calls []struct {
		Headers map[string]string
		Seen    int64
		Body    json.RawMessage
	}
	Over []string
}

// poll asks for calls until ctx ends, or the server refuses that for good.
func (w *worker) poll(ctx context.Context) error {
	registration, wait := w.registration, time.Duration(0)
	for failures := 0; ; {
		got, err := w.ask(ctx, wait, registration)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if registration != nil {
				w.app.logger.InfoContext(ctx, "working", "deployment", w.deployment)
			}
			failures, registration, wait = 0, nil, idlePoll
			w.take(ctx, got)
		case !transient(err):
			return fmt.Errorf("ask for calls of %s: %w", w.deployment, err)
		default:
			w.app.logger.WarnContext(ctx, "ask for calls", "deployment", w.deployment, "error", err)
			failures++
			w.pause(ctx, failures)
		}
	}
}

// ask sends one request for calls, for which the server waits.
func (w *worker) ask(ctx context.Context, wait time.Duration, registration json.RawMessage) (got taken, err error) {
	w.mu.Lock()
	b := workBody{w.deployment, w.app.serving.process, w.slots, wait.String(), []string{}, registration}
	for id := range w.hand {
		b.Calls = append(b.Calls, id)
	}
	w.mu.Unlock()
	longest := wait + patience
	if len(b.Calls) > 0 {
		longest = patience
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	text, err := json.Marshal(b)
	if err != nil {
		return taken{}, fmt.Errorf("encode the request: %w", err)
	}
	r := apiRequest{method: http.MethodPost, path: apiPath("work"), body: b, poll: wait, sealed: true}
	if err = w.client.once(ctx, r, text, &got); errors.Is(err, context.DeadlineExceeded) {
		err = w.client.lost(err)
	}
	return got, err
}

// pause waits after a failure, not long while calls are in hand.
func (w *worker) pause(ctx context.Context, failures int) {
	pause := w.client.pause(failures)
	w.mu.Lock()
	if len(w.hand) > 0 {
		pause = min(pause, longestRetry)
	}
	w.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// take begins the calls that a request has brought, and ends those that are over.
func (w *worker) take(ctx context.Context, got taken) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range got.Over {
		if end := w.hand[id]; end != nil {
			end(context.Canceled)
		}
	}
	for _, t := range got.Calls {
		c, err := w.app.decodeCall(t.Body)
		if err != nil {
			w.app.logger.ErrorContext(ctx, "read a call", "error", err) // the server makes it again
			continue
		}
		c.trace = TraceContext{t.Headers["Traceparent"], t.Headers["Tracestate"]}
		called, end := context.WithCancelCause(ctx)
		w.hand[c.Invocation] = end
		w.serving.Go(func() {
			defer w.drop(c.Invocation)
			w.serve(called, c, t.Seen)
		})
	}
}

// drop ends what the worker has to do with a call.
func (w *worker) drop(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end := w.hand[id]; end != nil {
		end(nil)
	}
	delete(w.hand, id)
}

// serve makes a call and delivers the answer. The context ends when the call is over.
func (w *worker) serve(ctx context.Context, c call, seen int64) {
	answer := shutdownReply()
	working, end, ok := w.app.calls.begin(ctx)
	if ok {
		defer end()
		answer = w.app.reply(working, c)
	}
	host := w.app.newHost(c, func(error) {})
	if host == nil {
		w.app.logger.ErrorContext(ctx, "a call has no token", "run", c.Run.ID)
		return
	}
	err := deliver(ctx, func(ctx context.Context) error { return host.answer(ctx, answer, seen) })
	if isRefused(err) {
		w.app.logger.WarnContext(ctx, "an answer was refused", "run", c.Run.ID, "error", err)
	}
}
