package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestWebhookOfATriggerAnswersWithTheFlow sends requests to the URL of a trigger that responds: the sender gets what the
// flow responds while the flow goes on, the output of a flow that does not respond, and no reason of one that fails.
func TestWebhookOfATriggerAnswersWithTheFlow(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newReplica(t, testdb.New(t))
	s.putFlow(t, `
flow: quote
steps:
  check: {fail: {code: too_many, message: only a few}, when: input.body.n > 100}
  price: {set: "${input.body.n * 3}"}
  reply:
    needs: [price]
    when: input.body.respond
    respond: {status: 201, body: {price: "${steps.price.output}"}}
  rest: {needs: [reply], when: input.body.respond, wait: 1h}
output: "${steps.price.output}"
`)
	body, err := json.Marshal(map[string]any{
		"on": map[string]any{"webhook": map[string]any{"respond": "1m"}}, "start": map[string]string{"workflow": "quote"},
	})
	if err != nil {
		t.Fatal(err)
	}
	put := request(t, http.MethodPut, s.url()+"/v1/triggers/quote", body).Want(t, http.StatusCreated)
	url := s.url() + decode[struct{ Path string }](t, put).Path
	// send waits for another answer than the run's ID, however slow the run is: a repetition waits for the same run.
	send := func(key, body string) (r response) {
		harness.Eventually(t, "the answer of the run", func() bool {
			r = requestWith(t, http.MethodPost, url, []byte(body), "Idempotency-Key", key)
			return r.Status != http.StatusAccepted
		})
		return r
	}
	for _, test := range []struct {
		name, body, want string
		status           int
	}{
		{"respond", `{"n": 7, "respond": true}`, `{"price": 21}`, http.StatusCreated},
		{"output", `{"n": 5, "respond": false}`, `15`, http.StatusOK},
	} {
		r := send(test.name, test.body).Want(t, test.status)
		var got, want any
		if err := json.Unmarshal([]byte(test.want), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(r.Body, &got); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	r := send("failure", `{"n": 101, "respond": false}`).Want(t, http.StatusUnprocessableEntity)
	if !strings.Contains(string(r.Body), `"run_failed"`) || strings.Contains(string(r.Body), "only a few") {
		t.Errorf("a failed flow answers %s", r.Body)
	}
}
