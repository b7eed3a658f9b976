package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// heavyWork is work that is allowed, and a lot of it.
func heavyWork() []abuse {
	return []abuse{
		{
			name: "map10k", role: "invoke", clients: 10, times: 1,
			what: "Ten flows map 10,000 items, 1,000 calls of a function at once.",
			prepare: func(t *testing.T, a *attack) {
				a.putFlow(t, "flow: mapped\ndeployment: f\nsteps:\n  a: {map: input, concurrency: 1000, do: {call: work}}\n")
			},
			once: func(ctx context.Context, a *attack, _, _ int) { a.start(ctx, "mapped", list(10_000, "1")) },
		},
		{
			name: "big_inputs", role: "invoke", clients: 16, times: 10,
			what: "16 clients start ten runs each with an input of 3 MB, which a step has, too.",
			once: func(ctx context.Context, a *attack, _, _ int) {
				a.start(ctx, "one", `"`+strings.Repeat("x", 3<<20)+`"`)
			},
		},
		{
			name: "flow_cel", role: "invoke", clients: 16,
			what: "16 clients start flows with 200 conditions that compare all pairs of 100 numbers.",
			prepare: func(t *testing.T, a *attack) {
				var document strings.Builder
				document.WriteString("flow: thinker\nsteps:\n")
				for i := range 200 {
					document.WriteString("  s" + strconv.Itoa(i) + ": {set: 1, when: 'input.all(a, input.all(b, a + b >= 0.0))'}\n")
				}
				a.putFlow(t, document.String())
			},
			once: func(ctx context.Context, a *attack, _, _ int) { a.start(ctx, "thinker", list(100, "1.5")) },
		},
		{
			name: "schedules", role: "write", clients: 1, times: 1, prepare: putSchedules, end: removeSchedules,
			what: "1,000 schedules start a run of a step every 10 s.",
			once: func(context.Context, *attack, int, int) {}, // they tick by themselves
		},
		{
			name: "stream_disk", role: "write", clients: 16,
			what: "16 clients write 1 MB a second to a stream.",
			once: func(ctx context.Context, a *attack, client, n int) {
				path := fmt.Sprintf("/sdk/v2/runs/wrun_01M7YXCWBVNNJ9PET3QA3W1ZGH/stream/s-%d-%d", client, n/10)
				a.send(ctx, http.MethodPut, path, strings.Repeat("x", 1<<20))
				pause(ctx, time.Second) // 16 MiB a second for the disk are enough
			},
		},
	}
}

// schedules is how many schedules the attacker has.
const schedules = 1000

func putSchedules(t *testing.T, a *attack) {
	t.Helper()
	each(t, schedules, func(i int) response {
		return a.attacker.send(t, http.MethodPut, fmt.Sprintf("/v1/schedules/s-%d", i), map[string]string{
			"every": "10s", "workflow": "one", "overlap": "allow",
		})
	})
}

func removeSchedules(t *testing.T, a *attack) {
	t.Helper()
	each(t, schedules, func(i int) response {
		return a.attacker.send(t, http.MethodDelete, fmt.Sprintf("/v1/schedules/s-%d", i), nil)
	})
}
