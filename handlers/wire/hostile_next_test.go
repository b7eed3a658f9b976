package wire_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// textFields are the text fields that the next line adds to the metadata of events.
var textFields = []string{"resumeId", "resumePayloadDigest", "sinceCursor"}

// TestInvalidTextsInNextLineFields tries invalid texts in each event, alone and in a batch.
func TestInvalidTextsInNextLineFields(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	c.must(t, id, "step_created", nil, stepMeta("step_1")...)
	c.must(t, id, "hook_created", nil, field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
	for kind, bad := range invalidTexts() {
		for _, eventType := range []string{"run_completed", "run_started", "step_completed", "step_started", "hook_received", "attr_set"} {
			for _, name := range textFields {
				if kind == "surrogate" {
					continue // repaired
				}
				fields := []field{
					{"correlationId", map[string]any{"hook_received": "hook_1", "attr_set": "attr_1"}[eventType]},
					{"stepName", "s"}, {"changes", []any{map[string]any{"key": "k", "value": "v"}}}, {name, raw(t, bad)},
				}
				if strings.HasPrefix(eventType, "step") {
					fields[0].value = "step_1"
				} else if fields[0].value == nil {
					fields[0].value = undefined
				}
				c.wantRefused(t, eventType+": "+kind+" in "+name, c.post(t, id, eventType, []byte("x"), fields...))
			}
		}
		key := raw(t, bad)
		if got := c.post(t, newID("wrun_"), "run_created", []byte("x"), append(creation("w"), field{"encryptionPublicKey", key})...); got.status >= 500 {
			t.Errorf("%s in a key: got %d; log: %s", kind, got.status, c.logs)
		}
		for _, path := range []string{"/v4/runs/%s/events/batch", "/v2/runs/%s/attributes"} {
			path = fmt.Sprintf(path, urlEscaped(bad))
			c.wantRefused(t, kind+" in "+path, c.send(t, http.MethodPost, path, bytes.NewReader(meta(t, field{"changes", []any{}}))))
		}
		c.wantRefused(t, kind+" in status", c.get(t, "/v2/runs/"+urlEscaped(bad)+"/status?waitMs=1"))
		c.wantRefused(t, kind+" in waitMs", c.get(t, "/v2/runs/"+id+"/status?waitMs="+urlEscaped(bad)))
		if kind == "surrogate" {
			continue // repaired, it is the ID of a run that is not there
		}
		c.wantRefused(t, kind+" in runIds", c.sendCBOR(t, "/v4/runs/cancel", field{"runIds", codec.Raw(append([]byte{0x81}, text(bad)...))}))
	}
	check.Equal(t, "length of the log", len(c.log(t, id)), 4)
}

// urlEscaped escapes a text for a path or a query.
func urlEscaped(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// oddValues are values of every type, including extreme numbers.
var oddValues = map[string]codec.Raw{
	"null": {0xf6}, "true": {0xf5}, "zero": {0x00}, "minus one": {0x20}, "2^63": {0x1b, 0x80, 0, 0, 0, 0, 0, 0, 0},
	"2^64-1": {0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "-2^64": {0x3b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	"2^53": {0x1b, 0, 0x20, 0, 0, 0, 0, 0, 0}, "half": {0xf9, 0x38, 0x00}, "infinity": {0xf9, 0x7c, 0x00}, "NaN": {0xf9, 0x7e, 0x00},
	"1e300": {0xfb, 0x7e, 0x37, 0xe4, 0x3c, 0x88, 0x00, 0x75, 0x9c}, "no text": {0x60}, "text": {0x61, 'a'}, "bytes": {0x41, 0xff},
	"no list": {0x80}, "list": {0x81, 0x01}, "no map": {0xa0}, "map": {0xa1, 0x61, 'a', 0x61, 'b'}, "map of numbers": {0xa1, 0x01, 0x02},
	"date": {0xc1, 0x1a, 0x69, 0, 0, 0}, "date of NaN": {0xc1, 0xf9, 0x7e, 0x00}, "date of the year 10,000": {0xc1, 0x1b, 0, 0, 0, 0x3a, 0xff, 0xf4, 0x41, 0x80},
	"date before Christ": {0xc1, 0x3b, 0, 0, 0, 0x0f, 0xff, 0xff, 0xff, 0xff}, "big number": {0xc2, 0x41, 0x01}, "nested": append(bytes.Repeat([]byte{0x81}, 64), 0x01),
	"undefined": {0xf7},
}

// TestOddValuesInNextLineFields: the result is success or a client error, and accepted values can be read again.
func TestOddValuesInNextLineFields(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	c.must(t, id, "hook_created", nil, field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
	names := append([]string{
		"maxSlot", "skipPreload", "attributes", "allowReservedAttributes", "hookTokenRetentionUntil", "hookIsSystem", "changes",
		"writer", "viaStepDispatch", "computeInstanceId", "replayDivergenceCount", "cancelReason",
		"encryptionPublicKey", "remoteRefBehavior", "eventsRemoteRefBehavior", "executorSpecVersion", "stepCount",
	}, textFields...)
	for kind, value := range oddValues {
		for _, name := range names {
			for eventType, fields := range map[string][]field{
				"run_created":   append(creation("w"), ofNext),
				"run_started":   append(creation("w"), ofNext),
				"step_started":  {{"correlationId", newID("step_")}, {"stepName", "s"}},
				"hook_created":  {{"correlationId", newID("hook_")}, {"hookToken", newID("")}},
				"hook_received": {{"correlationId", "hook_1"}},
				"attr_set":      {{"changes", []any{map[string]any{"key": "k", "value": "v"}}}},
			} {
				runID := id
				if eventType == "run_created" || eventType == "run_started" {
					runID = newID("wrun_")
				}
				got := c.post(t, runID, eventType, []byte("x"), append(fields, field{name, value})...)
				if got.status != http.StatusOK && (got.status < 400 || got.status > 499) {
					t.Errorf("%s: %s as %s: got %d %s; log: %s", eventType, kind, name, got.status, got.body, c.logs)
				}
				if got.status == http.StatusOK {
					got.cbor(t)
				}
			}
		}
		for path, names := range map[string][]string{
			"/v4/runs/cancel": {"runIds", "cancelReason"}, "/v2/runs/" + id + "/attributes": {"changes", "allowReservedAttributes"},
		} {
			for _, name := range names {
				fields := []field{{"runIds", []string{newID("wrun_")}}, {"changes", []any{map[string]any{"key": "k", "value": "v"}}}, {name, value}}
				if got := c.sendCBOR(t, path, fields...); got.status >= 500 {
					t.Errorf("%s: %s as %s: got %d %s; log: %s", path, kind, name, got.status, got.body, c.logs)
				}
			}
		}
	}
	for _, e := range c.log(t, id) {
		if e.meta["eventType"] == nil {
			t.Errorf("event %v has no type", e.meta)
		}
	}
}

// TestArbitraryBodiesAreRejected where frames, multipart or CBOR are expected, without writing anything.
func TestArbitraryBodiesAreRejected(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	good := framed(t, "step_created", "", field{"correlationId", "step_1"}, field{"stepName", "s"})
	mixed := multipartOf(part{body: "x"}, part{body: "y"})
	rapid.Check(t, func(rt *rapid.T) {
		junk := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.IntRange(0, len(good)-1), func(n int) []byte { return good[:n] }),
			rapid.Map(rapid.IntRange(0, len(mixed)-5), func(n int) []byte { return []byte(mixed[:n]) }),
		).Draw(rt, "junk")
		for _, path := range []string{
			"/v4/runs/" + id + "/events/batch", "/v4/runs/cancel", "/v2/runs/" + id + "/attributes", queuePath + flowTopic + "/batch",
		} {
			got := c.send(t, http.MethodPost, path, bytes.NewReader(junk), "Vqs-Deployment-Id", "dpl_x",
				"Content-Type", "multipart/mixed; boundary="+boundary)
			if got.status < 400 || got.status > 499 {
				rt.Errorf("%s: got %d %s; log: %s", path, got.status, got.body, c.logs)
			}
		}
	})
	check.Equal(t, "length of the log", len(c.log(t, id)), 2)
	check.Equal(t, "number of messages", c.messages(t), 0)
}

// TestUnsupportedEndpointsFailFast with the status that makes clients work without them.
func TestUnsupportedEndpointsFailFast(t *testing.T) { // §9
	t.Parallel()
	c := client{newServer(t), beta}
	upgrade := []string{
		"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==",
	}
	runID := c.newRun(t)
	for _, tt := range []struct {
		method, path string
		header       []string
	}{
		{http.MethodGet, "/websockets/v1/runs/" + runID, upgrade},
		{http.MethodGet, "/websockets/v1/runs/" + runID + "/streams/strm_1?writerId=1", upgrade},
		{http.MethodPut, "/v1/runs/" + runID + "/cancel", nil},
		{http.MethodPost, "/v1/runs/create", nil},
		{http.MethodGet, "/v9/anything", nil},
	} {
		wantProblem(t, c.send(t, tt.method, tt.path, nil, tt.header...), http.StatusNotFound, "not_found")
	}
}
