package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// requestTimeout bounds a request that is not a stream. It exceeds the server's longest long poll, one minute.
const requestTimeout = 2 * time.Minute

// client calls the API of one server.
type client struct {
	base *url.URL
	key  string
	http *http.Client
}

func newClient(base, key string) (*client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usageErrorf("invalid server address %q: want one such as http://127.0.0.1:8788 in --url or STEPWELL_URL",
			base)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return &client{base: u, key: key, http: &http.Client{CheckRedirect: refuseRedirect}}, nil
}

// refuseRedirect prevents a redirect from turning a write into a read, or sending the key to another server.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// path returns an API path with the segments escaped.
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// send sends a request and returns a 2xx response, whose body the caller must close. Any other response is an
// error with the exit code of its status; no response is an error with [ExitUnreachable].
func (c *client) send(ctx context.Context, method, path string, header http.Header, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, content)
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }()
		return nil, newServerError(req, resp)
	}
	return resp, nil
}

// do sends a request and returns the response's body: JSON, or nil if it is empty.
func (c *client) do(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := c.send(limited, method, path, nil, body)
	if err != nil {
		return nil, orInterrupted(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, orInterrupted(ctx, c.unreachable(limited, err))
	}
	if len(answer) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(answer, new(json.RawMessage)); err != nil {
		return nil, fmt.Errorf("the response of %s is not JSON: is it a Stepwell server? (%w)", c.base.Redacted(), err)
	}
	return answer, nil
}

// call is [client.do] that also decodes the response.
func (c *client) call(ctx context.Context, method, path string, body, into any) (json.RawMessage, error) {
	raw, err := c.do(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	return raw, c.decode(raw, into)
}

// get reads and decodes an object.
func (c *client) get(ctx context.Context, path string, query url.Values, into any) (json.RawMessage, error) {
	return c.call(ctx, http.MethodGet, withQuery(path, query), nil, into)
}

// delete deletes an object.
func (c *client) delete(ctx context.Context, path string) error {
	_, err := c.do(ctx, http.MethodDelete, path, nil)
	return err
}

func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

func (c *client) decode(raw json.RawMessage, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("unexpected response of %s: %w", c.base.Redacted(), err)
	}
	return nil
}

// orInterrupted returns err, or [ErrInterrupted] if a signal caused it.
func orInterrupted(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return ErrInterrupted
	}
	return err
}

// unreachable wraps the error of a missing or incomplete response.
func (c *client) unreachable(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no response within %s", requestTimeout)
	}
	return exitError{ExitUnreachable, fmt.Errorf(
		"no response from %s: is the server running? set its address with --url or STEPWELL_URL (%w)",
		c.base.Redacted(), err)}
}
