package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestMapSurvivesServerCrashes kills one of two servers once a second while they execute a map: each item completes once,
// and the output is in the order of the items. FLOW_ITEMS is the number of items; make flow-crashes has 10,000.
func TestMapSurvivesServerCrashes(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	items, kills := 400, 3
	if n, err := strconv.Atoi(os.Getenv("FLOW_ITEMS")); err == nil {
		items, kills = n, 1_000_000
	}
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Step struct{ Input json.RawMessage }
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		time.Sleep(5 * time.Millisecond) // some are under way whenever a server is killed
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(call.Step.Input)
	}))
	t.Cleanup(f.Close)
	dsn := testdb.New(t)
	servers := [2]*server{newReplica(t, dsn), newReplica(t, dsn)}
	servers[0].register(t, "items", f.URL)
	document := `
flow: items
deployment: items
steps:
  m: {map: input, concurrency: 500, do: {call: echo}}
output: "${steps.m.output}"
`
	servers[0].putFlow(t, document)
	input := make([]int, items)
	for i := range input {
		input[i] = i
	}
	body, err := json.Marshal(map[string]any{"workflow": "items", "input": input})
	if err != nil {
		t.Fatal(err)
	}
	id := decode[struct{ ID string }](t, request(t, http.MethodPost, servers[0].url()+"/v1/runs", body).Want(t, http.StatusCreated)).ID

	began, killed := time.Now(), 0
	var run struct {
		Status string
		Output []int
	}
	for run.Status != "completed" {
		if time.Since(began) > time.Minute+time.Duration(items)*100*time.Millisecond || run.Status == "failed" {
			t.Fatalf("the run is %q", run.Status)
		}
		if killed < kills {
			// The same one mostly: what a server had leased is taken over after five seconds, by one that lives that long.
			victim := servers[1]
			if killed%15 == 14 {
				victim = servers[0]
			}
			victim.Kill()
			killed++
			victim.start(t)
		}
		r := request(t, http.MethodGet, servers[0].url()+"/v1/runs/"+id+"/wait?timeout=1s", nil)
		if r.Status == http.StatusOK {
			run.Status = ""
			if err := json.Unmarshal(r.Body, &run); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d items with %d kills: %s", items, killed, time.Since(began))
	if diff := cmp.Diff(input, run.Output); diff != "" {
		t.Errorf("output (-want +got):\n%.2000s", diff)
	}
	created, completed := map[string]int{}, map[string]int{}
	for _, e := range servers[0].events(t, id) {
		switch {
		case !strings.HasPrefix(e.CorrelationID, "m["):
		case e.Type == "step_created":
			created[e.CorrelationID]++
		case e.Type == "step_completed":
			completed[e.CorrelationID]++
		}
	}
	want := map[string]int{}
	for i := range items {
		want[fmt.Sprintf("m[%d]", i)] = 1
	}
	if diff := cmp.Diff(want, created) + cmp.Diff(want, completed); diff != "" {
		t.Errorf("items began and completed (-want +got):\n%.2000s", diff)
	}
}

// putFlow stores a version of a flow.
func (s *server) putFlow(t *testing.T, document string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"document": document})
	if err != nil {
		t.Fatal(err)
	}
	request(t, http.MethodPost, s.url()+"/v1/flows", body).Want(t, http.StatusCreated)
}
