package rest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// watch opens a live view and returns a function that returns its next event of a type. Events of other types between
// them are skipped.
func (a api) watch(t *testing.T, query string, header ...string) func(kind string) block {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	answer := tail(t, t.Context(), server.URL+"/v1/live?"+query, header...)
	if answer.StatusCode != http.StatusOK || answer.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("got %s, %v", answer.Status, answer.Header)
	}
	r := bufio.NewReader(answer.Body)
	return func(kind string) block {
		t.Helper()
		for {
			b, err := nextBlock(r)
			if err != nil {
				t.Fatalf("waiting for %s: %v", kind, err)
			}
			if b.event == kind {
				return b
			}
		}
	}
}

func wantData(t *testing.T, b block, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(b.data, part) {
			t.Errorf("%s: got %s, want %s in it", b.event, b.data, part)
		}
	}
}

func TestLiveRuns(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	next := a.watch(t, "runs=true&topics=true&status=running&workflow=order")
	wantData(t, next("hello"), `"resumed":false`)
	id := a.sdkRun(t, "order")
	wantData(t, next("runs"), fmt.Sprintf(`{"runs":[],"gone":[{"id":%q,"lastSeq":1}]}`, id))
	wantData(t, next("changed"), `"runs"`)
	a.sdkRun(t, "refund") // matches no viewer
	a.event(t, id, entities.EventRunStarted)
	running := next("runs")
	wantData(t, running, string(id), `"status":"running"`, `"lastSeq":2`, `"gone":[]`)
	again := a.watch(t, "runs=true&status=running", "Last-Event-ID", running.id)
	wantData(t, again("hello"), `"resumed":true`)
	a.event(t, id, entities.EventRunCompleted)
	gone := fmt.Sprintf(`{"id":%q,"lastSeq":3}`, id)
	wantData(t, next("runs"), gone)
	b := again("runs")
	if !strings.Contains(b.data, gone) { // what was written at the same time as the event of the ID comes again
		wantData(t, b, `"lastSeq":2`)
		b = again("runs")
	}
	wantData(t, b, gone)
}

func TestLiveRun(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.sdkRun(t, "order")
	a.event(t, id, entities.EventRunStarted)
	next := a.watch(t, "run="+string(id)+"&after=1")
	next("hello")
	wantData(t, next("log"), `"to":2`)
	wantData(t, next("run"), `"status":"running"`)
	a.event(t, id, entities.EventRunCompleted, with(`"secret"`))
	log := next("log")
	wantData(t, log, `"to":3,"events":[{`, `"type":"run_completed"`) // events that were told may be told again
	if strings.Contains(log.data, "secret") {
		t.Errorf("got a payload: %s", log.data)
	}
	wantData(t, next("run"), `"status":"completed"`, `"lastSeq":3`)
	a.drain()
	next("bye")
}

func TestLiveViewsAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.wantRejected(t, http.MethodGet, "/v1/live", "", 400, "invalid_request")
	a.wantRejected(t, http.MethodGet, "/v1/live?runs=true&status=none", "", 400, "invalid_request")
	a.wantRejected(t, http.MethodGet, "/v1/live?topics=true&after=-1", "", 400, "invalid_request")
	a.wantRejected(t, http.MethodGet, "/v1/live?run="+string(newRunID()), "", 404, "run_not_found")
}

// TestLiveViewsEndWithTheServer: the last event tells that the answer is complete.
func TestLiveViewsEndWithTheServer(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	r := bufio.NewReader(tail(t, t.Context(), server.URL+"/v1/live?topics=true").Body)
	a.drain()
	for {
		if b, err := nextBlock(r); err != nil || b.event == "bye" {
			if _, end := nextBlock(r); err != nil || !errors.Is(end, io.EOF) {
				t.Errorf("got error %v, then %v", err, end)
			}
			return
		}
	}
}
