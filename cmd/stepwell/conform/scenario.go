package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// scenario is a workflow that the function has for the checks, and what its run must do.
type scenario struct {
	workflow, input string
	// act is what somebody else does while the run is in progress; nil for nothing.
	act func(context.Context, *checker, string) error
	// check returns why the run did not do what it should; empty if it did.
	check func(run api.Run, log []api.Event) string
}

// odd is a value that is easily changed on its way.
const odd = `{"text":"grüße \ud83c\udf0d \u0000","n":9007199254740991,"none":null,"list":[[],{}]}`

// scenarios are those of docs/conform.md.
var scenarios = []scenario{
	{workflow: "conform.echo", input: odd, check: outputs(odd)},
	{workflow: "conform.steps", input: `3`, check: steps(3)},
	{workflow: "conform.parallel", input: `5`, check: parallelSteps(5)},
	{workflow: "conform.sleep", input: `"1s"`, check: sleeps},
	{workflow: "conform.retry", input: `null`, check: retries},
	{workflow: "conform.fail", input: `null`, check: fails},
	{workflow: "conform.hook", act: resumeHook, check: outputs(`{"approved":true}`)},
	{workflow: "conform.child", input: `"to the child"`, check: outputs(`"to the child"`)},
}

// outputs wants the run to complete with an output.
func outputs(want string) func(api.Run, []api.Event) string {
	return func(run api.Run, _ []api.Event) string {
		if run.Status != "completed" || !sameJSON(run.Output, []byte(want)) {
			return fmt.Sprintf("it is %s with %s, and should be completed with %s", run.Status, shown(run.Output), want)
		}
		return ""
	}
}

// steps wants so many steps, and an output of the results that the log has of them, one after the other.
func steps(n int) func(api.Run, []api.Event) string {
	return func(run api.Run, log []api.Event) string {
		results := resultsOf(log)
		if len(results) != n {
			return fmt.Sprintf("its log has %d results of steps, and should have %d", len(results), n)
		}
		return outputs("["+strings.Join(results, ",")+"]")(run, log)
	}
}

// parallelSteps is steps with an output in any order, since steps that are executed at the same time end in any.
func parallelSteps(n int) func(api.Run, []api.Event) string {
	return func(run api.Run, log []api.Event) string {
		var output []json.RawMessage
		if err := json.Unmarshal(run.Output, &output); err != nil {
			return fmt.Sprintf("its output is %s, and should be a list", shown(run.Output))
		}
		slices.SortFunc(output, func(a, b json.RawMessage) int { return strings.Compare(shown(a), shown(b)) })
		run.Output, _ = json.Marshal(output) // it was decoded
		return steps(n)(run, slices.SortedFunc(slices.Values(log), func(a, b api.Event) int {
			return strings.Compare(shown(a.Payload), shown(b.Payload))
		}))
	}
}

// resultsOf returns the results of steps in the order of the events.
func resultsOf(log []api.Event) (results []string) {
	for _, e := range log {
		if e.Type == "step_completed" {
			results = append(results, shown(e.Payload))
		}
	}
	return results
}

// sleeps wants a wait of a second in the log.
func sleeps(run api.Run, log []api.Event) string {
	created, completed := find(log, "wait_created"), find(log, "wait_completed")
	if created == nil || completed == nil {
		return "its log has no wait that was completed"
	}
	if took := completed.CreatedAt.Sub(created.CreatedAt.Time).Seconds(); took < 0.9 {
		return fmt.Sprintf("it waited for %.3f s, and should wait for 1 s", took)
	}
	return outputs(`"awake"`)(run, log)
}

// retries wants a step that has failed twice at least and then succeeded.
func retries(run api.Run, log []api.Event) string {
	if failed := count(log, "step_retrying"); failed < 2 || count(log, "step_completed") != 1 {
		return fmt.Sprintf("its log has %d attempts that failed and %d steps that ended, and should have 2 and 1",
			failed, count(log, "step_completed"))
	}
	return outputs(`"third time"`)(run, log)
}

// fails wants the run to fail with the code of the function.
func fails(run api.Run, _ []api.Event) string {
	if run.Status != "failed" || run.Error == nil || run.Error.Code != "conform" {
		return fmt.Sprintf("it is %s with %+v, and should fail with the code conform", run.Status, run.Error)
	}
	return ""
}

// resumeHook resumes the hook whose token is the run's input.
func resumeHook(ctx context.Context, c *checker, token string) error {
	return c.until(ctx, "no hook with the token of its input is open", func() (bool, error) {
		payload := map[string]any{"payload": map[string]any{"approved": true}}
		err := c.server.Do(ctx, http.MethodPost, "/v1/hooks/"+token+"/resume", payload, nil)
		return err == nil, err
	})
}

func find(log []api.Event, kind string) *api.Event {
	if i := slices.IndexFunc(log, func(e api.Event) bool { return string(e.Type) == kind }); i >= 0 {
		return &log[i]
	}
	return nil
}

func count(log []api.Event, kind string) (n int) {
	for _, e := range log {
		if string(e.Type) == kind {
			n++
		}
	}
	return n
}

// sameJSON reports whether two texts are the same value, with numbers compared by their digits.
func sameJSON(a, b []byte) bool { return shown(a) == shown(b) }

// shown returns a JSON text as there is one way to write it.
func shown(text []byte) string {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return string(text)
	}
	same, _ := json.Marshal(v) // it was decoded
	return string(same)
}
