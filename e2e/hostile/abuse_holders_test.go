package hostile

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// holders are clients that do little, and hold what others need: connections, slots, memory.
func holders() []abuse {
	return []abuse{
		{
			name: "slow_bodies", role: "invoke", clients: 900,
			what: "900 connections announce a start of 100 kB, send one byte, and begin anew when they are refused.",
			once: func(ctx context.Context, a *attack, _, _ int) {
				a.stall(ctx, head("/v1/runs", a.key, len(largeInput))+"{")
			},
		},
		{
			name: "sse_viewers", role: "metadata", clients: 3000,
			what: "3,000 connections follow events and live views, and begin anew a second after they were refused.",
			once: func(ctx context.Context, a *attack, client, _ int) {
				path := []string{"/v1/events/stream?payloads=false", "/v1/live?runs=true&topics=true"}[client%2]
				if a.send(ctx, http.MethodGet, path, "") != http.StatusOK {
					pause(ctx, time.Second)
				}
			},
		},
		{
			name: "pull_polls", role: "write", clients: 300,
			what: "300 polls of an app that fetches its deliveries wait for 30 s each.",
			prepare: func(t *testing.T, a *attack) {
				a.put(t, "/v1/deployments/pulled", map[string]string{"url": "pull:"})
			},
			once: func(ctx context.Context, a *attack, _, _ int) { a.poll(ctx) },
		},
		{
			name: "hung_steps", role: "invoke", clients: 5, times: 1,
			what: "Five runs have 1,000 steps each whose functions never answer.",
			once: func(ctx context.Context, a *attack, _, _ int) { a.start(ctx, "hang", "1000") },
		},
		{
			name: "http_steps", role: "invoke", clients: 5, times: 1,
			what: "Five runs have 1,000 HTTP steps each that are never answered.",
			once: func(ctx context.Context, a *attack, _, _ int) { a.start(ctx, "ask", "1000") },
		},
		{
			name: "waits", role: "invoke", clients: 16, times: 20,
			what: "16 clients start 20 runs each, with 200 waits of 1 to 10 s.",
			prepare: func(t *testing.T, a *attack) {
				var document strings.Builder
				document.WriteString("flow: sleepy\nsteps:\n")
				for i := range 200 {
					document.WriteString("  w" + strconv.Itoa(i) + ": {wait: " + strconv.Itoa(1+i%10) + "s}\n")
				}
				a.putFlow(t, document.String())
			},
			once: func(ctx context.Context, a *attack, _, _ int) { a.start(ctx, "sleepy", "null") },
		},
		{
			name: "stranger_hooks", clients: 2100,
			what: "2,000 connections announce 5 MB for webhooks that do not exist, and 100 clients guess the " +
				"tokens of webhooks.",
			once: func(ctx context.Context, a *attack, client, n int) {
				path := "/hooks/guess-" + strconv.Itoa(client) + "-" + strconv.Itoa(n)
				if client < 2000 {
					a.stall(ctx, head(path, "", 5<<20)+"{")
				} else {
					a.send(ctx, http.MethodPost, path, "{}")
				}
			},
		},
	}
}

// stall sends part of a request on a connection of its own, and waits for the answer or the end of the attack.
func (a *attack) stall(ctx context.Context, part string) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		a.count("no answer")
		pause(ctx, 100*time.Millisecond)
		return
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }()
	answer := make([]byte, len("HTTP/1.1 408"))
	_, err = io.WriteString(c, part)
	if err == nil {
		_, err = io.ReadFull(c, answer)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		a.count("no answer")
		return
	}
	a.count(string(answer[len("HTTP/1.1 "):]))
}

// poll asks for the deliveries of an app that has none.
func (a *attack) poll(ctx context.Context) {
	body, err := cbor.Marshal(map[string]any{
		"world": 1, "deployment": "pulled", "asked": true, "slots": 1, "waitMs": 30_000, "receipts": []string{},
	})
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	req := a.request(ctx, http.MethodPost, "/sdk/world/v1/pull", string(body))
	req.Header.Set("Content-Type", "application/cbor")
	req.Header.Set("Stepwell-World", "1")
	a.do(req)
}
