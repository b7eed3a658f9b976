package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// client calls a server.
type client struct {
	url, key string
	exchange exchanger
}

// exchanger sends a request and returns the answer, whatever its status. It fails with [context.DeadlineExceeded] when
// the time of the context is over.
type exchanger func(ctx context.Context, method, url string, header http.Header, body []byte) (int, []byte, error)

// requestTimeout is for requests that wait for a run as well.
const requestTimeout = 90 * time.Second

// maxConnections is how many connections a client keeps.
const maxConnections = 4096

// newClient makes a client that exchanges requests by the means of Go itself.
func newClient(url, key string) *client { return &client{url, key, standard(requestTimeout)} }

// standard is Go's own client; a timeout of 0 is none.
func standard(timeout time.Duration) exchanger {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, maxConnections // no limit, and all kept
	transport.Proxy = nil
	transport.DisableCompression = true // as if both sides were asked to, and cheaper
	c := &http.Client{Transport: transport, Timeout: timeout}
	return func(ctx context.Context, method, url string, header http.Header, body []byte) (int, []byte, error) {
		r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
		if err != nil {
			return 0, nil, err //nolint:wrapcheck // call says what it was about
		}
		r.Header = header
		answer, err := c.Do(r)
		if err != nil {
			return 0, nil, err //nolint:wrapcheck // call says what it was about
		}
		defer func() { _ = answer.Body.Close() }()
		got, err := io.ReadAll(answer.Body)
		return answer.StatusCode, got, err //nolint:wrapcheck // call says what it was about
	}
}

// statusError is an answer that is none of 2xx.
type statusError struct {
	what   string
	status int
	body   []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d: %.200s", e.what, e.status, e.body)
}

// call makes a request and returns the body of its answer.
func (c *client) call(ctx context.Context, method, path string, header http.Header, body []byte) ([]byte, error) {
	if header == nil {
		header = http.Header{}
	}
	header.Set("Authorization", "Bearer "+c.key)
	status, got, err := c.exchange(ctx, method, c.url+path, header, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if status/100 != 2 {
		return nil, &statusError{method + " " + path, status, got}
	}
	return got, nil
}

// json calls what takes and answers JSON; either may be nil.
func (c *client) json(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	got, err := c.call(ctx, method, path, http.Header{"Content-Type": {"application/json"}}, body)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(got, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// deploy registers where the functions of a deployment are.
func (c *client) deploy(ctx context.Context, id, at string) error {
	return c.json(ctx, http.MethodPut, "/v1/deployments/"+url.PathEscape(id), map[string]string{"url": at}, nil)
}

// runAnswer is what the bench needs to know of a run.
type runAnswer struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// startRun starts a run that the server continues.
func (c *client) startRun(ctx context.Context, workflow string) (string, error) {
	var run runAnswer
	err := c.json(ctx, http.MethodPost, "/v1/runs", map[string]any{
		"workflow": workflow, "deployment": contractDeployment, "input": []int{1, 2},
	}, &run)
	return run.ID, err
}

// awaitRun returns when the run has ended.
func (c *client) awaitRun(ctx context.Context, id string) error {
	for {
		var run runAnswer
		if err := c.json(ctx, http.MethodGet, "/v1/runs/"+id+"/wait?timeout=60s", nil, &run); err != nil {
			return err
		}
		switch run.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("run %s is %s", id, run.Status)
		}
	}
}
