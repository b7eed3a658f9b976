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

// answerTimeout is how long an answer may take that is not followed. The longest that the server waits itself is a
// minute.
const answerTimeout = 2 * time.Minute

// client calls the API of one server.
type client struct {
	base *url.URL
	key  string
	http *http.Client
}

func newClient(base, key string) (*client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usage("the server's address is %q; want one such as http://127.0.0.1:8788, by --url or STEPWELL_URL",
			base)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return &client{base: u, key: key, http: &http.Client{CheckRedirect: stay}}, nil
}

// stay follows no redirect: a write would become a read, and the key would go where nobody has said.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// path is that of an operation below /v1, of which the segments are escaped.
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// send makes a request and returns its answer if that is 2xx; its body is still to be read. Any other answer is a
// [ServerError], no answer an error of [ExitUnreachable].
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
		return nil, fmt.Errorf("make request: %w", err)
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

// do makes a request and returns its answer, which is nil or JSON.
func (c *client) do(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	resp, err := c.send(limited, method, path, nil, body)
	if err != nil {
		return nil, interrupted(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, interrupted(ctx, c.unreachable(limited, err))
	}
	if len(answer) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(answer, new(json.RawMessage)); err != nil {
		return nil, fmt.Errorf("what %s answers is not JSON: is it a Stepwell server? (%w)", c.base.Redacted(), err)
	}
	return answer, nil
}

// get reads an object.
func (c *client) get(ctx context.Context, path string, query url.Values, into any) (json.RawMessage, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	raw, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	return raw, c.decode(raw, into)
}

func (c *client) decode(raw json.RawMessage, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("what %s answers is not what its API says: %w", c.base.Redacted(), err)
	}
	return nil
}

// interrupted is err, or [ErrInterrupted] if the command was told to end.
func interrupted(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return ErrInterrupted
	}
	return err
}

// unreachable says that there is no answer, or not the whole of one.
func (c *client) unreachable(ctx context.Context, err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", answerTimeout)
	}
	return exitError{ExitUnreachable, fmt.Errorf(
		"nothing answers at %s: is the server running? --url or STEPWELL_URL says where (%w)", c.base.Redacted(), err)}
}
