package hostile

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"testing"
)

// floods are cheap requests, as many as there are answers.
func floods() []abuse {
	return []abuse{
		{
			name: "list_flood", role: "metadata", clients: 200, prepare: fillLists,
			what: "200 clients list 1,000 runs or 1,000 events, without a pause.",
			once: func(ctx context.Context, a *attack, client, _ int) {
				a.get(ctx, []string{"/v1/runs?limit=1000", "/v1/events?limit=1000"}[client%2])
			},
		},
		{
			name: "stats_flood", role: "metadata", clients: 250, prepare: fillLists,
			what: "250 clients ask for statistics and counts, and ask what wants attention, without a pause.",
			once: func(ctx context.Context, a *attack, client, n int) {
				count := fmt.Sprintf("/v1/runs/count?attribute.customer=%d", n)
				a.get(ctx, []string{"/v1/stats/steps", count, "/v1/attention"}[client%3])
			},
		},
		{
			name: "ui_codes", role: "invoke", clients: 100,
			what: "100 clients make codes that open the dashboard, without a pause.",
			once: func(ctx context.Context, a *attack, _, _ int) { a.send(ctx, http.MethodPost, "/v1/ui/codes", "") },
		},
		{
			name: "sign_in_cookies", role: "invoke", clients: 100,
			what: "100 clients sign in to the dashboard, or send it cookies that nobody has, without a pause.",
			once: func(ctx context.Context, a *attack, client, _ int) {
				if client%2 == 0 {
					a.signIn(ctx, http.MethodPost, "/ui/-/session")
				} else {
					a.signIn(ctx, http.MethodGet, "/ui/attacker/v1/runs")
				}
			},
		},
		{
			name: "strangers_keys", clients: 100,
			what: "100 clients send keys that nobody has, without a pause.",
			once: func(ctx context.Context, a *attack, _, _ int) {
				req := a.request(ctx, http.MethodGet, "/v1/runs", "")
				req.Header.Set("Authorization", "Bearer sw_"+rand.Text())
				a.do(req)
			},
		},
		{
			name: "start_flood", role: "write", clients: 64,
			what: "64 clients start runs of a step, without a pause.",
			once: func(ctx context.Context, a *attack, _, n int) { a.start(ctx, "one", fmt.Sprint(n)) },
		},
		{
			name: "limit_keys", role: "invoke", clients: 32,
			what: "32 clients start runs that need a limit with a new key each second time, without a pause.",
			prepare: func(t *testing.T, a *attack) {
				a.put(t, "/v1/limits/customer", map[string]int{"perKey": 1, "total": 100})
			},
			once: func(ctx context.Context, a *attack, client, n int) {
				a.send(ctx, http.MethodPost, "/v1/runs", fmt.Sprintf(
					`{"workflow":"one","limits":[{"name":"customer","key":"%d-%d"}]}`, client, n/2))
			},
		},
		{
			name: "debounce_keys", role: "invoke", clients: 32,
			what: "32 clients start runs that are debounced with a new key each time, without a pause.",
			once: func(ctx context.Context, a *attack, client, n int) {
				a.send(ctx, http.MethodPost, "/v1/runs", fmt.Sprintf(
					`{"workflow":"one","debounce":{"key":"%d-%d","quiet":"1s"}}`, client, n))
			},
		},
	}
}

func (a *attack) get(ctx context.Context, path string) { a.send(ctx, http.MethodGet, path, "") }

// fillLists starts runs, so that lists are long.
func fillLists(t *testing.T, a *attack) {
	t.Helper()
	a.putFlow(t, "flow: done\nsteps: {a: {set: 1}}\n")
	each(t, 1000, func(i int) response {
		return a.attacker.send(t, http.MethodPost, "/v1/runs", map[string]any{
			"workflow": "done", "attributes": map[string]string{"customer": fmt.Sprint(i)},
		})
	})
}

// signIn sends a request of a browser with a well-formed cookie that nobody has.
func (a *attack) signIn(ctx context.Context, method, path string) {
	req := a.request(ctx, method, path, text(map[string]string{"key": a.key}))
	req.Header.Del("Authorization")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Stepwell-UI", "1")
	req.AddCookie(&http.Cookie{Name: "stepwell_session", Value: (rand.Text() + rand.Text())[:43]})
	a.do(req)
}
