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

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
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
	return c.doWith(ctx, method, path, nil, body)
}

// doWith is [client.do] with a header.
func (c *client) doWith(
	ctx context.Context, method, path string, header http.Header, body any,
) (json.RawMessage, error) {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := c.send(limited, method, path, header, body)
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

// Exit codes of commands.
const (
	ExitError       = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitConflict    = 4
	ExitDenied      = 5
	ExitUnreachable = 6
	ExitFailed      = 10
	ExitCancelled   = 11
	ExitTimeout     = 12
	ExitInterrupted = 130
)

// Exit is an exit code and its meaning.
type Exit struct {
	Code    int
	Meaning string
}

// Exits lists all exit codes, for --help and docs/cli.md.
var Exits = []Exit{
	{0, "Success; the awaited run completed, or answered."},
	{ExitError, "Failure without a more specific code."},
	{ExitUsage, "Invalid command line or request."},
	{ExitNotFound, "The run, hook, deployment, … does not exist."},
	{ExitConflict, "Not possible in the current state: a conflict, or the run has ended."},
	{ExitDenied, "The API key is missing, wrong, or lacks permission."},
	{ExitUnreachable, "The server is unreachable or overloaded."},
	{ExitFailed, "The awaited run failed, or refused the message."},
	{ExitCancelled, "The awaited run was cancelled."},
	{ExitTimeout, "The awaited run did not end, or answer, in time."},
	{ExitInterrupted, "Interrupted while waiting or following."},
}

// exitError is an error with an exit code.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

// ErrInterrupted means that a signal ended the command. It need not be printed.
var ErrInterrupted error = exitError{ExitInterrupted, errors.New("interrupted")}

// usageErrorf returns a usage error that kong cannot detect.
func usageErrorf(format string, a ...any) error { return UsageError(fmt.Errorf(format, a...)) }

// UsageError wraps an error in the command line, whose exit code is [ExitUsage].
func UsageError(err error) error { return exitError{ExitUsage, err} }

// ExitCode returns the exit code of err, or 0 for nil. For joined errors it is the code of the first error that has
// one.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if coded, ok := errors.AsType[exitError](err); ok {
		return coded.code
	}
	return ExitError
}

func exitOfStatus(status int) int {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
		http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return ExitUsage
	case http.StatusUnauthorized, http.StatusForbidden:
		return ExitDenied
	case http.StatusNotFound:
		return ExitNotFound
	case http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed, http.StatusTooEarly:
		return ExitConflict
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ExitUnreachable
	default:
		return ExitError
	}
}

// maxErrorBody limits how many bytes of an error response are read.
const maxErrorBody = 1 << 20

// hints suggest remedies by error code.
var hints = map[string]string{
	"run_not_found":         "stepwell runs list shows the runs",
	"step_not_found":        "stepwell steps list RUN shows the steps",
	"unverified":            "send a signed request to the hook's URL",
	"hook_not_found":        "stepwell hooks list shows the hooks",
	"stream_not_found":      "stepwell streams list RUN shows the streams",
	"deployment_not_found":  "stepwell deployments list shows the deployments",
	"flow_not_found":        "stepwell flows list shows the flows",
	"catalog_not_found":     "stepwell catalogs list shows the catalogs",
	"goals_unreached":       "stepwell catalogs preview shows what is missing",
	"collection_not_found":  "stepwell collections list shows the runs that collect starts",
	"run_collecting":        "stepwell collections show RUN shows what it waits for",
	"limit_not_found":       "stepwell limits list shows the limits",
	"limit_in_use":          "change the policies that name it (stepwell policies list); --force leaves those that wait",
	"policy_not_found":      "stepwell policies list shows the policies",
	"pause_not_found":       "stepwell pauses lists what is paused",
	"workflow_not_found":    "stepwell workflows lists the workflows",
	"schedule_not_found":    "stepwell schedules list shows the schedules",
	"trigger_not_found":     "stepwell triggers list shows the triggers",
	"secret_not_found":      "stepwell secrets list shows the secrets",
	"message_not_found":     "stepwell messages list --state all shows the messages",
	"key_not_found":         "stepwell keys list shows the keys",
	"project_not_found":     "stepwell projects create creates one",
	"signing_key_not_found": "stepwell signing-keys list shows the keys",
	"unauthorized":          "set the key with --api-key or STEPWELL_API_KEY",
	"not_found":             "is the server older than this command?",
}

// newServerError returns the error for a response of the server that is not 2xx: the API's message with a hint and the
// API's code, or else the request and its status.
func newServerError(req *http.Request, resp *http.Response) error {
	text := fmt.Sprintf("%s %s: %s", req.Method, req.URL.Path, resp.Status)
	var body api.Error
	var details struct {
		Faults []api.Fault `json:"faults"`
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if to := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && to != "" {
		text += ": redirects to " + to + ": set this address with --url or STEPWELL_URL?"
	} else if err == nil && json.Unmarshal(data, &body) == nil && body.Error.Message != "" {
		text = body.Error.Message
		if id := runIDOf(req.URL); body.Error.Code == "run_not_found" && id != "" {
			text = "no run " + id + " in this project"
		}
		if hint := hints[body.Error.Code]; hint != "" {
			text += ": " + hint
		}
		if body.Error.Code != "" {
			text += " (" + body.Error.Code + ")"
		}
	}
	text = escape(text)
	if json.Unmarshal(body.Error.Details, &details) == nil && len(details.Faults) > 0 {
		text = "the document has " + counted(len(details.Faults), "fault") + ":"
		for _, f := range details.Faults {
			text += "\n" + faultText(f)
		}
	}
	return exitError{exitOfStatus(resp.StatusCode), errors.New(text)}
}

// runIDOf returns the run ID in a URL's path, or "" if it has none.
func runIDOf(u *url.URL) string {
	_, rest, ok := strings.Cut(u.Path, "/v1/runs/")
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, "/")
	return id
}
