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

// client is an HTTP client of a server.
type client struct {
	url, key string
	exchange exchanger
}

// exchanger sends a request and returns the answer with any status. It fails with [context.DeadlineExceeded] after the
// deadline of the context.
type exchanger func(ctx context.Context, method, url string, header http.Header, body []byte) (int, []byte, error)

// requestTimeout limits all requests, including those that wait for a run.
const requestTimeout = 90 * time.Second

// maxConnections limits the idle connections of a client.
const maxConnections = 4096

// newClient returns a client that uses net/http.
func newClient(url, key string) *client { return &client{url, key, standard(requestTimeout)} }

// standard returns an exchanger that uses net/http. A timeout of 0 means none.
func standard(timeout time.Duration) exchanger {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, maxConnections // keep all idle connections
	transport.Proxy = nil
	transport.DisableCompression = true // compression would cost CPU time
	c := &http.Client{Transport: transport, Timeout: timeout}
	return func(ctx context.Context, method, url string, header http.Header, body []byte) (int, []byte, error) {
		r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
		if err != nil {
			return 0, nil, err //nolint:wrapcheck // call adds method and path
		}
		r.Header = header
		answer, err := c.Do(r)
		if err != nil {
			return 0, nil, err //nolint:wrapcheck // call adds method and path
		}
		defer func() { _ = answer.Body.Close() }()
		got, err := io.ReadAll(answer.Body)
		return answer.StatusCode, got, err //nolint:wrapcheck // call adds method and path
	}
}

// statusError is an answer with a status other than 2xx.
type statusError struct {
	what   string
	status int
	body   []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d: %.200s", e.what, e.status, e.body)
}

// call sends a request and returns the body of the answer.
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

// json sends in and decodes the answer into out. Either may be nil.
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

// deploy sets the URL of a deployment's functions.
func (c *client) deploy(ctx context.Context, id, at string) error {
	return c.json(ctx, http.MethodPut, "/v1/deployments/"+url.PathEscape(id), map[string]string{"url": at}, nil)
}

// putFlow stores a flow.
func (c *client) putFlow(ctx context.Context, document string) error {
	return c.json(ctx, http.MethodPost, "/v1/flows", map[string]string{"document": document}, nil)
}

// runAnswer is the part of a run that the bench needs.
type runAnswer struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// startSignalled starts a run with an inbox, and sends it a message.
func (c *client) startSignalled(ctx context.Context, deployment, workflow string, input any) (string, error) {
	var run runAnswer
	err := c.json(ctx, http.MethodPost, "/v1/runs", map[string]any{
		"workflow": workflow, "deployment": deployment, "input": input, "inbox": []string{signalInbox},
	}, &run)
	if err == nil {
		err = c.json(ctx, http.MethodPost, "/v1/runs/"+run.ID+"/inbox/"+signalInbox, map[string]int{"payload": 1}, nil)
	}
	return run.ID, err
}

// executeRunOn starts a run of a deployment and waits until it has completed, with one request if that is soon.
func (c *client) executeRunOn(ctx context.Context, deployment, workflow string, input any) error {
	body, err := json.Marshal(map[string]any{"workflow": workflow, "deployment": deployment, "input": input})
	if err != nil {
		return fmt.Errorf("start a run: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}, "Prefer": {"wait=60"}}
	got, err := c.call(ctx, http.MethodPost, "/v1/runs", header, body)
	if err != nil {
		return err
	}
	var run runAnswer
	if err := json.Unmarshal(got, &run); err != nil {
		return fmt.Errorf("start a run: %w", err)
	}
	if ended, err := run.ended(); ended {
		return err
	}
	return c.awaitRun(ctx, run.ID)
}

// awaitRun waits until the run has completed.
func (c *client) awaitRun(ctx context.Context, id string) error {
	for {
		var run runAnswer
		if err := c.json(ctx, http.MethodGet, "/v1/runs/"+id+"/wait?timeout=60s", nil, &run); err != nil {
			return err
		}
		if ended, err := run.ended(); ended {
			return err
		}
	}
}

// ended reports whether a run has ended. The error says that it has not completed.
func (r runAnswer) ended() (bool, error) {
	switch r.Status {
	case "completed":
		return true, nil
	case "failed", "cancelled":
		return true, fmt.Errorf("run %s is %s", r.ID, r.Status)
	default:
		return false, nil
	}
}
