package stepwell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Server sets the address of the server, to which workflows write during a call, such as https://stepwell.example.com.
// By default it is STEPWELL_URL, and without that the public address that signed calls name. Without any, a call ends
// after each step that is executed inline, and the server calls again.
func Server(address string) AppOption { return func(a *App) { a.serving.server = address } }

// HTTPClient sets the client for requests to the server. By default it is one like [http.DefaultClient] that keeps more
// connections open.
func HTTPClient(c *http.Client) AppOption { return func(a *App) { a.serving.http = c } }

// defaultClient keeps up to 256 connections to a server open. [http.DefaultClient] closes all but two, and many runs
// that write at the same time would open a connection for each request.
var defaultClient = sync.OnceValue(func() *http.Client {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program has replaced it
		return http.DefaultClient
	}
	t = t.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 256
	return &http.Client{
		Transport: t,
		// A redirect would turn a POST into a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
})

// errStale ends a call whose answer the server would refuse: it has called another function instead.
var errStale = errors.New("the call is over")

// callHost writes to a run's log and reads it during a call, by the credential of the call.
type callHost struct {
	http       *http.Client
	run        string // address of the run
	token      string
	invocation string
	lost       func(cause error) // ends the steps of the call
}

// newHost returns the host of a call; nil if it cannot be reached.
func (a *App) newHost(c call, lost func(error)) *callHost {
	server := a.serving.server
	if server == "" && a.serving.signed {
		server = strings.TrimSuffix(c.HooksURL, "hooks/")
	}
	if server == "" || c.Token == "" {
		return nil
	}
	return &callHost{
		a.serving.http, strings.TrimRight(server, "/") + "/v1/runs/" + url.PathEscape(c.Run.ID), c.Token, c.Invocation, lost,
	}
}

// Commit implements engine.Host. It repeats requests that fail for a passing reason, since commands are idempotent.
func (h *callHost) Commit(ctx context.Context, a engine.Answer, after int64) ([]engine.Event, error) {
	body, err := json.Marshal(answer{Commands: orEmpty(a.Commands), Open: a.Open})
	if err != nil {
		return nil, fmt.Errorf("encode the commands: %w", err)
	}
	var page struct {
		Seq    int64
		Events []loggedEvent
		More   bool
	}
	path := h.run + "/commands?after=" + strconv.FormatInt(after, 10)
	if err := h.do(ctx, http.MethodPost, path, body, &page); err != nil {
		return nil, err
	}
	events, err := h.whole(ctx, page.Events)
	if err == nil && page.More {
		var rest []engine.Event
		rest, err = h.read(ctx, page.Seq)
		events = append(events, rest...)
	}
	return events, err
}

// loggedEvent is an event in a list.
type loggedEvent struct {
	engine.Event
	Truncated bool `json:"truncated"`
}

// read returns the events of the log after a position.
func (h *callHost) read(ctx context.Context, after int64) (events []engine.Event, err error) {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {"1000"}, "payloads": {"true"}}
	for {
		var page struct {
			Data   []loggedEvent
			Cursor string
		}
		if err := h.do(ctx, http.MethodGet, h.run+"/events?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		more, err := h.whole(ctx, page.Data)
		if err != nil {
			return nil, err
		}
		events = append(events, more...)
		if page.Cursor == "" {
			return events, nil
		}
		query.Set("cursor", page.Cursor)
	}
}

// whole reads the payloads that a list has left out because of their size.
func (h *callHost) whole(ctx context.Context, listed []loggedEvent) ([]engine.Event, error) {
	events := make([]engine.Event, len(listed))
	for i, e := range listed {
		events[i] = e.Event
		if e.Truncated {
			path := fmt.Sprintf("%s/events/%d/payload", h.run, e.Seq)
			if err := h.do(ctx, http.MethodGet, path, nil, &events[i].Payload); err != nil {
				return nil, err
			}
		}
	}
	return events, nil
}

const (
	// requestAttempts is how often a request is sent, and requestPause the first pause between them, which doubles: the
	// last one is sent after three seconds.
	requestAttempts = 6
	requestPause    = 100 * time.Millisecond
	// requestTime limits an attempt.
	requestTime = 30 * time.Second
)

// do sends a request, again if it fails for a passing reason, and decodes the answer.
func (h *callHost) do(ctx context.Context, method, address string, body []byte, into any) (err error) {
	pause := requestPause
	for n := range requestAttempts {
		if n > 0 {
			if !sleep(ctx, pause) {
				return context.Cause(ctx)
			}
			pause *= 2
		}
		var again bool
		if again, err = h.once(ctx, method, address, body, into); !again {
			return err
		}
	}
	return err
}

// once sends a request. It reports whether to send it again after an error.
func (h *callHost) once(ctx context.Context, method, address string, body []byte, into any) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+h.token)
	req.Header.Set("Stepwell-Invocation", h.invocation)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := h.http.Do(req)
	if err != nil {
		return true, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, longestCall))
	switch {
	case err != nil:
		return true, err
	case resp.StatusCode == http.StatusOK:
		return false, json.Unmarshal(data, into)
	case resp.StatusCode == http.StatusConflict && hasCode(data, "stale_invocation"), resp.StatusCode == http.StatusGone:
		h.lost(ErrRunEnded)
		return false, errStale
	}
	again = resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
	return again, fmt.Errorf("%s %s: %d %s", method, req.URL.Path, resp.StatusCode, data)
}

// hasCode reports whether an answer is an error with the code.
func hasCode(answer []byte, code string) bool {
	var e struct {
		Code  string
		Error struct{ Code string }
	}
	return json.Unmarshal(answer, &e) == nil && (e.Code == code || e.Error.Code == code)
}

// orEmpty returns a list that encodes as a list, not as null.
func orEmpty(list []any) []any {
	if list == nil {
		return []any{}
	}
	return list
}

// sleep waits, and reports false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
