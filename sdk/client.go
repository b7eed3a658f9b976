package stepwell

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/api"
)

// Client calls a server's API. It is safe for concurrent use.
//
// All its requests are safe to repeat, since those that write have an ID, and it repeats them if no answer comes or the
// server asks for it: up to eight times, with random pauses that grow to five seconds, or those of Retry-After. What
// waits for a run or follows its log is repeated until the context ends.
type Client struct{ api *api.Client }

// ClientConfig says which server a client calls.
type ClientConfig struct {
	// URL is the server's address, such as https://stepwell.example.com.
	URL string
	// APIKey is a key of the project; its role decides what the client can do. Servers without keys need none.
	APIKey string
	// HTTP sends the requests; [http.DefaultClient] by default. It must not limit the time of a request to less than a
	// minute, which is how long an answer may take when a run is waited for.
	HTTP *http.Client
}

// ClientFromEnv returns the configuration of the environment: STEPWELL_URL, which is http://127.0.0.1:8788 by default,
// and STEPWELL_API_KEY.
func ClientFromEnv() ClientConfig {
	return ClientConfig{
		URL:    cmp.Or(os.Getenv("STEPWELL_URL"), "http://127.0.0.1:8788"),
		APIKey: os.Getenv("STEPWELL_API_KEY"),
	}
}

// Connect returns a client. It sends nothing yet.
func Connect(config ClientConfig) (*Client, error) {
	c, err := api.New(config.URL, config.APIKey, cmp.Or(config.HTTP, http.DefaultClient))
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// APIError is the error of a request that the server refused.
type APIError struct {
	// Status is the HTTP status.
	Status int
	// Code is one of the codes in docs/api.md; empty if something in front of the server refused the request.
	Code, Message string
	// RequestID finds the request in the server's log.
	RequestID string
	// Details depend on the code; nil if there are none.
	Details json.RawMessage
	// RetryAfter is how long the server asks to wait, if the request can succeed later; otherwise 0.
	RetryAfter time.Duration
	// Uncertain means that the answer to an earlier attempt of the request was lost, so that one may have succeeded. A
	// hook, for example, is not found when the payload that arrived was the last one of its run.
	Uncertain bool

	err error
}

// Error implements error.
func (e *APIError) Error() string { return e.err.Error() }

// Unwrap returns the reason why the request was not repeated until it succeeded, such as the end of the context.
func (e *APIError) Unwrap() error { return e.err }

// public turns an error of the API into an [*APIError].
func public(err error) error {
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return &APIError{e.Status, e.Code, e.Message, e.RequestID, e.Details, e.RetryAfter, e.Uncertain, err}
	}
	return err
}

// do sends a request and decodes the answer into a value unless that is nil.
func (c *Client) do(ctx context.Context, r api.Request, into any) error {
	return public(c.api.Do(ctx, r, into))
}

func (c *Client) get(ctx context.Context, path string, query url.Values, into any) error {
	return c.do(ctx, api.Request{Method: http.MethodGet, Path: path, Query: query}, into)
}

func (c *Client) post(ctx context.Context, path string, body, into any) error {
	return c.do(ctx, api.Request{Method: http.MethodPost, Path: path, Body: body}, into)
}

// pages yields the entries of a list, page by page.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			var page struct {
				Data   []T
				Cursor string
			}
			if err := c.get(ctx, path, query, &page); err != nil {
				yield(*new(T), err)
				return
			}
			for _, v := range page.Data {
				if !yield(v, nil) {
					return
				}
			}
			if page.Cursor == "" {
				return
			}
			query.Set("cursor", page.Cursor)
		}
	}
}

// RunStatus is the state of a run.
type RunStatus string

// The states of a run. The last three are final.
const (
	StatusPending   RunStatus = "pending"
	StatusRunning   RunStatus = "running"
	StatusCompleted RunStatus = "completed"
	StatusFailed    RunStatus = "failed"
	StatusCancelled RunStatus = "cancelled"
)

// Filter says which runs a list has. Empty fields do not restrict it.
type Filter struct {
	Workflow      string
	Status        RunStatus
	Key, ParentID string
	// CreatedAfter is the first time that counts, and CreatedBefore the first that does not.
	CreatedAfter, CreatedBefore time.Time
	// Attr has attributes that a run must have, up to 8.
	Attr map[string]string
	// OldestFirst reverses the order.
	OldestFirst bool
}

func (f Filter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"workflow": f.Workflow, "status": string(f.Status), "key": f.Key, "parentId": f.ParentID,
		"createdAfter": timeOrEmpty(f.CreatedAfter), "createdBefore": timeOrEmpty(f.CreatedBefore),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for key, value := range f.Attr {
		q.Set("attribute."+key, value)
	}
	if f.OldestFirst {
		q.Set("order", "asc")
	}
	return q
}

func timeOrEmpty(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// Runs yields runs, newest first, without their inputs and outputs. It reads page by page, as the loop goes on. An
// error is the last element.
func (c *Client) Runs(ctx context.Context, f Filter) iter.Seq2[RunDetails, error] {
	return pages[RunDetails](ctx, c, api.Path("runs"), f.query())
}

// requestID returns an ID that makes a request safe to repeat.
func requestID() string { return rand.Text() }
