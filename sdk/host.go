package stepwell

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// defaultClient keeps up to 256 connections to a server open. [http.DefaultClient] closes all but two, and many runs
// that write at the same time would open a connection for each request.
var defaultClient = sync.OnceValue(func() *http.Client {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program has replaced it
		return http.DefaultClient
	}
	t = t.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 256
	return &http.Client{Transport: t}
})

// errStale ends a call whose answer the server would refuse: it has called another function instead.
var errStale = errors.New("the call is over")

// callHost writes to a run's log and reads it during a call, by the credential of the call.
type callHost struct {
	client *Client
	run    string // path of the run
	header http.Header
	lost   func(cause error) // ends the steps of the call
	// exchange carries out commands without a request; nil if the server is not in this process.
	exchange func(ctx context.Context, after int64, commands []byte) ([]byte, error)
}

// exchanger is the transport of a server in the same process. Exchange carries out what would be a request with the
// commands of a call, and returns its answer.
type exchanger interface {
	Exchange(ctx context.Context, run, call string, after int64, commands []byte) ([]byte, error)
}

// newHost returns the host of a call; nil if it cannot be reached.
func (a *App) newHost(c call, lost func(error)) *callHost {
	server := a.serving.server
	if server == "" && a.serving.signed {
		server = strings.TrimSuffix(c.HooksURL, "hooks/")
	}
	client, err := NewClient(ClientConfig{server, c.Token, a.serving.http, a.codec})
	if err != nil || c.Token == "" {
		return nil
	}
	h := &callHost{client, apiPath("runs", c.Run.ID), http.Header{"Stepwell-Invocation": {c.Invocation}}, lost, nil}
	if x, ok := a.serving.http.Transport.(exchanger); ok {
		h.exchange = func(ctx context.Context, after int64, commands []byte) ([]byte, error) {
			return x.Exchange(ctx, c.Run.ID, c.Invocation, after, commands)
		}
	}
	return h
}

// Commit implements engine.Host. Its requests can be repeated, since commands are idempotent.
func (h *callHost) Commit(ctx context.Context, a engine.Answer, after int64) (events []engine.Event, err error) {
	var page struct {
		Seq    int64
		Events []loggedEvent
		More   bool
	}
	r := apiRequest{
		method: http.MethodPost, path: h.run + "/commands", query: url.Values{"after": {strconv.FormatInt(after, 10)}},
		body: answer{Commands: orEmpty(a.Commands), Open: a.Open},
	}
	if h.exchange != nil {
		r.direct = func(ctx context.Context, body []byte) ([]byte, error) { return h.exchange(ctx, after, body) }
	}
	err = h.do(ctx, r, &page)
	if err != nil {
		return nil, err
	}
	events = make([]engine.Event, len(page.Events))
	for i := range page.Events {
		if err := h.readPayload(ctx, &page.Events[i]); err != nil {
			return nil, err
		}
		events[i] = page.Events[i].Event
	}
	if !page.More {
		return events, nil
	}
	rest, err := h.Read(ctx, page.Seq)
	return append(events, rest...), err
}

// loggedEvent is an event in a list.
type loggedEvent struct {
	engine.Event
	Truncated bool `json:"truncated"`
}

// listenEvery is how often the log is read while inline steps are in progress.
const listenEvery = 750 * time.Millisecond

// Read implements engine.Host.
func (h *callHost) Read(ctx context.Context, after int64) (events []engine.Event, err error) {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {"1000"}, "payloads": {"true"}}
	for e, err := range pages[loggedEvent](ctx, h.get, h.run+"/events", query) {
		if err == nil {
			err = h.readPayload(ctx, &e)
		}
		if err != nil {
			return nil, err
		}
		events = append(events, e.Event)
	}
	return events, nil
}

// readPayload reads the payload of an event if the list has left it out because of its size.
func (h *callHost) readPayload(ctx context.Context, e *loggedEvent) error {
	if !e.Truncated {
		return nil
	}
	return h.get(ctx, fmt.Sprintf("%s/events/%d/payload", h.run, e.Seq), nil, &e.Payload)
}

func (h *callHost) get(ctx context.Context, path string, query url.Values, into any) error {
	return h.do(ctx, apiRequest{method: http.MethodGet, path: path, query: query}, into)
}

// do sends a request. If the server refuses it because the call is over, it ends the steps of the call.
func (h *callHost) do(ctx context.Context, r apiRequest, into any) error {
	r.header = h.header
	err := h.client.do(ctx, r, into)
	if e, ok := errors.AsType[*APIError](err); ok && (e.Status == http.StatusGone || e.Code == "stale_invocation") {
		h.lost(ErrRunEnded)
		return errStale
	}
	return err
}

// orEmpty returns a list that encodes as a list, not as null.
func orEmpty(list []any) []any {
	if list == nil {
		return []any{}
	}
	return list
}
