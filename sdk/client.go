package stepwell

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Client calls a server's API. It is safe for concurrent use.
//
// All its requests are safe to repeat, since those that write have an ID, and it repeats them if no answer comes or the
// server asks for it: up to eight times, with random pauses that grow to five seconds, or those of Retry-After. What
// waits for a run is repeated until the context ends.
type Client struct {
	base  *url.URL
	key   string
	http  *http.Client
	codec Codec
	pause func(failures int) time.Duration // how long to wait after a number of failures in a row
}

// ClientConfig says which server a client calls.
type ClientConfig struct {
	// URL is the server's address, such as https://stepwell.example.com.
	URL string
	// APIKey is a key of the project; its role decides what the client can do. Servers without keys need none.
	APIKey string
	// HTTP sends the requests. By default it is a client like [http.DefaultClient] that keeps more connections open. It
	// must not limit the time of a request to less than a minute, which is how long an answer may take when a run is
	// waited for.
	HTTP *http.Client
	// Codec transforms payloads before they leave the process, as that of the app does; nil by default.
	Codec Codec
}

// ClientConfigFromEnv returns the configuration of the environment: STEPWELL_URL, which is http://127.0.0.1:8788 by
// default, and STEPWELL_API_KEY.
func ClientConfigFromEnv() ClientConfig {
	return ClientConfig{
		URL:    cmp.Or(os.Getenv("STEPWELL_URL"), "http://127.0.0.1:8788"),
		APIKey: os.Getenv("STEPWELL_API_KEY"),
	}
}

// NewClient returns a client. It sends nothing yet.
func NewClient(config ClientConfig) (*Client, error) {
	u, err := url.Parse(config.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not the address of a server, such as http://127.0.0.1:8788", config.URL)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	own := *cmp.Or(config.HTTP, defaultClient())
	// A redirect would turn a POST into a GET, or send the key to another server.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{u, config.APIKey, &own, config.Codec, jittered}, nil
}

func (c *Client) get(ctx context.Context, path string, query url.Values, into any) error {
	return c.do(ctx, apiRequest{method: http.MethodGet, path: path, query: query}, into)
}

func (c *Client) post(ctx context.Context, path string, body any) error {
	return c.do(ctx, apiRequest{method: http.MethodPost, path: path, body: body}, nil)
}

// getter reads something from the API.
type getter func(ctx context.Context, path string, query url.Values, into any) error

// pages yields the entries of a list, page by page.
func pages[T any](ctx context.Context, get getter, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := maps.Clone(query) // each loop begins with the first page
		for {
			var page struct {
				Data   []T
				Cursor string
			}
			if err := get(ctx, path, query, &page); err != nil {
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
	// StatusCollecting is that of a run that has not started because it waits for further starts: see [Debounced] and
	// [StartBatched].
	StatusCollecting RunStatus = "collecting"

	StatusPending   RunStatus = "pending"
	StatusRunning   RunStatus = "running"
	StatusCompleted RunStatus = "completed"
	StatusFailed    RunStatus = "failed"
	StatusCancelled RunStatus = "cancelled"
)

// RunFilter says which runs a list has, or which are changed. Empty fields do not restrict it.
type RunFilter struct {
	Workflow string
	Status   RunStatus
	// ErrorCode is that of the error of failed runs.
	ErrorCode     string
	Key, ParentID string
	// CreatedAfter is the first time that counts, and CreatedBefore the first that does not.
	CreatedAfter, CreatedBefore time.Time
	// Attributes are those that a run must have, up to 8.
	Attributes map[string]string
	// OldestFirst reverses the order of a list.
	OldestFirst bool
}

func (f RunFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"workflow": f.Workflow, "status": string(f.Status), "key": f.Key, "parentId": f.ParentID, "errorCode": f.ErrorCode,
		"createdAfter": timeOrEmpty(f.CreatedAfter), "createdBefore": timeOrEmpty(f.CreatedBefore),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for key, value := range f.Attributes {
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
func (c *Client) Runs(ctx context.Context, f RunFilter) iter.Seq2[RunDetails, error] {
	return pages[RunDetails](ctx, c.get, apiPath("runs"), f.query())
}

// startBody is the body of the request that starts a run.
type startBody struct {
	Workflow       string            `json:"workflow"`
	Input          json.RawMessage   `json:"input"`
	Deployment     string            `json:"deployment,omitempty"`
	IdempotencyKey string            `json:"idempotencyKey"`
	Key            string            `json:"key,omitempty"`
	OnConflict     string            `json:"onConflict,omitempty"`
	Attributes     map[string]string `json:"attributes,omitempty"`
	Delay          string            `json:"delay,omitempty"`
	Timeout        string            `json:"timeout,omitempty"`
	TimeoutGrace   string            `json:"timeoutGrace,omitempty"`
	Inbox          []string          `json:"inbox,omitempty"`
	Send           []startMessage    `json:"send,omitempty"`
	Limits         []LimitUse        `json:"limits,omitempty"`
	Priority       string            `json:"priority,omitempty"`
	Debounce       *debounceBody     `json:"debounce,omitempty"`
	Batch          *batchBody        `json:"batch,omitempty"`

	err error // of an option
}

// startMessage is a message that is sent with the start.
type startMessage struct {
	Inbox   string          `json:"inbox"`
	ID      string          `json:"id"`
	Payload json.RawMessage `json:"payload"`
}

// Once sets an idempotency key: all starts with this key return the same run, as long as the run is kept. The same key
// with other contents is refused with the code idempotency_mismatch. By default a key is made for each call of Start.
func Once(key string) StartOption { return startOption(func(b *startBody) { b.IdempotencyKey = key }) }

// RunKey gives the run a key. No two runs of a workflow that have not ended have the same key: the start is refused
// with the code key_taken, unless it says [Join].
func RunKey(key string) StartOption { return startOption(func(b *startBody) { b.Key = key }) }

// Join makes Start return the run that has the [RunKey] already, if there is one.
func Join() StartOption { return startOption(func(b *startBody) { b.OnConflict = "join" }) }

// Delay starts the run later, by up to ten years.
func Delay(d time.Duration) StartOption {
	return startOption(func(b *startBody) { b.Delay = d.String() })
}

// Start starts a run of the workflow and returns its handle. It is safe to repeat: an answer that is lost does not
// start a second run.
func (d *Workflow[I, O]) Start(ctx context.Context, c *Client, in I, options ...StartOption) (*Run[O], error) {
	return start(ctx, c, d, in, options)
}

// Execute starts a run of the workflow, waits for its end and returns its output, as [Workflow.Start] and [Run.Wait]
// do, with one request if the run ends soon. It repeats the request until the context ends.
func (d *Workflow[I, O]) Execute(ctx context.Context, c *Client, in I, options ...StartOption) (output O, err error) {
	r, err := startRequest(d, in, options)
	if err != nil {
		return output, err
	}
	r.header, r.poll = http.Header{"Prefer": {fmt.Sprintf("wait=%d", int(poll.Seconds()))}}, poll
	var started RunDetails
	if err := c.do(ctx, r, &started); err != nil {
		return output, err
	}
	run := d.Handle(c, started.ID)
	if output, ended, err := run.ended(started); ended {
		return output, err
	}
	return run.Wait(ctx)
}

// start starts a run with an input, which is an item of it if the options say so.
func start[I, O any](
	ctx context.Context, c *Client, d *Workflow[I, O], in any, options []StartOption,
) (*Run[O], error) {
	r, err := startRequest(d, in, options)
	if err != nil {
		return nil, err
	}
	var started RunDetails
	if err := c.do(ctx, r, &started); err != nil {
		return nil, err
	}
	return d.Handle(c, started.ID), nil
}

// startRequest returns the request that starts a run.
func startRequest[I, O any](d *Workflow[I, O], in any, options []StartOption) (r apiRequest, err error) {
	input, err := encode(in)
	if err != nil {
		return r, fmt.Errorf("encode the input of workflow %s: %w", d.name, err)
	}
	b := startBody{Workflow: d.name, Input: input, IdempotencyKey: rand.Text(), Inbox: d.Inboxes()}
	for _, set := range options {
		set.configureStart(&b)
	}
	return apiRequest{method: http.MethodPost, path: apiPath("runs"), body: b}, b.err
}

// Handle returns the handle of a run by its ID, without looking whether there is one.
func (d *Workflow[I, O]) Handle(c *Client, id string) *Run[O] { return &Run[O]{c, id} }

// sending is what is sent to runs.
type sending struct {
	id      string
	payload json.RawMessage
	keepFor time.Duration
}

// MessageID sets the ID of a payload, message or signal: 1 to 256 bytes. What is sent again with the same ID counts
// once. By default an ID is made for each call, so that a lost answer does no harm.
func MessageID(id string) SendOption { return sendOption(func(s *sending) { s.id = id }) }

// KeepFor makes a signal also reach hooks that look back and are opened up to d later, at most 30 days. By default it
// reaches runs that had started before it, if they wait for it or begin to within a minute.
func KeepFor(d time.Duration) SignalSendOption {
	return signalSendOption(func(s *sending) { s.keepFor = d })
}

// newSending returns what is sent with these options.
func newSending[O SignalSendOption](payload any, options []O) (s sending, err error) {
	s.id = rand.Text()
	for _, set := range options {
		set.configureSending(&s)
	}
	if s.id == "" {
		return s, errors.New("the message's ID is empty: give one, or leave MessageID out")
	}
	if s.payload, err = encode(payload); err != nil {
		return s, fmt.Errorf("encode what is sent: %w", err)
	}
	return s, nil
}

// Resume sends a payload to the hook that has the token. If no open hook has it, the error is an [*APIError] with the
// code hook_not_found or run_ended.
func (k *HookKind[T]) Resume(ctx context.Context, c *Client, token string, payload T, options ...SendOption) error {
	return c.resume(ctx, token, payload, options)
}

// resume sends a payload to the hook that has the token.
func (c *Client) resume(ctx context.Context, token string, payload any, options []SendOption) error {
	s, err := newSending(payload, options)
	if err != nil {
		return err
	}
	return c.post(ctx, apiPath("hooks", token, "resume"), map[string]any{"payload": s.payload, "resumeId": s.id})
}

// Answer answers a question that is asked under the token. If nobody waits for an answer, the error is an [*APIError]
// with the code hook_not_found or run_ended.
func (k *ApprovalKind) Answer(ctx context.Context, c *Client, token string, a Answer, options ...SendOption) error {
	return c.resume(ctx, token, a, options)
}

// Send sends a signal to all runs that wait for it, or begin to in the next minute. It returns before they receive it.
func (k *SignalKind[T]) Send(ctx context.Context, c *Client, data T, options ...SignalSendOption) error {
	s, err := newSending(data, options)
	if err != nil {
		return err
	}
	body := map[string]any{"data": s.payload, "id": s.id}
	if s.keepFor > 0 {
		body["keepFor"] = s.keepFor.String()
	}
	return c.post(ctx, apiPath("signals", k.name), body)
}

// Send sends a message to the run's inbox. A run without this inbox is an [*APIError] with the code inbox_not_found,
// and one that has ended one with the code run_ended.
func (k *InboxKind[T]) Send(ctx context.Context, c *Client, runID string, payload T, options ...SendOption) error {
	s, err := newSending(payload, options)
	if err != nil {
		return err
	}
	return c.post(ctx, apiPath("runs", runID, "inbox", k.name), map[string]any{"id": s.id, "payload": s.payload})
}

// AtStart sends a message in the transaction that starts the run, which can have up to 100. With [RunKey] and [Join],
// it reaches the run that has the key.
func (k *InboxKind[T]) AtStart(payload T, options ...SendOption) StartOption {
	return startOption(func(b *startBody) {
		s, err := newSending(payload, options)
		b.err = cmp.Or(b.err, err)
		b.Send = append(b.Send, startMessage{k.name, s.id, s.payload})
	})
}

// Read reads the value in the store of a run, from outside; false if there is none. A run that does not exist is an
// [*APIError] with the code run_not_found.
func (k *StoreKey[T]) Read(ctx context.Context, c *Client, runID string) (value T, ok bool, err error) {
	var stored struct{ Value json.RawMessage }
	err = c.get(ctx, apiPath("runs", runID, "store", k.name), nil, &stored)
	if e, refused := errors.AsType[*APIError](err); refused && e.Code == "store_key_not_found" {
		return value, false, nil
	}
	if err != nil {
		return value, false, err
	}
	if value, err = decode[T](stored.Value); err != nil {
		return value, false, fmt.Errorf("decode %s in the store of run %s: %w", k.name, runID, err)
	}
	return value, true, nil
}
