package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// numbers are small requests whose numbers or schemas are much work.
func numbers() []abuse {
	return []abuse{
		{
			name: "bignum", role: "invoke", clients: 30,
			what: "30 clients start a flow whose input is a list of integers, with lists of `1e999999`.",
			prepare: func(t *testing.T, a *attack) {
				a.putFlow(t, "flow: numbers\ninput: {type: array, items: {type: integer}}\nsteps: {a: {set: 1}}\n")
			},
			once: func(ctx context.Context, a *attack, _, _ int) { a.start(ctx, "numbers", list(200, "1e999999")) },
		},
		{
			name: "schema_bomb", role: "admin", clients: 4,
			what: "Four clients put and start flows whose input schema refers twice to a schema that refers twice " +
				"to another, 27 times.",
			once: func(ctx context.Context, a *attack, client, n int) {
				name := fmt.Sprintf("bomb-%d-%d", client, n%10)
				a.send(ctx, http.MethodPost, "/v1/flows", text(map[string]string{"document": schemaBomb(name, 27)}))
				a.start(ctx, name, "1")
			},
		},
		{
			name: "crashloop", role: "invoke", clients: 1,
			what: "Every three seconds, `1e99999999` meets a schema with a bound: in the input of a run, in a " +
				"`set`, in the output of a step, and in a request to a webhook.",
			prepare: prepareCrashes, once: sendCrashes,
		},
	}
}

// schemaBomb returns a flow whose input is checked 2^n times.
func schemaBomb(name string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "flow: %s\nsteps: {a: {set: 1}}\ninput:\n  $ref: '#/$defs/d%d'\n  $defs:\n    d0: {type: integer}\n", name, n)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "    d%d: {allOf: [{$ref: '#/$defs/d%d'}, {$ref: '#/$defs/d%d'}]}\n", i, i-1, i-1)
	}
	return b.String()
}

// hugeNumber is a number that programs fail to compute with.
const hugeNumber = "1e99999999"

// prepareCrashes makes flows that compare numbers, and a trigger through which strangers start one of them.
func prepareCrashes(t *testing.T, a *attack) {
	t.Helper()
	const bounded = "{type: object, properties: {amount: {minimum: 0}}}"
	a.putFlow(t, "flow: input\ninput: {properties: {body: "+bounded+"}}\nsteps: {a: {set: 1}}\n")
	a.putFlow(t, "flow: setting\nsteps: {a: {set: '${input}', schema: "+bounded+"}}\n")
	a.putFlow(t, "flow: output\ndeployment: f\nsteps:\n  a: {call: huge-number}\n"+
		"  b: {needs: [a], set: '${steps.a.output}', schema: {minimum: 0}}\n")
	r := a.put(t, "/v1/triggers/paid", map[string]any{
		"on": map[string]any{"webhook": map[string]any{}}, "start": map[string]string{"workflow": "input"},
	})
	a.webhook = decode[struct{ Path string }](t, r).Path
}

// sendCrashes sends huge numbers on every way once, and again after three seconds.
func sendCrashes(ctx context.Context, a *attack, _, _ int) {
	body := `{"amount":` + hugeNumber + `}`
	a.send(ctx, http.MethodPost, a.webhook, body)
	a.start(ctx, "input", `{"body":`+body+`}`)
	a.start(ctx, "setting", body)
	a.start(ctx, "output", "null")
	pause(ctx, 3*time.Second)
}
