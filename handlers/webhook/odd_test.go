package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// oddFlow has a schema for its input and for the output of its step, and expressions with both.
const oddFlow = `
flow: odd
deployment: shop
input: {properties: {body: {properties: {amount: {minimum: 0}}, items: {type: integer}}}}
steps:
  a: {call: a, input: "${input.body}", retry: {maxAttempts: 1}, catch: [{}]}
  b: {needs: a, set: "${steps.a.output}", schema: {properties: {amount: {minimum: 0, multipleOf: 0.01}}}, catch: [{}]}
  c: {needs: a, set: {is: "${steps.a.output == input.body}", t: "x ${steps.a.output}"}, catch: [{}]}
`

// oddFunction returns a function that has the value as the output of each step, and asks for an approval with it as the
// form.
func oddFunction(value *atomic.Value) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Type   string
			Events []struct{ Type string }
		}
		odd, _ := value.Load().(string)
		switch err := json.NewDecoder(r.Body).Decode(&call); {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		case call.Type == "step":
			_, _ = w.Write([]byte(odd))
		case len(call.Events) > 2:
			_, _ = w.Write([]byte(`{"commands":[{"type":"complete"}]}`))
		default:
			_, _ = fmt.Fprintf(w, `{"commands":[{"type":"openHook","id":"h","approval":{"title":"t","form":%s}},{"type":"complete"}]}`, odd)
		}
	})
}

// FuzzStrangers: whatever JSON a stranger sends to a trigger, and a function answers, the work for it neither panics nor
// stays: the run of a flow ends, and a function's run ends or says what is wrong with its answer.
func FuzzStrangers(f *testing.F) {
	for _, value := range []string{
		`{"amount":1e99999999}`, `{"amount":1e-99999999}`, `[1e999999,1e999999]`, `1e400`, `{"\ud800":1,"\ud801":2}`,
		`{"amount":"\ud800"}`, `{"\u0000":"\u0000"}`, `{"a":1,"a":2}`, `{"multipleOf":1e99999999}`, `{"multipleOf":1e-300}`,
		`{"$ref":"#"}`, `{"pattern":"(a?){500}b"}`, `{"type":["x"]}`, `null`, `"${1}"`, `{"body":{"amount":-0.001}}`,
		strings.Repeat("[", 1100) + strings.Repeat("]", 1100), `"` + strings.Repeat("x", 300_000) + `"`,
	} {
		f.Add(value)
	}
	d := newTestServer(f)
	d.work(f)
	var value atomic.Value
	function := httptest.NewServer(oddFunction(&value))
	f.Cleanup(function.Close)
	d.register(f, function.URL)
	key := []string{"Authorization", "Bearer sk", "Content-Type", "application/json"}
	document, err := json.Marshal(map[string]string{"document": oddFlow})
	if err != nil {
		f.Fatal(err)
	}
	if w := d.call(http.MethodPost, "/v1/flows", string(document), key...); w.Code != http.StatusCreated {
		f.Fatalf("put the flow: %d %s", w.Code, w.Body)
	}
	trg, _, err := engine.New(d.queue, d.log).Triggers().Put(f.Context(), entities.DefaultProject, "t",
		trigger.Spec{Kind: trigger.KindWebhook, Workflow: "odd"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, odd string) {
		if !json.Valid([]byte(odd)) {
			return
		}
		value.Store(odd)
		panics := rescue.Panics()
		for name, w := range map[string]*httptest.ResponseRecorder{
			"webhook":  d.call(http.MethodPost, "/hooks/"+trg.Source, odd, "Content-Type", "application/json"),
			"function": d.call(http.MethodPost, "/v1/runs", `{"workflow":"w","deployment":"shop"}`, key...),
		} {
			if w.Code >= http.StatusInternalServerError {
				t.Errorf("%s of %.200s: got %d %.300s", name, odd, w.Code, w.Body)
			}
		}
		eventually(t, "all work is done, or says what is wrong", func() bool {
			var open int
			err := d.pool.QueryRow(t.Context(), `
				SELECT count(*) FROM runs r WHERE completed_at IS NULL AND NOT EXISTS (
					SELECT FROM messages m WHERE m.run_id = r.id AND m.last_error <> '')`).Scan(&open)
			if err != nil {
				t.Fatal(err)
			}
			return open == 0
		})
		if rescue.Panics() != panics {
			t.Errorf("%.200s: the server panicked", odd)
		}
	})
}
