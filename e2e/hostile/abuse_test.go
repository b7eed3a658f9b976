package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// abuse is one way to take more than one's share of a server.
type abuse struct {
	name string
	what string // a sentence for the page of results
	// role is that of the attacker's key. Strangers have none.
	role string
	// clients is how many do it at the same time, and times how often each of them does; until the end, if it is 0.
	clients, times int
	// prepare makes what the attack needs, as an admin of the attacker's project. It may be nil.
	prepare func(t *testing.T, a *attack)
	// once is what a client does each time, the nth.
	once func(ctx context.Context, a *attack, client, n int)
	// end ends what would go on without the clients. It may be nil.
	end func(t *testing.T, a *attack)
}

// abuses are all that the neighbour test tries, in the order of its table.
func abuses() []abuse {
	return slices.Concat([]abuse{{name: "none", what: "Nothing, for comparison."}}, numbers(), loops(), holders(), floods(), heavyWork())
}

// stranger is the role of clients without a key.
const stranger = ""

// attack is an abuse under way.
type attack struct {
	*fixture
	abuse

	key     string
	client  *http.Client
	webhook string // the path of a webhook that the attacker has

	mu      sync.Mutex
	answers map[string]int // how many requests were answered with a status, or not at all
}

func (f *fixture) newAttack(t *testing.T, b abuse) *attack {
	t.Helper()
	a := &attack{fixture: f, abuse: b, answers: map[string]int{}}
	// Most clients of an abuse wait for an answer at the same time. Each has a connection.
	a.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: max(1, b.clients)}}
	t.Cleanup(a.client.CloseIdleConnections)
	if b.role != stranger {
		a.key = f.newKey(t, f.attacker.name, b.role)
	}
	if b.prepare != nil {
		b.prepare(t, a)
	}
	return a
}

// begin begins the attack, which ends by itself. It returns a function that waits for its end.
func (a *attack) begin(t *testing.T, window time.Duration) (wait func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), window)
	var all sync.WaitGroup
	for client := range a.clients {
		all.Go(func() {
			for n := 0; ctx.Err() == nil && (a.times == 0 || n < a.times); n++ {
				a.once(ctx, a, client, n)
			}
		})
	}
	return func() {
		defer cancel()
		<-ctx.Done() // some clients have nothing more to do
		all.Wait()
		if a.end != nil {
			a.end(t, a)
		}
	}
}

// request makes a request with the attacker's key.
func (a *attack) request(ctx context.Context, method, path, body string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		panic(err) // the paths are those of this package
	}
	if a.key != "" {
		req.Header.Set("Authorization", "Bearer "+a.key)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

// send sends a request with the attacker's key.
func (a *attack) send(ctx context.Context, method, path, body string) (status int) {
	return a.do(a.request(ctx, method, path, body))
}

// do sends a request and counts its answer, which it does not keep. The attacker pauses after a request without an
// answer: a server that is gone costs nobody the processor.
func (a *attack) do(req *http.Request) (status int) {
	resp, err := a.client.Do(req)
	if err != nil {
		if req.Context().Err() == nil {
			a.count("no answer")
			pause(req.Context(), 100*time.Millisecond)
		}
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	a.count(fmt.Sprint(resp.StatusCode))
	_, _ = io.Copy(io.Discard, resp.Body) // it ends when the attack does
	return resp.StatusCode
}

func (a *attack) count(answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[answer]++
}

// start starts a run with an input in JSON.
func (a *attack) start(ctx context.Context, workflow, input string) {
	a.send(ctx, http.MethodPost, "/v1/runs", fmt.Sprintf(`{"workflow":%q,"input":%s}`, workflow, input))
}

// put makes something of the attacker's project as its admin.
func (a *attack) put(t *testing.T, path string, body any) response {
	t.Helper()
	return a.attacker.send(t, http.MethodPut, path, body).Want(t, http.StatusOK, http.StatusCreated)
}

// putFlow stores a flow as the admin. What a server refuses to store, it may.
func (a *attack) putFlow(t *testing.T, document string) {
	t.Helper()
	body := map[string]string{"document": document}
	a.attacker.send(t, http.MethodPost, "/v1/flows", body).Want(t, http.StatusCreated, http.StatusBadRequest,
		http.StatusUnprocessableEntity)
}

// each sends a request for all numbers below n, some at the same time. All must succeed.
func each(t *testing.T, n int, do func(i int) response) {
	t.Helper()
	const workers = 16
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := worker; i < n; i += workers {
				if err := do(i).Problem(http.StatusOK, http.StatusCreated, http.StatusNoContent); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// pause paces an attack.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// list returns a JSON list of n equal items.
func list(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// text returns the value in JSON.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	return string(data)
}
