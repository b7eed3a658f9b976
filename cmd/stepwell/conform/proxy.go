package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// fault is what happens to calls on their way.
type fault string

const (
	faultNone fault = "plain"
	// faultDoubled sends each call twice at the same time, and returns one of the answers.
	faultDoubled fault = "doubled"
	// faultLost loses every second answer to the calls of a run, and of a step, from the first one on.
	faultLost fault = "lost"
)

// call is a call that came by, and its answer.
type call struct {
	path   string
	header http.Header
	body   []byte
	answer answer
}

// answer is the answer of the function.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// workflow returns the run that the call is for, if it is one of a workflow.
func (c call) workflow() (run string, ok bool) {
	var body struct {
		Type string
		Run  struct{ ID string }
	}
	err := json.Unmarshal(c.body, &body)
	return body.Run.ID, err == nil && body.Type == "workflow"
}

// proxy is between a server and a function.
type proxy struct {
	fault    fault
	function *url.URL
	url      string // of the proxy, with the path of the function, which signatures cover
	client   *http.Client

	mu    sync.Mutex
	calls []call
	lost  map[string]bool // whether the last answer was lost, by the key of run or step
}

// newProxy serves a proxy until the context ends.
func newProxy(ctx context.Context, f fault, function *url.URL) (*proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the server's calls: %w", err)
	}
	at := *function
	at.Scheme, at.Host, at.User = "http", l.Addr().String(), nil
	p := &proxy{fault: f, function: function, url: at.String(), client: &http.Client{}, lost: map[string]bool{}}
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return p, nil
}

// ServeHTTP implements [http.Handler].
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	c := call{path: r.URL.RequestURI(), header: r.Header, body: body}
	send := p.send
	if p.fault == faultDoubled {
		send = p.sendTwice
	}
	c.answer, err = send(r.Context(), c)
	if err != nil || p.loses(r.Header) {
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	for name, values := range c.answer.header {
		w.Header()[name] = values
	}
	w.WriteHeader(c.answer.status)
	_, _ = w.Write(c.answer.body) // the server repeats the call
}

// loses reports whether the answer to a call is lost.
func (p *proxy) loses(h http.Header) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := h.Get("Idempotency-Key")
	p.lost[key] = p.fault == faultLost && !p.lost[key]
	return p.lost[key]
}

// send sends a call to the function.
func (p *proxy) send(ctx context.Context, c call) (answer, error) {
	to := *p.function
	path, err := url.ParseRequestURI(c.path)
	if err != nil {
		return answer{}, fmt.Errorf("the path of the call: %w", err)
	}
	to.Path, to.RawPath, to.RawQuery = path.Path, path.RawPath, path.RawQuery
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(c.body))
	if err != nil {
		return answer{}, fmt.Errorf("pass the call on: %w", err)
	}
	r.Header = c.header.Clone()
	resp, err := p.client.Do(r)
	if err != nil {
		return answer{}, fmt.Errorf("the function does not answer: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, fmt.Errorf("read the function's answer: %w", err)
	}
	return answer{resp.StatusCode, resp.Header, body}, nil
}

// sendTwice sends a call twice at the same time. It waits for both answers, and returns a success if there is one.
func (p *proxy) sendTwice(ctx context.Context, c call) (answer, error) {
	var answers [2]answer
	var errs [2]error
	var both sync.WaitGroup
	for i := range answers {
		both.Go(func() { answers[i], errs[i] = p.send(ctx, c) })
	}
	both.Wait()
	for i := range answers {
		if errs[i] == nil && answers[i].status/100 == 2 {
			return answers[i], nil
		}
	}
	return answers[0], errors.Join(errs[:]...)
}

// ofWorkflows returns the calls of workflows that have come by, by their runs.
func (p *proxy) ofWorkflows() map[string][]call {
	p.mu.Lock()
	defer p.mu.Unlock()
	byRun := map[string][]call{}
	for _, c := range p.calls {
		if run, ok := c.workflow(); ok {
			byRun[run] = append(byRun[run], c)
		}
	}
	return byRun
}
