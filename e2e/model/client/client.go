// Package client sends the model's requests to a server over HTTP, as a client of the Workflow SDK does, and converts
// the answers to the model's types. It implements the wire format from the protocol alone, and imports only package
// model.
package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/e2e/model"
)

// Client is a client of one server.
type Client struct {
	URL  string // of the server, without a slash at the end
	Key  string // API key, or empty
	HTTP *http.Client
}

// ErrUnknown means that the request may or may not have taken effect: the connection broke, or the server answered with
// a 5xx status.
var ErrUnknown = errors.New("outcome unknown")

// MimeFrames is the content type of frames.
const MimeFrames = "application/vnd.workflow.v4-frames"

// exchange is an HTTP request and its answer.
type exchange struct {
	method, path string
	header       http.Header
	body         []byte

	status int
	got    http.Header
	answer []byte
}

// Do sends the request and decodes the answer. It fails with [ErrUnknown], or if the answer is malformed.
func (c Client) Do(ctx context.Context, r model.Request) (model.Answer, error) {
	x := &exchange{header: http.Header{}}
	x.header.Set("User-Agent", "@workflow/world-vercel/5.0.0-beta.50 node-v22.12.0 linux (x64) model")
	if err := x.prepare(r); err != nil {
		return model.Answer{}, err
	}
	if err := c.send(ctx, x); err != nil {
		return model.Answer{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	a, err := x.read(r)
	if err != nil {
		return a, fmt.Errorf("%s %s answered %d %.300q: %w", x.method, x.path, x.status, x.answer, err)
	}
	return a, nil
}

// eventsPath is the path of the run's events for clients of its version.
func eventsPath(r model.Request) string {
	version := "/v4"
	if r.Spec >= 9 {
		version = "/v5"
	}
	return version + "/runs/" + url.PathEscape(r.Run) + "/events"
}

// prepare converts the model's request to HTTP.
func (x *exchange) prepare(r model.Request) error {
	run := eventsPath(r)
	topic := "/queues-proxy/api/v3/topic/" + url.PathEscape(r.Topic)
	lease := topic + "/consumer/default/lease/" + url.PathEscape(r.Handle)
	x.method = http.MethodPost
	switch r.Op {
	case model.Post, model.Batch:
		x.path = run + "/batch"
		if r.Op == model.Post {
			x.path = run + "/" + r.Events[0].Type
		}
		x.header.Set("Content-Type", "application/octet-stream")
		if r.Frames {
			x.header.Set("Accept", MimeFrames)
		}
		return x.frames(r)
	case model.ReadLog:
		x.method, x.path = http.MethodGet, run+"?returnAll=true"
		if r.Since > 0 {
			x.path += "&cursor=" + cursor(r.Since)
		}
	case model.ByToken:
		x.method, x.path = http.MethodGet, "/v2/hooks/by-token?token="+url.QueryEscape(r.Events[0].Token)
	case model.Send:
		x.path, x.body = topic, []byte(r.Body)
		x.header.Set("Content-Type", "application/cbor")
		x.header.Set("Vqs-Deployment-Id", r.Deployment)
		if r.Key != "" {
			x.header.Set("Vqs-Idempotency-Key", r.Key)
		}
		if r.Seconds > 0 {
			x.header.Set("Vqs-Delay-Seconds", strconv.Itoa(r.Seconds))
		}
	case model.Deliver:
		x.path = topic + "/consumer/default/id/" + url.PathEscape(r.ID)
	case model.Extend:
		x.method, x.path = http.MethodPatch, lease
		x.header.Set("Content-Type", "application/json")
		x.body = fmt.Appendf(nil, `{"visibilityTimeoutSeconds":%d}`, r.Seconds)
	case model.Ack:
		x.method, x.path = http.MethodDelete, lease
	case model.Write:
		x.write(r)
	case model.Read:
		x.method, x.path = http.MethodGet, "/v2/runs/"+r.Run+"/streams/"+url.PathEscape(r.Stream)+"/chunks?limit=1000"
	default:
		return fmt.Errorf("unknown request: %s", r.Op)
	}
	return nil
}

// frames encodes the body of a request with one or more events (§2.2).
func (x *exchange) frames(r model.Request) error {
	for _, e := range r.Events {
		meta, err := encode(metaOf(r, e))
		if err != nil {
			return err
		}
		for _, block := range [][]byte{meta, []byte(e.Body)} {
			x.body = binary.BigEndian.AppendUint32(x.body, uint32(len(block)))
			x.body = append(x.body, block...)
		}
	}
	return nil
}

func (x *exchange) write(r model.Request) {
	x.method, x.path = http.MethodPut, "/v2/runs/"+r.Run+"/stream/"+url.PathEscape(r.Stream)
	if r.Done {
		x.header.Set("X-Stream-Done", "true")
	}
	if len(r.Chunks) == 1 {
		x.body = []byte(r.Chunks[0])
		return
	}
	x.header.Set("X-Stream-Multi", "true")
	for _, c := range r.Chunks {
		x.body = binary.BigEndian.AppendUint32(x.body, uint32(len(c)))
		x.body = append(x.body, c...)
	}
}

// send sends the request and reads the whole answer.
func (c Client) send(ctx context.Context, x *exchange) error {
	req, err := http.NewRequestWithContext(ctx, x.method, c.URL+"/sdk"+x.path, bytes.NewReader(x.body))
	if err != nil {
		return err
	}
	req.Header = x.header
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	x.status, x.got = resp.StatusCode, resp.Header
	if x.answer, err = io.ReadAll(resp.Body); err != nil {
		return err
	}
	if x.status >= http.StatusInternalServerError {
		return fmt.Errorf("status %d: %.300q", x.status, x.answer)
	}
	return nil
}

// read decodes the answer.
func (x *exchange) read(r model.Request) (model.Answer, error) {
	a := model.Answer{Status: x.status}
	if x.status/100 != 2 {
		var problem struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(x.answer, &problem); err != nil || problem.Message == "" {
			return a, fmt.Errorf("malformed error: %w", err)
		}
		a.Code = problem.Code
		a.RetryAfter, _ = strconv.Atoi(x.got.Get("Retry-After")) // 0 if it is missing
		return a, nil
	}
	switch r.Op {
	case model.Post:
		if r.Frames && r.Events[0].Type == "run_started" {
			return a, x.readLog(&a)
		}
		return a, decodeResult(x.answer, &a)
	case model.Batch:
		return a, decodeBatch(x.answer, &a)
	case model.ReadLog:
		return a, x.readLog(&a)
	case model.ByToken:
		return a, decodeHook(x.answer, &a)
	case model.Read:
		return a, decodeChunks(x.answer, &a)
	case model.Send:
		var sent struct {
			ID string `json:"messageId"`
		}
		err := json.Unmarshal(x.answer, &sent)
		a.ID = sent.ID
		return a, err
	case model.Deliver:
		return a, x.readMessage(&a)
	default: // 204
		return a, nil
	}
}

// readLog decodes frames and their sentinel.
func (x *exchange) readLog(a *model.Answer) error {
	if got := x.got.Get("Content-Type"); got != MimeFrames {
		return fmt.Errorf("content type %q", got)
	}
	for rest := x.answer; ; {
		var meta, body []byte
		var ok bool
		if meta, rest, ok = cutBlock(rest); !ok {
			return errors.New("the log has no sentinel")
		}
		if body, rest, ok = cutBlock(rest); !ok {
			return errors.New("the log is truncated")
		}
		e, end, err := decodeFrame(meta, body)
		if err != nil {
			return err
		}
		if end != nil {
			if end.Snapshot != nil {
				a.Snapshot = [2]int{end.Snapshot.Seq, end.Snapshot.InBand}
			}
			if end.HasMore || len(rest) > 0 || (end.Next == "") != (len(a.Events) == 0) {
				return fmt.Errorf("the log ends with %+v, and then %d bytes", *end, len(rest))
			}
			return nil
		}
		a.Events = append(a.Events, e)
	}
}

// cutBlock splits a length-prefixed block off the front.
func cutBlock(data []byte) (block, rest []byte, ok bool) {
	if len(data) < 4 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint32(data))
	if data = data[4:]; len(data) < n {
		return nil, nil, false
	}
	return data[:n], data[n:], true
}

// readMessage decodes a pulled message, the only part of a multipart body.
func (x *exchange) readMessage(a *model.Answer) error {
	_, params, err := mime.ParseMediaType(x.got.Get("Content-Type"))
	if err != nil {
		return err
	}
	part, err := multipart.NewReader(bytes.NewReader(x.answer), params["boundary"]).NextRawPart()
	if err != nil {
		return err
	}
	body, err := io.ReadAll(part)
	if err != nil {
		return err
	}
	a.Body, a.ID, a.Handle = string(body), part.Header.Get("Vqs-Message-Id"), part.Header.Get("Vqs-Receipt-Handle")
	if a.Count, err = strconv.Atoi(part.Header.Get("Vqs-Delivery-Count")); err != nil {
		return err
	}
	if strings.TrimSpace(a.Handle) == "" {
		return errors.New("no receipt handle")
	}
	return nil
}
