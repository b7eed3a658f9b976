package wire_test

import (
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

const (
	flowTopic = "__wkf_workflow_workflow----a--b"
	queuePath = "/queues-proxy/api/v3/topic/"
)

// enqueue sends a message with the headers of the protocol's example. Later headers win; empty ones are omitted.
func (c client) enqueue(t *testing.T, topic, body string, header ...string) answer {
	t.Helper()
	sent := []string{
		"User-Agent", "@vercel/queue/0.3.1", "Content-Type", "application/cbor", "Vqs-Deployment-Id", "dpl_x",
		"Vqs-Client-Ts", "2026-11-21T01:41:33.197Z", "X-Vercel-Project-Id", "prj_local",
		"X-Vercel-Workflow-Run-Id", "wrun_01M7XW849YHZ4NDYCC9JKF42S7",
	}
	return c.send(t, http.MethodPost, queuePath+topic, strings.NewReader(body), append(sent, header...)...)
}

// mustEnqueue sends a message, which must be accepted, and returns its ID.
func (c client) mustEnqueue(t *testing.T, topic, body string, header ...string) string {
	t.Helper()
	got := c.enqueue(t, topic, body, header...)
	if got.status != http.StatusCreated {
		t.Fatalf("send: got %d %s", got.status, got.body)
	}
	var message map[string]string
	if err := json.Unmarshal(got.body, &message); err != nil || message["messageId"] == "" || len(message) != 1 {
		t.Fatalf("send: got %s, want a messageId", got.body)
	}
	return message["messageId"]
}

// pulled is a received message.
type pulled struct {
	header map[string][]string
	body   string
}

func (p pulled) get(name string) string { return http.Header(p.header).Get(name) }

// pull receives a message by ID.
func (c client) pull(t *testing.T, id string, header ...string) pulled {
	t.Helper()
	got := c.send(t, http.MethodPost, queuePath+flowTopic+"/consumer/default/id/"+id, nil, header...)
	wantStatus(t, got, http.StatusOK)
	kind, params, err := mime.ParseMediaType(got.header.Get("Content-Type"))
	if err != nil || kind != "multipart/mixed" {
		t.Fatalf("Content-Type: got %q", got.header.Get("Content-Type"))
	}
	parts := multipart.NewReader(strings.NewReader(string(got.body)), params["boundary"])
	part := check.Value(parts.NextRawPart())(t)
	body := check.Value(io.ReadAll(part))(t)
	if _, err := parts.NextRawPart(); err != io.EOF {
		t.Fatalf("more than one part: %v", err)
	}
	return pulled{part.Header, string(body)}
}

func (c client) lease(t *testing.T, method, receipt, body string) answer {
	t.Helper()
	return c.send(t, method, queuePath+flowTopic+"/consumer/default/lease/"+receipt, strings.NewReader(body),
		"Content-Type", "application/json", "Vqs-Deployment-Id", "dpl_x")
}

func TestSentMessageIsReceived(t *testing.T) { // endpoints 17 and 19
	t.Parallel()
	c := client{newServer(t), stable}
	body := "\xb9\x00\x01\x67payload\xf7\x00\xff--\r\n"
	before := time.Now()
	id := c.mustEnqueue(t, flowTopic, body)
	got := c.pull(t, id, "Vqs-Visibility-Timeout-Seconds", "300", "Accept", "multipart/mixed")
	if got.body != body {
		t.Errorf("body: got %q, want %q", got.body, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/cbor", "Vqs-Message-Id": id, "Vqs-Delivery-Count": "1",
	} {
		check.Equal(t, name, got.get(name), want)
	}
	at, err := time.Parse(time.RFC3339Nano, got.get("Vqs-Timestamp"))
	if err != nil || at.Before(before.Add(-time.Minute)) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("Vqs-Timestamp: got %q (%v), want about now", got.get("Vqs-Timestamp"), err)
	}
	expires, err := time.Parse(time.RFC3339Nano, got.get("Vqs-Expires-At"))
	if err != nil || expires.Sub(at) != 24*time.Hour {
		t.Errorf("Vqs-Expires-At: got %q (%v), want a day after %s", got.get("Vqs-Expires-At"), err, at)
	}

	pullPath := queuePath + flowTopic + "/consumer/default/id/"
	leased := c.send(t, http.MethodPost, pullPath+id, nil)
	wantProblem(t, leased, http.StatusConflict, "conflict")
	// Acknowledge with every character of the handle encoded.
	receipt := ""
	for _, b := range []byte(got.get("Vqs-Receipt-Handle")) {
		receipt += "%" + strconv.FormatUint(uint64(b), 16)
	}
	wantStatus(t, c.lease(t, http.MethodDelete, receipt, ""), http.StatusNoContent)
	wantProblem(t, c.lease(t, http.MethodDelete, receipt, ""), http.StatusNotFound, "lease_not_found")
	wantProblem(t, c.send(t, http.MethodPost, pullPath+id, nil), http.StatusNotFound, "message_not_found")
	for _, seconds := range []string{"x", "-1", "43201", "99999999999999999999"} {
		bad := c.send(t, http.MethodPost, pullPath+id, nil, "Vqs-Visibility-Timeout-Seconds", seconds)
		wantProblem(t, bad, http.StatusBadRequest, "invalid_request")
	}
}

// leaseLeft returns for how many seconds the lease of a message lasts.
func leaseLeft(t *testing.T, c client, id string) (left float64) {
	t.Helper()
	err := c.pool.QueryRow(t.Context(),
		`SELECT extract(epoch FROM due_at - now())::float8 FROM messages WHERE id = $1`, id).Scan(&left)
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func TestLeaseVerbs(t *testing.T) { // endpoint 18
	t.Parallel()
	c := client{newServer(t), stable}
	id := c.mustEnqueue(t, flowTopic, "x")
	receipt := c.pull(t, id).get("Vqs-Receipt-Handle")
	extended := c.lease(t, http.MethodPatch, receipt, `{"visibilityTimeoutSeconds":300}`)
	wantStatus(t, extended, http.StatusNoContent)
	if left := leaseLeft(t, c, id); left < 240 || left > 300 {
		t.Errorf("the lease lasts %v s more, want 300", left)
	}
	// Its function says that it works, and no server is calling it.
	working := c.lease(t, http.MethodPatch, receipt, `{"working":true,"visibilityTimeoutSeconds":300}`)
	wantStatus(t, working, http.StatusNoContent)
	if left := leaseLeft(t, c, id); left > 10 {
		t.Errorf("the lease lasts %v s more, want 10", left)
	}
	for _, tt := range []struct {
		name, body string
		status     int
		code       string
	}{
		{"no JSON", `300`, http.StatusBadRequest, "invalid_request"},
		{"cut short", `{"visibilityTimeoutSeconds":`, http.StatusBadRequest, "invalid_request"},
		{"empty", ``, http.StatusBadRequest, "invalid_request"},
		{"no seconds", `{}`, http.StatusBadRequest, "invalid_request"},
		{"null", `{"visibilityTimeoutSeconds":null}`, http.StatusBadRequest, "invalid_request"},
		{"text", `{"visibilityTimeoutSeconds":"300"}`, http.StatusBadRequest, "invalid_request"},
		{"negative", `{"visibilityTimeoutSeconds":-1}`, http.StatusBadRequest, "invalid_request"},
		{"least", `{"visibilityTimeoutSeconds":-9223372036854775808}`, http.StatusBadRequest, "invalid_request"},
		{"too long", `{"visibilityTimeoutSeconds":43201}`, http.StatusBadRequest, "invalid_request"},
		{"most", `{"visibilityTimeoutSeconds":9223372036854775807}`, http.StatusBadRequest, "invalid_request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantProblem(t, c.lease(t, http.MethodPatch, receipt, tt.body), tt.status, tt.code)
		})
	}
	for _, method := range []string{http.MethodDelete, http.MethodPatch} {
		stale := c.lease(t, method, "rh%2F1%2B2%3D", `{"visibilityTimeoutSeconds":300}`)
		wantProblem(t, stale, http.StatusNotFound, "lease_not_found")
		other := c.send(t, method, queuePath+"__wkf_step_x/consumer/default/lease/"+receipt,
			strings.NewReader(`{"visibilityTimeoutSeconds":300}`))
		wantProblem(t, other, http.StatusNotFound, "lease_not_found")
	}
	lost := c.lease(t, http.MethodPatch, "rh%2F1%2B2%3D", `{"working":true}`)
	wantProblem(t, lost, http.StatusNotFound, "lease_not_found")
	// A released message can be received immediately.
	given := c.lease(t, http.MethodPatch, receipt, `{"visibilityTimeoutSeconds":0}`)
	wantStatus(t, given, http.StatusNoContent)
	wantProblem(t, c.lease(t, http.MethodDelete, receipt, ""), http.StatusNotFound, "lease_not_found")
}

func TestIdempotencyKeyDeduplicates(t *testing.T) { // §5.1
	t.Parallel()
	c := client{newServer(t), stable}
	key := []string{"Vqs-Idempotency-Key", "step_01M7XW849YHZ4NDYCC9JKF42S7"}
	first := c.mustEnqueue(t, flowTopic, "x", key...)
	check.Equal(t, "duplicate", c.mustEnqueue(t, flowTopic, "y", key...), first)
	receipt := c.pull(t, first).get("Vqs-Receipt-Handle")
	wantStatus(t, c.lease(t, http.MethodDelete, receipt, ""), http.StatusNoContent)
	check.Equal(t, "duplicate after the acknowledgement", c.mustEnqueue(t, flowTopic, "y", key...), first)

	seen := map[string]bool{first: true}
	for what, id := range map[string]string{
		"other topic":      c.mustEnqueue(t, "__wkf_step_s", "x", key...),
		"other deployment": c.mustEnqueue(t, flowTopic, "x", append(key, "Vqs-Deployment-Id", "dpl_y")...),
		"no key":           c.mustEnqueue(t, flowTopic, "x"),
		"no key again":     c.mustEnqueue(t, flowTopic, "x"),
	} {
		if seen[id] {
			t.Errorf("%s: got the ID of another message", what)
		}
		seen[id] = true
	}
}

func TestSendRejectsInvalidHeaders(t *testing.T) { // §5.1, §5.3
	t.Parallel()
	c := client{newServer(t), stable}
	for _, topic := range []string{"__wkf_workflow_a", "__wkf_step_a-b_C", "__my-ns_wkf_workflow_a", "__ns_wkf_step_a"} {
		c.mustEnqueue(t, topic, "x")
	}
	for _, tt := range []struct {
		name, topic string
		header      []string
		message     string
	}{
		{name: "topic", topic: "emails", message: "topic"},
		{name: "topic of nothing", topic: "__wkf_workflow_", message: "topic"},
		{name: "topic with a slash", topic: "__wkf_workflow_a%2Fb", message: "topic"},
		{name: "topic with more before", topic: "x__wkf_workflow_a", message: "topic"},
		{name: "delay", header: []string{"Vqs-Delay-Seconds", "soon"}, message: "Vqs-Delay-Seconds"},
		{name: "negative delay", header: []string{"Vqs-Delay-Seconds", "-1"}, message: "Vqs-Delay-Seconds"},
		{name: "fraction", header: []string{"Vqs-Delay-Seconds", "1.5"}, message: "Vqs-Delay-Seconds"},
		{name: "endless delay", header: []string{"Vqs-Delay-Seconds", "604801"}, message: "delay"},
		{name: "retention", header: []string{"Vqs-Retention-Seconds", "x"}, message: "Vqs-Retention-Seconds"},
		{name: "endless retention", header: []string{"Vqs-Retention-Seconds", "2147483647"}, message: "retention"},
		{name: "run ID", header: []string{"X-Vercel-Workflow-Run-Id", "a/b"}, message: "run ID"},
		{
			name: "no deployment, as in development", header: []string{"Vqs-Deployment-Id", ""},
			message: "STEPWELL_DEPLOYMENT_ID",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.topic == "" {
				tt.topic = flowTopic
			}
			p := wantProblem(t, c.enqueue(t, tt.topic, "x", tt.header...), http.StatusBadRequest, "invalid_request")
			if !strings.Contains(p.Message, tt.message) {
				t.Errorf("message %q does not mention %s", p.Message, tt.message)
			}
		})
	}
}

func TestDelayedMessagesAreNotReceived(t *testing.T) { // §5.1
	t.Parallel()
	c := client{newServer(t), stable}
	id := c.mustEnqueue(t, flowTopic, "x", "Vqs-Delay-Seconds", "7", "Vqs-Retention-Seconds", "100")
	got := c.send(t, http.MethodPost, queuePath+flowTopic+"/consumer/default/id/"+id, nil)
	wantProblem(t, got, http.StatusConflict, "conflict")
	var delay, retention float64
	check.NoError(t, c.pool.QueryRow(t.Context(), `
		SELECT extract(epoch FROM due_at - created_at)::float8, extract(epoch FROM expires_at - due_at)::float8
		FROM messages WHERE id = $1`, id).Scan(&delay, &retention))
	if delay != 7 || retention != 100 {
		t.Errorf("got a delay of %v s and a retention of %v s, want 7 and 100", delay, retention)
	}
}
