package stepwell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/backoff"
)

const (
	// requestAttempts is how often a request is sent at most, unless it is a long poll. With their pauses, the attempts
	// take a quarter of a minute, in which a server restarts.
	requestAttempts = 8
	// firstPause and longestPause bound the pauses between attempts.
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
	// longestRetryAfter is the longest time that the server can ask a client to wait. A request that it asks to repeat
	// later, such as tomorrow, fails.
	longestRetryAfter = 30 * time.Second
	// requestTimeout limits an attempt. A long poll adds the time for which it asks the server to wait.
	requestTimeout = 30 * time.Second
	// longestAnswer is the size limit of an answer in bytes: a run has an input and an output of 16 MiB each.
	longestAnswer = 64 << 20
)

// jittered returns a random pause that doubles with each failure, so that clients do not come back all at once.
func jittered(failures int) time.Duration {
	longest := backoff.Pause(firstPause, longestPause, 2, failures+1)
	return longest/2 + rand.N(longest/2) //nolint:gosec // a pause is no secret
}

// apiPath returns a path of the API from unescaped segments.
func apiPath(segments ...string) string {
	path := "/v1"
	for _, s := range segments {
		path += "/" + url.PathEscape(s)
	}
	return path
}

// apiRequest is a request that is safe to repeat.
type apiRequest struct {
	method, path string
	query        url.Values
	header       http.Header   // besides those of all requests
	body         any           // encoded as JSON; nil for none
	poll         time.Duration // how long the server waits before it answers; 0 if it is no long poll
	sealed       bool          // payloads in the answer stay as they are
	uncertain    bool          // an earlier attempt may have acted
	// direct is tried first; if it fails, the request says what is wrong. It is nil if there is only the request.
	direct func(ctx context.Context, body []byte) (answer []byte, err error)
}

// do sends a request, and decodes the answer into a value unless that is nil. It repeats the request if there is no
// answer, or one that asks for it; a long poll until the context ends. The error is an [*APIError] if the server
// answered, and the context's if that ended first; it then also has the last failure.
func (c *Client) do(ctx context.Context, r apiRequest, into any) error {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		if body, err = c.sealRequest(r, body); err != nil {
			return err
		}
	}
	if r.direct != nil {
		answer, err := r.direct(ctx, body)
		if err == nil {
			return c.decode(r, answer, into)
		}
		r.uncertain = true
	}
	for failures := 0; ; {
		err := c.once(ctx, r, body, into)
		refused, answered := errors.AsType[*APIError](err)
		r.uncertain = r.uncertain || !answered || refused.mayHaveActed()
		if failures++; err == nil || !transient(err) || failures == requestAttempts && r.poll == 0 {
			return err
		}
		if err := c.wait(ctx, failures, err); err != nil {
			return err
		}
	}
}

// once makes one attempt.
func (c *Client) once(ctx context.Context, r apiRequest, body []byte, into any) error {
	limited, cancel := context.WithTimeout(ctx, requestTimeout+r.poll)
	defer cancel()
	resp, err := c.send(limited, r, body)
	if err != nil {
		return orEnded(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, longestAnswer+1))
	if err != nil {
		return orEnded(ctx, c.lost(err))
	}
	if len(answer) > longestAnswer {
		return fmt.Errorf("the answer of %s is larger than %d bytes", c.base.Redacted(), longestAnswer)
	}
	return c.decode(r, answer, into)
}

// decode decodes the answer to a request into a value, unless that is nil.
func (c *Client) decode(r apiRequest, answer []byte, into any) (err error) {
	if into == nil {
		return nil
	}
	if !r.sealed {
		if answer, err = opened(c.codec, answer); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("decode the answer of %s: is it a Stepwell server? (%w)", c.base.Redacted(), err)
	}
	return nil
}

// send sends a request once, and returns an answer with a status 2xx, whose body the caller closes.
func (c *Client) send(ctx context.Context, r apiRequest, body []byte) (*http.Response, error) {
	target := c.base.String() + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("create the request: %w", err)
	}
	maps.Copy(req.Header, r.header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	req.Header.Set("Accept-Encoding", "identity") // a log is read while its run waits, and mostly from nearby
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.lost(err)
	}
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }()
		return nil, newAPIError(r, resp)
	}
	return resp, nil
}

// wait waits before the next attempt, at least as long as the server asked for. The error is the context's, with the
// last failure, if the context ends first.
func (c *Client) wait(ctx context.Context, failures int, last error) error {
	pause := c.pause(failures)
	if e, ok := errors.AsType[*APIError](last); ok {
		pause = max(pause, e.RetryAfter)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return orEnded(ctx, last)
	}
}

// orEnded adds the reason why the context ended, if it did. If that is all, nothing is wrong with the server.
func orEnded(ctx context.Context, err error) error {
	ended := context.Cause(ctx)
	if ended == nil {
		return err
	}
	if lost, ok := errors.AsType[*lostError](err); ok && errors.Is(lost.err, ended) {
		return fmt.Errorf("%w, before %s has answered", ended, lost.server)
	}
	if !errors.Is(err, ended) {
		return fmt.Errorf("%w (%w)", ended, err)
	}
	return err
}
