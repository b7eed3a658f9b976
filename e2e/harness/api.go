package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"testing"
)

// Serve returns the command of a server on the database, with the key of an admin and a free port. The given variables
// override others.
func Serve(program, dsn, key string, env ...string) *exec.Cmd {
	cmd := exec.Command(program, "serve")
	cmd.Env = append(CleanEnv("DATABASE_URL="+dsn, "STEPWELL_LISTEN=127.0.0.1:0", "STEPWELL_API_KEY="+key,
		"STEPWELL_ALLOW_ADDRESSES=loopback", "STEPWELL_LOG=json"), env...)
	return cmd
}

// StartFastServer starts what [Serve] returns, without -race, and returns its URL.
func StartFastServer(t *testing.T, dsn, key string, env ...string) (p *Process, url string) {
	t.Helper()
	program, err := FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	p, addr := Start(t, "server", Serve(program, dsn, key, env...), ServerReady)
	return p, "http://" + addr
}

// Response is the answer to a request.
type Response struct {
	What   string // the request
	Status int
	Header http.Header
	Body   []byte
	Err    error // set if there is no answer, or only part of one
}

// Send sends a request with a key, and reads the whole answer. A body of bytes is sent as it is, any other one as JSON;
// nil is none. Headers are pairs of a name and a value.
func Send(ctx context.Context, c *http.Client, method, url, key string, body any, headers ...string) Response {
	r := Response{What: method + " " + url}
	data, isRaw := body.([]byte)
	if !isRaw && body != nil {
		if data, r.Err = json.Marshal(body); r.Err != nil {
			return r
		}
	}
	var request *http.Request
	if request, r.Err = http.NewRequestWithContext(ctx, method, url, bytes.NewReader(data)); r.Err != nil {
		return r
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	var answer *http.Response
	if answer, r.Err = c.Do(request); r.Err != nil {
		return r
	}
	defer func() { _ = answer.Body.Close() }()
	r.Status, r.Header = answer.StatusCode, answer.Header
	r.Body, r.Err = io.ReadAll(answer.Body)
	return r
}

// Problem returns an error unless the answer has one of the statuses.
func (r Response) Problem(statuses ...int) error {
	if r.Err != nil {
		return fmt.Errorf("%s: %w", r.What, r.Err)
	}
	if !slices.Contains(statuses, r.Status) {
		return fmt.Errorf("%s answered %d %.2000s; want %d", r.What, r.Status, r.Body, statuses)
	}
	return nil
}

// Want fails the test unless the answer has one of the statuses.
func (r Response) Want(t *testing.T, statuses ...int) Response {
	t.Helper()
	if err := r.Problem(statuses...); err != nil {
		t.Fatal(err)
	}
	return r
}

// Decode decodes the JSON of an answer.
func Decode[T any](t *testing.T, r Response) (v T) {
	t.Helper()
	if err := json.Unmarshal(r.Body, &v); err != nil {
		t.Fatalf("%s answered %.300s: %v", r.What, r.Body, err)
	}
	return v
}
