package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// boundary is the multipart boundary of clients of the next line.
const boundary = "vqs-5f4dcc3b-5aa7-65d6-1d83-27deb882cf99"

// part is a message of a batch. Headers are written as given.
type part struct {
	body   string
	header []string
}

// multipartOf writes parts as the client does: lower-case headers, and no lengths.
func multipartOf(parts ...part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--" + boundary + "\r\ncontent-type: application/cbor\r\n")
		for i := 0; i < len(p.header); i += 2 {
			b.WriteString(p.header[i] + ": " + p.header[i+1] + "\r\n")
		}
		b.WriteString("x-vercel-workflow-run-id: wrun_01M7XW849YHZ4NDYCC9JKF42S7\r\n\r\n" + p.body + "\r\n")
	}
	return b.String() + "--" + boundary + "--\r\n"
}

// chunked hides the length of a body.
type chunked struct{ io.Reader }

// sendBatch posts a multipart body as the client does: in chunks, without its length.
func (c client) sendBatch(t *testing.T, topic, body string, header ...string) answer {
	t.Helper()
	sent := []string{
		"User-Agent", "@vercel/queue/0.5.1", "Content-Type", "multipart/mixed; boundary=" + boundary,
		"Vqs-Deployment-Id", "dpl_x", "Vqs-Client-Ts", "2026-11-21T01:41:33.197Z",
	}
	return c.send(t, http.MethodPost, queuePath+topic+"/batch", chunked{strings.NewReader(body)}, append(sent, header...)...)
}

// wantSent returns the IDs of the messages of a batch, which must be accepted.
func wantSent(t *testing.T, got answer, n int) []string {
	t.Helper()
	wantStatus(t, got, http.StatusOK)
	var body struct {
		Results []struct{ Status, MessageID string }
	}
	if err := json.Unmarshal(got.body, &body); err != nil || len(body.Results) != n {
		t.Fatalf("got %s (%v), want %d results", got.body, err, n)
	}
	var ids []string
	for i, r := range body.Results {
		if r.Status != "sent" || !strings.HasPrefix(r.MessageID, "msg_") {
			t.Errorf("result %d: got %+v, want it sent", i, r)
		}
		ids = append(ids, r.MessageID)
	}
	return ids
}

func (c client) messages(t *testing.T) int {
	t.Helper()
	var n int
	check.NoError(t, c.pool.QueryRow(t.Context(), `SELECT count(*) FROM messages`).Scan(&n))
	return n
}

// TestSendBatchKeepsBodiesExactly sends bodies that contain delimiters (§5.1b).
func TestSendBatchKeepsBodiesExactly(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	bodies := []string{
		"\xb9\x00\x01\x67payload\xf7", "", "\r\n", "\r\n\r\n", "--", "\r\n--", "\r\n--vqs-", "--" + boundary[:30], "\r\n--" + boundary[:35],
		"\n--" + boundary[:35] + "\r\n", "-", "\r", string(all), strings.Repeat("\r\n--vqs-5f4dcc3b\r\n", 5000),
		strings.Repeat("\x00", 100_000), "content-type: x\r\n\r\n", "ends in dashes\r\n--\r\n",
	}
	var parts []part
	for _, body := range bodies {
		parts = append(parts, part{body: body})
	}
	ids := wantSent(t, c.sendBatch(t, flowTopic, multipartOf(parts...)), len(parts))
	for i, id := range ids {
		got := c.pull(t, id)
		if got.body != bodies[i] {
			t.Errorf("message %d: got %d bytes %.60q, want %d bytes %.60q", i, len(got.body), got.body, len(bodies[i]), bodies[i])
		}
		check.Equal(t, "Content-Type", got.get("Content-Type"), "application/cbor")
	}
	var run, deployment, topic string
	check.NoError(t, c.pool.QueryRow(t.Context(), `SELECT run_id, deployment_id, topic FROM messages WHERE id = $1`, ids[0]).
		Scan(&run, &deployment, &topic))
	check.Equal(t, "address", []string{run, deployment, topic}, []string{"wrun_01M7XW849YHZ4NDYCC9JKF42S7", "dpl_x", flowTopic})
}

// TestSendBatchDeduplicatesByKey within a batch and against single messages (§5.1, §5.1b).
func TestSendBatchDeduplicatesByKey(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	key := func(k string) []string { return []string{"vqs-idempotency-key", k} }
	alone := c.mustEnqueue(t, flowTopic, "alone", key("a")...)
	ids := wantSent(t, c.sendBatch(t, flowTopic, multipartOf(
		part{"b", key("b")}, part{"a", key("a")}, part{"b again", key("b")}, part{body: "no key"},
		part{"late", append(key("late"), "vqs-delay-seconds", "60", "vqs-retention-seconds", "100")},
	)), 5)
	check.Equal(t, "that of the single send", ids[1], alone)
	check.Equal(t, "that of the same batch", ids[2], ids[0])
	check.Equal(t, "the first one's body", c.pull(t, ids[0]).body, "b")
	check.Equal(t, "a single send afterwards", c.mustEnqueue(t, flowTopic, "b once more", key("b")...), ids[0])
	again := wantSent(t, c.sendBatch(t, flowTopic, multipartOf(part{"b", key("b")}, part{"late", key("late")})), 2)
	check.Equal(t, "another batch", again, []string{ids[0], ids[4]})
	check.Equal(t, "number of messages", c.messages(t), 4)
	var delay, retention float64
	check.NoError(t, c.pool.QueryRow(t.Context(), `
		SELECT extract(epoch FROM due_at - created_at)::float8, extract(epoch FROM expires_at - due_at)::float8
		FROM messages WHERE id = $1`, ids[4]).Scan(&delay, &retention))
	if delay != 60 || retention != 100 {
		t.Errorf("got a delay of %v s and a retention of %v s, want 60 and 100", delay, retention)
	}
}

// TestConcurrentBatchesDoNotDeadlock sends batches with the same keys in opposite orders; each key is one message.
func TestConcurrentBatchesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	const keys = 40
	var senders sync.WaitGroup
	results := make([][]string, 8)
	for i := range results {
		var parts []part
		for k := range keys {
			if i%2 == 1 {
				k = keys - 1 - k
			}
			parts = append(parts, part{fmt.Sprint("body ", k), []string{"vqs-idempotency-key", fmt.Sprint("key ", k)}})
		}
		senders.Go(func() { results[i] = wantSent(t, c.sendBatch(t, flowTopic, multipartOf(parts...)), keys) })
	}
	senders.Wait()
	for i, ids := range results {
		for k := range ids {
			have := ids[k]
			if i%2 == 1 {
				have = ids[keys-1-k]
			}
			if have != results[0][k] {
				t.Fatalf("sender %d was told that key %d is %s, sender 0 that it is %s", i, k, have, results[0][k])
			}
		}
	}
	check.Equal(t, "number of messages", c.messages(t), keys)
}

func TestSendBatchIsLimitedTo100Messages(t *testing.T) { // §5.1b
	t.Parallel()
	c := client{newServer(t), next}
	parts := make([]part, 101)
	wantProblem(t, c.sendBatch(t, flowTopic, multipartOf(parts...)), http.StatusBadRequest, "invalid_request")
	check.Equal(t, "number of messages", c.messages(t), 0)
	wantSent(t, c.sendBatch(t, flowTopic, multipartOf(parts[:100]...)), 100)
	check.Equal(t, "number of messages", c.messages(t), 100)
}

// TestSendBatchIsAllOrNothing: if one part is invalid, nothing is sent (§5.1b).
func TestSendBatchIsAllOrNothing(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	good := part{body: "good"}
	with := func(header ...string) string { return multipartOf(good, part{"bad", header}, good) }
	whole := multipartOf(good, good)
	plain := "--" + boundary + "\r\n\r\nx\r\n--" + boundary + "--\r\n"
	for name, tt := range map[string]struct {
		topic, body string
		header      []string
	}{
		"a delay":                            {body: with("vqs-delay-seconds", "soon")},
		"a negative delay":                   {body: with("vqs-delay-seconds", "-1")},
		"a delay above the limit":            {body: with("vqs-delay-seconds", "604801")},
		"a retention":                        {body: with("vqs-retention-seconds", "x")},
		"a retention above the limit":        {body: with("vqs-retention-seconds", "2147483647")},
		"a long key":                         {body: with("vqs-idempotency-key", strings.Repeat("k", 1100))},
		"a key that is not UTF-8":            {body: with("vqs-idempotency-key", "a\xc3")},
		"a key with a control":               {body: with("vqs-idempotency-key", "a\x01b")},
		"a key with a NUL":                   {body: with("vqs-idempotency-key", "a\x00b")},
		"an invalid content type":            {body: strings.Replace(whole, "application/cbor", "a\xc3", 1)},
		"a run ID":                           {body: strings.Replace(whole, "wrun_01M7XW849YHZ4NDYCC9JKF42S7", "a/b", 1)},
		"a header without a colon":           {body: strings.Replace(whole, "content-type:", "content-type", 1)},
		"a header that is folded":            {body: strings.Replace(whole, "content-type:", " content-type:", 1)},
		"a huge header":                      {body: with("x-filler", strings.Repeat("x", 11<<20))},
		"very many headers":                  {body: with(slices.Repeat([]string{"x-h", "y"}, 20_000)...)},
		"no parts":                           {body: "--" + boundary + "--\r\n"},
		"nothing":                            {body: ""},
		"no boundary in it":                  {body: "good"},
		"another boundary in it":             {body: strings.ReplaceAll(whole, boundary, "other")},
		"only the beginning":                 {body: "--" + boundary},
		"cut in the headers":                 {body: whole[:len(boundary)+10]},
		"cut in the last boundary":           {body: strings.TrimSuffix(whole, "--\r\n")},
		"cut in the middle of that boundary": {body: strings.TrimSuffix(whole, boundary[20:]+"--\r\n")},
		"cut in a body":                      {body: strings.TrimSuffix(whole, "\r\n--"+boundary+"--\r\n")},
		"cut after the first part":           {body: whole[:strings.LastIndex(whole, "--"+boundary+"\r\n")]},
		"no multipart":                       {body: whole, header: []string{"Content-Type", "application/cbor"}},
		"a form":                             {body: whole, header: []string{"Content-Type", "application/x-www-form-urlencoded"}},
		"no boundary":                        {body: whole, header: []string{"Content-Type", "multipart/mixed"}},
		"an empty boundary":                  {body: whole, header: []string{"Content-Type", `multipart/mixed; boundary=""`}},
		"no content type":                    {body: whole, header: []string{"Content-Type", ""}},
		"no deployment":                      {body: plain, header: []string{"Vqs-Deployment-Id", ""}},
		"a deployment that is a path":        {body: plain, header: []string{"Vqs-Deployment-Id", "a/b"}},
		"another topic":                      {topic: "emails", body: plain},
		"a topic with a slash":               {topic: "__wkf_workflow_a%2Fb", body: plain},
	} {
		if tt.topic == "" {
			tt.topic = flowTopic
		}
		got := c.sendBatch(t, tt.topic, tt.body, tt.header...)
		if got.status != http.StatusBadRequest {
			t.Errorf("%s: got %d %s, want 400; log: %s", name, got.status, got.body, c.logs)
		}
	}
	check.Equal(t, "number of messages", c.messages(t), 0)
	wantSent(t, c.sendBatch(t, flowTopic, plain), 1) // a part needs no headers
}

// TestFailedBatchSendsNothing makes the database fail at the second message.
func TestFailedBatchSendsNothing(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	testdb.Exec(t, c.pool, `ALTER TABLE messages ADD CHECK (body <> '\x62726f6b656e') NOT VALID`)
	key := []string{"vqs-idempotency-key", "a"}
	got := c.sendBatch(t, flowTopic, multipartOf(part{"good", key}, part{body: "broken"}))
	wantProblem(t, got, http.StatusInternalServerError, "internal")
	var keys, tickets int
	check.NoError(t, c.pool.QueryRow(t.Context(),
		`SELECT (SELECT count(*) FROM message_keys), (SELECT count(*) FROM river_job)`).Scan(&keys, &tickets))
	check.Equal(t, "messages, keys and tickets", []int{c.messages(t), keys, tickets}, []int{0, 0, 0})
	again := wantSent(t, c.sendBatch(t, flowTopic, multipartOf(part{"good", key}, part{body: "fine"})), 2)
	check.Equal(t, "body", c.pull(t, again[0]).body, "good")
}

// TestTooLargeBatchIsRejected with 413, not as invalid multipart.
func TestTooLargeBatchIsRejected(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	head := strings.NewReader("--" + boundary + "\r\n\r\n")
	zeros := io.LimitReader(endless{}, 161<<20)
	got := c.send(t, http.MethodPost, queuePath+flowTopic+"/batch", chunked{io.MultiReader(head, zeros)},
		"Content-Type", "multipart/mixed; boundary="+boundary, "Vqs-Deployment-Id", "dpl_x")
	wantProblem(t, got, http.StatusRequestEntityTooLarge, "too_large")
}

// endless is an endless body of zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte{0}, len(p))), nil }
