package wire_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// await waits for the end of a run and sends the answer to the channel.
func (c client) await(t *testing.T, id, query string) <-chan answer {
	t.Helper()
	got := make(chan answer, 1)
	go func() { got <- c.get(t, "/v2/runs/"+id+"/status?"+query) }()
	return got
}

func TestAwaitRunReturnsAtEndOrTimeout(t *testing.T) { // §3.14
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	t.Run("returns the unfinished run at the timeout", func(t *testing.T) {
		for _, query := range []string{"", "waitMs=0", "waitMs=", "waitMs=20&remoteRefBehavior=lazy"} {
			before := time.Now()
			got := <-c.await(t, id, query)
			wantStatus(t, got, http.StatusOK)
			if took := time.Since(before); strings.Contains(query, "20") && took < 20*time.Millisecond {
				t.Errorf("%s: answered after %s", query, took)
			}
			plain := c.get(t, "/v2/runs/"+id+"?"+query)
			check.Equal(t, "run", got.cbor(t), plain.cbor(t))
		}
	})
	t.Run("rejects invalid requests", func(t *testing.T) {
		for _, wait := range []string{"soon", "-1", "1.5", "0x10", "9999999999999999999", "2147483648", "%00"} {
			wantProblem(t, <-c.await(t, id, "waitMs="+wait), http.StatusBadRequest, "invalid_request")
		}
		before := time.Now()
		wantProblem(t, <-c.await(t, newID("wrun_"), "waitMs=50000"), http.StatusNotFound, "run_not_found")
		if took := time.Since(before); took > timeout/2 {
			t.Errorf("waited %s for a missing run", took)
		}
	})
	t.Run("stops waiting when the client disconnects", func(t *testing.T) {
		ctx, hangUp := context.WithCancel(t.Context())
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/sdk/v2/runs/"+id+"/status?waitMs=50000", nil)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			c.web.Config.Handler.ServeHTTP(httptest.NewRecorder(), req)
		}()
		hangUp()
		select {
		case <-gone:
		case <-time.After(timeout):
			t.Error("the server still waits after the client disconnected")
		}
	})
	t.Run("answers when the run ends", func(t *testing.T) {
		for eventType, status := range map[string]string{
			"run_completed": "completed", "run_failed": "failed", "run_cancelled": "cancelled", "in bulk": "cancelled",
		} {
			id := c.newRunNext(t)
			waiting := []<-chan answer{
				c.await(t, id, "waitMs=50000&remoteRefBehavior=lazy"), c.await(t, id, "waitMs=2147483647"),
			}
			if eventType == "in bulk" {
				wantStatus(t, c.cancel(t, []string{id}, ""), http.StatusOK)
			} else {
				c.must(t, id, eventType, []byte("devl[9]"))
			}
			for i, ended := range waiting {
				run := (<-ended).cbor(t)
				check.Equal(t, "status", run["status"], any(status))
				if _, resolved := run["input"]; resolved != (i == 1) {
					t.Errorf("waiter %d: input is there: %t", i, resolved)
				}
			}
			check.Equal(t, "after the end", (<-c.await(t, id, "waitMs=50000")).cbor(t)["status"], any(status))
		}
	})
	t.Run("answers when the server stops", func(t *testing.T) {
		waiting := c.await(t, id, "waitMs=50000")
		c.drain()
		got := <-waiting
		wantStatus(t, got, http.StatusOK)
		check.Equal(t, "status", got.cbor(t)["status"], any("running"))
	})
}

// cancel cancels runs in bulk.
func (c client) cancel(t *testing.T, runIDs any, reason string) answer {
	t.Helper()
	fields := []field{{"runIds", runIDs}}
	if reason != "" {
		fields = append(fields, field{"cancelReason", reason})
	}
	return c.sendCBOR(t, "/v4/runs/cancel", fields...)
}

// sendCBOR posts a map.
func (c client) sendCBOR(t *testing.T, path string, fields ...field) answer {
	t.Helper()
	return c.send(t, http.MethodPost, path, bytes.NewReader(meta(t, fields...)), "Content-Type", "application/cbor")
}

func TestBulkCancelReportsEachRun(t *testing.T) { // §3.15
	t.Parallel()
	c := client{newServer(t), next}
	running, pending, done, failed, cancelled := c.newRunNext(t), c.newRun(t), c.newRun(t), c.newRun(t), c.newRun(t)
	c.must(t, running, "hook_created", nil, field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
	c.must(t, done, "run_completed", nil)
	c.must(t, failed, "run_failed", nil)
	c.must(t, cancelled, "run_cancelled", nil)
	missing := newID("wrun_")
	ids := []string{running, done, missing, cancelled, pending, failed}
	result := func(id, outcome string, more ...string) any {
		m := map[string]any{"runId": id, "outcome": outcome}
		if len(more) > 0 {
			m["status"] = more[0]
		}
		return m
	}
	got := c.cancel(t, ids, "no longer wanted")
	wantStatus(t, got, http.StatusOK)
	check.Equal(t, "answer", got.cbor(t), map[string]any{
		"summary": map[string]any{
			"requested": uint64(6), "cancelled": uint64(2), "alreadyCancelled": uint64(1), "notCancellable": uint64(2),
			"notFound": uint64(1), "failed": uint64(0),
		},
		"results": []any{
			result(running, "cancelled"), result(done, "not_cancellable", "completed"), result(missing, "not_found"),
			result(cancelled, "already_cancelled"), result(pending, "cancelled"), result(failed, "not_cancellable", "failed"),
		},
	})
	for id, n := range map[string]int{running: 4, pending: 2, done: 2, cancelled: 2} {
		log := c.log(t, id)
		check.Equal(t, "length of the log", len(log), n)
		if last := log[n-1].meta; (id == running || id == pending) != cmpData(last, "run_cancelled", "no longer wanted") {
			t.Errorf("the log ends in %v", last)
		}
	}
	check.Equal(t, "version of the event", c.log(t, running)[3].meta["specVersion"], any(uint64(7)))
	wantProblem(t, c.get(t, "/v2/hooks/by-token?token=tok"), http.StatusNotFound, "hook_not_found")

	again := c.cancel(t, []string{running}, "").cbor(t)
	check.Equal(t, "again", again["results"], any([]any{result(running, "already_cancelled")}))
	check.Equal(t, "length of the log after it", len(c.log(t, running)), 4)
	quiet := c.newRun(t)
	wantStatus(t, c.cancel(t, []string{quiet}, ""), http.StatusOK)
	if data, ok := c.log(t, quiet)[1].meta["eventData"]; ok {
		t.Errorf("without a reason the event has %v", data)
	}
}

// cmpData reports whether an event has the type and the reason.
func cmpData(e map[string]any, eventType, reason string) bool {
	data, _ := e["eventData"].(map[string]any)
	return e["eventType"] == eventType && data["cancelReason"] == reason
}

func TestBulkCancelRejectsInvalidRequests(t *testing.T) { // §3.15
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRun(t)
	var many []string
	for range 501 {
		many = append(many, newID("wrun_"))
	}
	for name, got := range map[string]answer{
		"none":                      c.cancel(t, []string{}, ""),
		"no list":                   c.sendCBOR(t, "/v4/runs/cancel"),
		"null":                      c.cancel(t, codec.Raw{0xf6}, ""),
		"a text":                    c.cancel(t, id, ""),
		"numbers":                   c.cancel(t, []int{1}, ""),
		"too many":                  c.cancel(t, many, ""),
		"twice":                     c.cancel(t, []string{id, id}, ""),
		"an empty one":              c.cancel(t, []string{id, ""}, ""),
		"a path":                    c.cancel(t, []string{id, "a/b"}, ""),
		"NUL":                       c.cancel(t, []string{id, "a\x00"}, ""),
		"a long reason":             c.cancel(t, []string{id}, strings.Repeat("x", 513)),
		"a reason that is not text": c.sendCBOR(t, "/v4/runs/cancel", field{"runIds", []string{id}}, field{"cancelReason", 7}),
		"no CBOR":                   c.send(t, http.MethodPost, "/v4/runs/cancel", strings.NewReader(`{"runIds":["a"]}`)),
		"nothing":                   c.send(t, http.MethodPost, "/v4/runs/cancel", nil),
		"more after it":             c.send(t, http.MethodPost, "/v4/runs/cancel", bytes.NewReader(append(meta(t, field{"runIds", []string{id}}), 0))),
		"a list":                    c.send(t, http.MethodPost, "/v4/runs/cancel", bytes.NewReader([]byte{0x80})),
	} {
		if got.status != http.StatusBadRequest {
			t.Errorf("%s: got %d %s, want 400", name, got.status, got.body)
		}
	}
	check.Equal(t, "status", c.get(t, "/v2/runs/"+id).cbor(t)["status"], any("pending"))
	most := c.cancel(t, append(many[:499:499], id), strings.Repeat("ä", 512))
	wantStatus(t, most, http.StatusOK)
	check.Equal(t, "not found of 500", most.cbor(t)["summary"].(map[string]any)["notFound"], any(uint64(499)))
}

func TestAttributesAreChangedFromOutside(t *testing.T) { // endpoint 20
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	change := func(key string, value any) map[string]any { return map[string]any{"key": key, "value": value} }
	set := func(id string, changes any, more ...field) answer {
		return c.sendCBOR(t, "/v2/runs/"+id+"/attributes", append([]field{{"changes", changes}}, more...)...)
	}
	got := set(id, []any{change("tier", nil), change("who", "ops")})
	wantStatus(t, got, http.StatusOK)
	check.Equal(t, "answer", got.cbor(t), map[string]any{"attributes": map[string]any{"who": "ops", "$r": "0"}})
	check.Equal(t, "run", c.get(t, "/v2/runs/"+id).cbor(t)["attributes"], any(map[string]any{"who": "ops", "$r": "0"}))
	last := c.log(t, id)[2]
	check.Equal(t, "event", last.meta, map[string]any{
		"eventId": eventID(3), "runId": id, "eventType": "attr_set", "specVersion": uint64(7), "createdAt": shown(t0),
		// A replay ignores changes by steps, but would fail on a change by the workflow that its code did not make.
		"eventData": map[string]any{
			"changes": []any{change("tier", nil), change("who", "ops")},
			"writer":  map[string]any{"type": "step", "stepId": "outside", "attempt": uint64(0)},
		},
	})
	wantStatus(t, set(id, []any{change("who", "ops")}), http.StatusOK) // recorded again
	wantStatus(t, set(id, []any{change("$s", "1")}, field{"allowReservedAttributes", true}), http.StatusOK)

	full := []any{}
	for i := range 64 {
		full = append(full, change(fmt.Sprint(i), "v"))
	}
	for name, got := range map[string]answer{
		"reserved": set(id, []any{change("$a", "1")}), "none": set(id, []any{}), "missing": c.sendCBOR(t, "/v2/runs/"+id+"/attributes"),
		"twice": set(id, []any{change("a", "1"), change("a", "2")}), "too many": set(id, full),
		"NUL": set(id, []any{change("a", "\x00")}), "NUL in the key": set(id, []any{change("a\x00", "")}),
		"long": set(id, []any{change("a", strings.Repeat("x", 257))}), "a number": set(id, []any{change("a", 1)}),
		"no key": set(id, []any{map[string]any{"value": "v"}}), "no changes": set(id, "a"), "a map": set(id, map[string]any{"a": "b"}),
		"an invalid permission": set(id, []any{change("a", "1")}, field{"allowReservedAttributes", "yes"}),
		"no CBOR":               c.send(t, http.MethodPost, "/v2/runs/"+id+"/attributes", strings.NewReader("{}")),
	} {
		if got.status != http.StatusBadRequest {
			t.Errorf("%s: got %d %s, want 400", name, got.status, got.body)
		}
	}
	check.Equal(t, "length of the log", len(c.log(t, id)), 5)
	wantProblem(t, set(newID("wrun_"), []any{change("a", "1")}), http.StatusNotFound, "run_not_found")
	c.must(t, id, "run_completed", nil)
	wantProblem(t, set(id, []any{change("a", "1")}), http.StatusConflict, "conflict")
}

// TestLiveReadByRunAndName: clients of the next line send the run ID too (§4).
func TestLiveReadByRunAndName(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	c.mustWrite(t, "strm_1", multi("one", "two"), "X-Stream-Multi", "true")
	path := "/v3/runs/" + noRun + "/stream/strm_1"
	body, _ := c.tail(t, path)
	wantNext(t, body, "onetwo")
	late, _ := c.tail(t, path+"?startIndex=1")
	wantNext(t, late, "two")
	c.mustWrite(t, "strm_1", "three")
	wantNext(t, body, "three")
	c.closeStream(t, "strm_1")
	wantEnd(t, body)
	wantNext(t, late, "three")
	wantEnd(t, late)
	for _, index := range []string{"x", "1.5", "99999999999999999999"} {
		wantProblem(t, c.get(t, path+"?startIndex="+index), http.StatusBadRequest, "invalid_request")
	}
}

// TestConcurrentBulkCancelsEndEachRunOnce runs two bulk cancels while the runs complete.
func TestConcurrentBulkCancelsEndEachRunOnce(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	var ids []string
	for range 40 {
		ids = append(ids, c.newRun(t))
	}
	reversed := slices.Clone(ids)
	slices.Reverse(reversed)
	answers := make(chan answer, 2)
	for _, list := range [][]string{ids, reversed} {
		go func() { answers <- c.cancel(t, list, "") }()
	}
	for _, id := range ids[:10] {
		if got := c.post(t, id, "run_completed", nil); got.status != http.StatusOK && got.status != http.StatusConflict {
			t.Errorf("run_completed: got %d %s", got.status, got.body)
		}
	}
	claimed := uint64(0)
	for range 2 {
		got := <-answers
		wantStatus(t, got, http.StatusOK)
		summary := got.cbor(t)["summary"].(map[string]any)
		claimed += summary["cancelled"].(uint64)
		if summary["failed"] != uint64(0) || summary["notFound"] != uint64(0) {
			t.Errorf("got %v, want no failures", summary)
		}
	}
	cancelled := uint64(0)
	for _, id := range ids {
		ends := map[any]int{}
		for _, e := range c.log(t, id) {
			ends[e.meta["eventType"]]++
		}
		if ends["run_completed"]+min(1, ends["run_cancelled"]) != 1 {
			t.Errorf("the run has the ends %v, want one", ends)
		}
		cancelled += uint64(min(1, ends["run_cancelled"]))
	}
	check.Equal(t, "cancelled runs that answers report", claimed, cancelled)
}
