package hostile

import (
	"context"
	"fmt"
	"net/http"
	"testing"
)

// loops are a request or two that start runs which start runs.
func loops() []abuse {
	return []abuse{
		{
			name: "fork_bomb", role: "invoke", clients: 2, times: 1,
			what: "A flow and a function start themselves twice.",
			prepare: func(t *testing.T, a *attack) {
				a.putFlow(t, "flow: bomb\nsteps:\n  a: {start: bomb}\n  b: {start: bomb}\n")
			},
			once: func(ctx context.Context, a *attack, client, _ int) {
				a.start(ctx, []string{"bomb", "fork"}[client], "null") // a flow, and a function
			},
		},
		{
			name: "signal_loop", role: "invoke", clients: 1, times: 1,
			what: "A trigger on a signal starts a flow that sends it twice.",
			prepare: func(t *testing.T, a *attack) {
				a.putFlow(t, "flow: answer\nsteps:\n  a: {emit: noise}\n  b: {emit: noise}\n")
				a.put(t, "/v1/triggers/noise", map[string]any{
					"on":    map[string]any{"signal": map[string]string{"name": "noise"}},
					"start": map[string]string{"workflow": "answer"},
				})
			},
			once: func(ctx context.Context, a *attack, _, _ int) {
				a.send(ctx, http.MethodPost, "/v1/signals/noise", "{}")
			},
		},
		{
			name: "runended_fanout", role: "invoke", clients: 1, times: 1,
			what: "50 triggers on the end of a flow start the flow.",
			prepare: func(t *testing.T, a *attack) {
				a.putFlow(t, "flow: fan\nsteps: {a: {set: 1}}\n")
				each(t, 50, func(i int) response {
					return a.attacker.send(t, http.MethodPut, fmt.Sprintf("/v1/triggers/fan-%d", i), map[string]any{
						"on":    map[string]any{"runEnded": map[string]string{"workflow": "fan"}},
						"start": map[string]string{"workflow": "fan"},
					})
				})
			},
			once: func(ctx context.Context, a *attack, _, _ int) { a.start(ctx, "fan", "null") },
		},
	}
}
