package wire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// wantRefused checks that an answer is a client error. A server error would mean a hole in the validation.
func (c client) wantRefused(t *testing.T, what string, got answer) {
	t.Helper()
	if got.status < 400 || got.status > 499 {
		t.Errorf("%s: got %d %s, want 4xx; log: %s", what, got.status, got.body, c.logs)
	}
}

// invalidTexts returns texts that the server must not store.
func invalidTexts() map[string]string {
	random := rand.New(rand.NewChaCha8([32]byte{1}))
	long := make([]byte, 5000) // too long for an index of Postgres, also when compressed
	for i := range long {
		long[i] = byte('!' + random.IntN(90))
	}
	return map[string]string{
		"NUL": "a\x00b", "control character": "a\x1bb", "line break": "a\nb", "half a rune": "a\xc3",
		"surrogate": "a\xed\xa0\x80", "too long": strings.ReplaceAll(string(long), "/", "x"),
	}
}

// TestInvalidTextsInEventFields tries invalid texts in each field of each event (§3.1).
func TestInvalidTextsInEventFields(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	runID := c.startedRun(t)
	c.must(t, runID, "step_created", nil, stepMeta("step_1")...)
	c.must(t, runID, "hook_created", nil, field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
	c.must(t, runID, "wait_created", nil, field{"correlationId", "wait_1"}, field{"resumeAt", t0})
	attribute := []any{map[string]any{"key": "k", "value": "v"}}
	changed := func(key, value string) any { return []any{map[string]any{"key": key, "value": value}} }
	for eventType, correlationID := range map[string]string{
		"run_created": "", "run_started": "", "run_completed": "", "run_failed": "", "run_cancelled": "",
		"attr_set": "attr_1", "step_created": "step_2", "step_started": "step_1", "step_completed": "step_1",
		"step_failed": "step_1", "step_retrying": "step_1", "hook_created": "hook_2", "hook_received": "hook_1",
		"hook_disposed": "hook_1", "wait_created": "wait_2", "wait_completed": "wait_1",
	} {
		for kind, bad := range invalidTexts() {
			if kind == "surrogate" {
				continue // text of a JS string that was cut in the wrong place; it is repaired, not refused
			}
			fields := map[string]any{
				"correlationId": bad, "deploymentId": bad, "workflowName": bad, "stepName": bad, "hookToken": bad,
				"errorCode": bad, "eventType": bad,
			}
			if eventType == "attr_set" {
				fields["changes"] = changed(bad, "v")
			}
			for name, value := range fields {
				id := runID
				if eventType == "run_created" || eventType == "run_started" {
					id = newID("wrun_")
				}
				all := []field{
					{"correlationId", correlationID}, {"deploymentId", "dpl_x"}, {"workflowName", "w"}, {"stepName", "s"},
					{"hookToken", "tok2"}, {"resumeAt", t0}, {"changes", attribute}, {name, raw(t, value)},
				}
				got := c.post(t, id, eventType, []byte("devl[1]"), all...)
				c.wantRefused(t, eventType+": "+kind+" in "+name, got)
			}
		}
	}
	value := c.post(t, runID, "attr_set", nil, field{"correlationId", "attr_2"}, field{"changes", changed("k", "a\x00b")})
	c.wantRefused(t, "NUL in the value of an attribute", value)
	events, _ := c.get(t, "/v4/runs/"+runID+"/events").list(t)
	check.Equal(t, "number of events", len(events), 5) // those above
}

// raw encodes a text or changes as CBOR, even if it is not UTF-8.
func raw(t *testing.T, v any) any {
	t.Helper()
	s, ok := v.(string)
	if !ok {
		key := v.([]any)[0].(map[string]any)["key"].(string)
		return codec.Raw(slices.Concat([]byte("\x81\xa2\x63key"), text(key), []byte("\x65value\x61v")))
	}
	return codec.Raw(text(s))
}

func text(s string) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0x79}, uint16(len(s))), s...)
}

// TestInvalidTextsInPathsQueriesAndHeaders tries invalid texts in each of them.
func TestInvalidTextsInPathsQueriesAndHeaders(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	runID := c.newRun(t)
	c.mustWrite(t, "strm_1", "x")
	for kind, bad := range invalidTexts() {
		p, q := url.PathEscape(bad), url.QueryEscape(bad)
		for _, tt := range []struct{ method, path string }{
			{http.MethodPost, "/v4/runs/" + p + "/events/run_created"},
			{http.MethodGet, "/v4/runs/" + p + "/events"},
			{http.MethodGet, "/v4/runs/" + runID + "/events?cursor=" + q},
			{http.MethodGet, "/v4/runs/" + runID + "/events?limit=" + q},
			{http.MethodGet, "/v4/runs/" + runID + "/events?sortOrder=" + q},
			{http.MethodGet, "/v4/runs/" + runID + "/events?remoteRefBehavior=" + q},
			{http.MethodGet, "/v4/runs/" + p + "/events/" + eventID(1)},
			{http.MethodGet, "/v4/runs/" + runID + "/events/" + p},
			{http.MethodGet, "/v4/events?correlationId=x&cursor=" + q},
			{http.MethodGet, "/v2/runs?cursor=" + q},
			{http.MethodGet, "/v2/runs/" + p},
			{http.MethodGet, "/v2/runs/" + runID + "/steps?cursor=" + q},
			{http.MethodGet, "/v2/runs/" + p + "/steps/step_1"},
			{http.MethodGet, "/v2/runs/" + runID + "/steps/" + p},
			{http.MethodGet, "/v2/steps/" + p},
			{http.MethodGet, "/v2/hooks?cursor=" + q},
			{http.MethodGet, "/v2/hooks/" + p},
			{http.MethodGet, "/v2/hooks/by-token?token=" + q},
			{http.MethodPut, "/v2/runs/" + p + "/stream/strm_1"},
			{http.MethodPut, "/v2/runs/" + runID + "/stream/" + p},
			{http.MethodGet, "/v2/stream/strm_1?startIndex=" + q},
			{http.MethodGet, "/v2/runs/" + runID + "/streams/strm_1/chunks?cursor=" + q},
			{http.MethodPost, queuePath + p},
			{http.MethodDelete, queuePath + p + "/consumer/default/lease/rh_1"},
			{http.MethodDelete, queuePath + flowTopic + "/consumer/default/lease/" + p},
			{http.MethodPost, queuePath + p + "/consumer/default/id/msg_1"},
			{http.MethodPost, queuePath + flowTopic + "/consumer/default/id/" + p},
		} {
			c.wantRefused(t, tt.method+" "+kind+" in "+tt.path, c.send(t, tt.method, tt.path, strings.NewReader("x")))
		}
		// A long filter matches nothing, which is no error.
		if kind == "too long" {
			continue
		}
		for _, path := range []string{
			"/v4/events?correlationId=" + q, "/v4/events?correlationId=x&runId=" + q, "/v2/runs?workflowName=" + q,
			"/v2/runs?status=" + q, "/v2/runs/" + p + "/steps", "/v2/hooks?runId=" + q, "/v2/runs/" + p + "/streams",
			"/v2/runs/" + runID + "/streams/" + p + "/chunks", "/v2/runs/" + runID + "/streams/" + p + "/info",
			"/v2/stream/" + p,
		} {
			c.wantRefused(t, "GET "+kind+" in "+path, c.get(t, path))
		}
	}
	random := invalidTexts()["too long"]
	for _, name := range []string{
		"Vqs-Deployment-Id", "Vqs-Idempotency-Key", "X-Vercel-Workflow-Run-Id", "Vqs-Delay-Seconds",
		"Vqs-Retention-Seconds", "Content-Type",
	} {
		c.wantRefused(t, "half a rune in "+name, c.enqueue(t, flowTopic, "x", name, "a\xc3"))
		if name != "Content-Type" { // of any length
			c.wantRefused(t, "too long a "+name, c.enqueue(t, flowTopic, "x", name, random))
		}
	}
	// Each is within its limit, but together they exceed the size of an index entry.
	topic := regexp.MustCompile(`[^A-Za-z0-9_-]`).ReplaceAllString(random, "")[:1000]
	together := c.enqueue(t, "__wkf_step_"+topic, "x",
		"Vqs-Deployment-Id", random[:1000], "Vqs-Idempotency-Key", random[1000:2000])
	if together.status >= 500 {
		t.Errorf("long deployment, topic and key: got %d; log: %s", together.status, c.logs)
	}
}

// TestArbitraryCursorsAreNeverServerErrors: any cursor leads to success or a client error.
func TestArbitraryCursorsAreNeverServerErrors(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	runID := c.startedRun(t)
	c.mustWrite(t, "strm_1", "x")
	lists := []string{
		"/v4/runs/" + runID + "/events", "/v4/events?correlationId=x", "/v2/runs", "/v2/runs/" + runID + "/steps",
		"/v2/hooks", "/v2/runs/" + runID + "/streams/strm_1/chunks",
	}
	cursors := rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`(eid:)?evnt_[0-9]{26}`),
		rapid.StringMatching(`-?[0-9]{1,25}(:[a-z_]*)?`),
		rapid.SampledFrom([]string{
			"9223372036854775807:x", "-9223372036854775808:x", "9223372036854775807", "-9223372036854775808",
			"253402300800000:x", "-210866803200000:x", "9224318015999999:x", "9224318016000000:x",
			"eid:evnt_00000009223372036854775807", "1:\x00",
		}),
	)
	rapid.Check(t, func(rt *rapid.T) {
		path := rapid.SampledFrom(lists).Draw(rt, "list")
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		path += separator + "cursor=" + url.QueryEscape(cursors.Draw(rt, "cursor"))
		if got := c.get(t, path); got.status != http.StatusOK && got.status != http.StatusBadRequest {
			rt.Errorf("%s: got %d %s; log: %s", path, got.status, got.body, c.logs)
		}
	})
}

// TestMalformedFramesAreRejected (§2.2).
func TestMalformedFramesAreRejected(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	good := meta(t, field{"eventType", "run_created"}, field{"deploymentId", "d"}, field{"workflowName", "w"})
	whole := frame(t, good, []byte("devl[1]"))
	type refusal struct {
		status int
		code   string
	}
	malformed := refusal{http.StatusBadRequest, "malformed"}
	tooLarge := refusal{http.StatusRequestEntityTooLarge, "too_large"}
	for _, tt := range []struct {
		name string
		body []byte
		want refusal
	}{
		{"nothing", nil, malformed},
		{"no meta", frame(t, nil, nil), malformed},
		{"not CBOR", frame(t, []byte(`{"eventType":"run_created"}`), nil), malformed},
		{"no map", frame(t, []byte{0x01}, nil), malformed},
		{"more after it", append(bytes.Clone(whole), 0), malformed},
		{"two", append(bytes.Clone(whole), whole...), malformed},
		{"huge meta announced", []byte("\xff\xff\xff\xff"), tooLarge},
		{"huge body announced", append(frame(t, good, nil)[:4+len(good)], 0xff, 0xff, 0xff, 0xff), tooLarge},
		{"body of its announced length is missing", append(frame(t, good, nil)[:4+len(good)], 0x07, 0, 0, 0), malformed},
		{"oversized meta", frame(t, append(meta(t, field{"x", make([]byte, 0)}), make([]byte, 1<<20)...), nil), tooLarge},
		{"deep nesting", frame(t, append(bytes.Repeat([]byte{0x81}, 500_000), 0x01), nil), malformed},
		{"array of 2^32", frame(t, []byte{0x9a, 0xff, 0xff, 0xff, 0xff}, nil), malformed},
		{"map of 2^64", frame(t, append([]byte{0xbb}, bytes.Repeat([]byte{0xff}, 8)...), nil), malformed},
		{"text of 2^63", frame(t, append([]byte{0x7b, 0x7f}, bytes.Repeat([]byte{0xff}, 7)...), nil), malformed},
		{"endless text", frame(t, []byte{0x7f, 0x61, 'a', 0xff}, nil), malformed},
		{"number for a name", frame(t, meta(t, field{"eventType", "run_created"}, field{"workflowName", uint16(1)}), nil), malformed},
		{"a key twice", frame(t, append([]byte{0xa2}, bytes.Repeat([]byte("\x61a\x01"), 2)...), nil), malformed},
		{"changes are text", frame(t, meta(t, field{"eventType", "attr_set"}, field{"changes", "x"}), nil), malformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := c.send(t, http.MethodPost, "/v4/runs/"+newID("wrun_")+"/events/run_created", bytes.NewReader(tt.body))
			wantProblem(t, got, tt.want.status, tt.want.code)
		})
	}
	for n := range whole {
		got := c.send(t, http.MethodPost, "/v4/runs/"+newID("wrun_")+"/events/run_created", bytes.NewReader(whole[:n]))
		wantProblem(t, got, http.StatusBadRequest, "malformed")
	}
}

// TestTruncatedRequestsAreNotServerErrors: a connection that breaks is not logged as an error.
func TestTruncatedRequestsAreNotServerErrors(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	host := strings.TrimPrefix(c.url, "http://")
	for name, request := range map[string]string{
		"event":       "POST /sdk/v4/runs/wrun_1/events/run_created HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n\x00",
		"message":     "POST /sdk" + queuePath + flowTopic + " HTTP/1.1\r\nHost: x\r\nVqs-Deployment-Id: d\r\nContent-Length: 100\r\n\r\nab",
		"chunk":       "PUT /sdk/v2/runs/wrun_1/stream/s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nab",
		"chunks":      "PUT /sdk/v2/runs/wrun_1/stream/s HTTP/1.1\r\nHost: x\r\nX-Stream-Multi: true\r\nContent-Length: 100\r\n\r\nab",
		"bad framing": "PUT /sdk/v2/runs/wrun_1/stream/s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := check.Value(new(net.Dialer).DialContext(t.Context(), "tcp", host))(t)
			defer func() { _ = conn.Close() }()
			check.Value(conn.Write([]byte(request)))(t)
			check.NoError(t, conn.(*net.TCPConn).CloseWrite())
			var got bytes.Buffer
			check.Value(got.ReadFrom(conn))(t)
			if !strings.HasPrefix(got.String(), "HTTP/1.1 400 ") {
				t.Errorf("got %q, want 400; log: %s", got.String(), c.logs)
			}
		})
	}
	t.Cleanup(func() {
		check.Equal(t, "logged", c.logs.String(), "")
	})
}

// TestUnknownEventTypesAreRejected (§3.8).
func TestUnknownEventTypesAreRejected(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	runID := c.startedRun(t)
	for _, eventType := range []string{"hook_conflict", "run_paused", "step_cancelled", "store_set", "RUN_CREATED"} {
		got := c.post(t, runID, eventType, nil, field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
		p := wantProblem(t, got, http.StatusBadRequest, "invalid_request")
		if !strings.Contains(p.Message, eventType) {
			t.Errorf("message %q does not name %s", p.Message, eventType)
		}
	}
	// The type in the metadata takes precedence over the path.
	untyped := frame(t, meta(t, field{"specVersion", uint16(3)}), nil)
	got := c.send(t, http.MethodPost, "/v4/runs/"+runID+"/events/run_completed", bytes.NewReader(untyped))
	check.Equal(t, "type from the path", got.cbor(t)["event"].(map[string]any)["eventType"], any("run_completed"))
	other := frame(t, meta(t, field{"eventType", "run_cancelled"}), nil)
	got = c.send(t, http.MethodPost, "/v4/runs/"+c.newRun(t)+"/events/run_completed", bytes.NewReader(other))
	check.Equal(t, "type from the meta", got.cbor(t)["event"].(map[string]any)["eventType"], any("run_cancelled"))
}

func TestUnsupportedSpecVersionsAreRejected(t *testing.T) { // §8
	t.Parallel()
	c := client{newServer(t), stable}
	for version, status := range map[int]int{1: 400, 2: 200, 3: 200, 4: 200, 5: 200, 6: 200, 7: 200, 8: 200, 9: 400, -1: 400} {
		fields := append(creation("w"), field{"specVersion", version})
		got := c.post(t, newID("wrun_"), "run_created", []byte("devl[1]"), fields...)
		if status == http.StatusOK {
			check.Equal(t, "version", got.cbor(t)["run"].(map[string]any)["specVersion"], number(version))
			continue
		}
		p := wantProblem(t, got, status, "spec_version")
		if !strings.Contains(p.Message, fmt.Sprintf("version %d: the server knows 2 to 8: ", version)) {
			t.Errorf("message %q does not say why", p.Message)
		}
	}
	silent := c.post(t, newID("wrun_"), "run_created", []byte("devl[1]"), append(creation("w"), field{"specVersion", undefined})...)
	check.Equal(t, "version when none is said", silent.cbor(t)["run"].(map[string]any)["specVersion"], number(2))
}
