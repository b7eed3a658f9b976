package cells

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestCells sends all that clients send to two cells through each proxy: requests with keys, tokens of calls, webhooks,
// apps that ask for their deliveries, long polls, live streams and the dashboard. Then one cell dies.
func TestCells(t *testing.T) {
	t.Parallel()
	harness.SkipIfShort(t)
	cells := []*cell{startCell(t, names[0], "shop"), startCell(t, names[1], "mail")}
	urls := map[string]string{}
	for name, start := range proxies {
		urls[name] = start(t, cells)
		for _, c := range cells {
			t.Run(name+" "+c.name, func(t *testing.T) { throughProxy(t, urls[name], c) })
		}
		t.Run(name+" sessions", func(t *testing.T) { sessions(t, urls[name], cells) })
		t.Run(name+" dashboard", func(t *testing.T) { twoProjects(t, urls[name], cells) })
	}
	t.Run("wrong cell", func(t *testing.T) { wrongCell(t, cells) })
	for name, url := range urls {
		app(t, url, cells[0], name)
	}
	for _, s := range cells[1].servers {
		s.Kill()
	}
	cells[0].servers[0].Kill()
	for name, url := range urls {
		t.Run(name+" with a dead cell", func(t *testing.T) { deadCell(t, url, cells) })
	}
}

// throughProxy runs a flow of a cell: a step whose function sends its result later, and a webhook.
func throughProxy(t *testing.T, url string, c *cell) {
	send := func(method, path string, body any) harness.Response {
		return harness.Send(t.Context(), http.DefaultClient, method, url+path, c.key, body)
	}
	who := harness.Decode[struct{ Project, Cell string }](t, send(http.MethodGet, "/v1/whoami", nil).Want(t, http.StatusOK))
	if who.Project != c.project || who.Cell != c.name || !strings.HasPrefix(c.key, "sw_"+c.name+"_") {
		t.Fatalf("the key %.12s… of project %s reached %+v", c.key, c.project, who)
	}

	answered := make(chan harness.Response, 1)
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Step struct{ Callback struct{ URL, Token string } }
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		go func() {
			answered <- harness.Send(context.WithoutCancel(r.Context()), http.DefaultClient, http.MethodPost,
				url+call.Step.Callback.URL, call.Step.Callback.Token, map[string]any{"output": 7})
		}()
	}))
	defer function.Close()
	send(http.MethodPut, "/v1/deployments/later", map[string]any{"url": function.URL}).Want(t, http.StatusOK)
	name := "through-" + url[len(url)-5:]
	document := `
flow: ` + name + `
deployment: later
steps:
  later: {call: later, async: true, timeout: 1m}
  hook: {needs: [later], hook: {token: "` + name + `", webhook: {}}}
output: "${steps.later.output}"
`
	send(http.MethodPost, "/v1/flows", map[string]any{"document": document}).Want(t, http.StatusCreated)
	started := send(http.MethodPost, "/v1/runs", map[string]any{"workflow": name}).Want(t, http.StatusCreated)
	id := harness.Decode[struct{ ID string }](t, started).ID
	(<-answered).Want(t, http.StatusOK, http.StatusNoContent, http.StatusAccepted)
	harness.Eventually(t, "the webhook is there", func() bool {
		hook := harness.Send(t.Context(), http.DefaultClient, http.MethodPost, url+"/hooks/"+c.project+"/"+name, "", []byte(`{}`))
		return hook.Status < 300
	})
	if status := runOf(t, url, c.key, id); status != "completed" {
		t.Errorf("the run is %s", status)
	}
	liveStream(t, url, c.key)
}

// liveStream reads the first event of the live stream, which proxies must not hold back.
func liveStream(t *testing.T, url, key string) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/live?runs=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("the live stream answered %d, %q, %v", answer.StatusCode, line, err)
	}
}

// sessions opens a project of each cell with the cookies of one browser, and signs out of both.
func sessions(t *testing.T, url string, cells []*cell) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	send := func(method, path, cell string, body any) harness.Response {
		headers := []string{"Stepwell-UI", "1", "Origin", url}
		if cell != "" {
			headers = append(headers, "Stepwell-Cell", cell)
		}
		return harness.Send(t.Context(), browser, method, url+path, "", body, headers...)
	}
	for _, c := range cells {
		send(http.MethodPost, "/ui/-/session", c.name, map[string]any{"key": c.key}).Want(t, http.StatusOK)
	}
	for i, c := range cells {
		send(http.MethodGet, "/ui/"+c.project+"/v1/runs", "", nil).Want(t, http.StatusOK)
		send(http.MethodGet, "/ui/-/reads/"+c.project+"?read=/v1/runs", "", nil).Want(t, http.StatusOK)
		session := harness.Decode[struct {
			Cells    []string
			Projects []struct{ Project string }
		}](t, send(http.MethodGet, "/ui/-/session", c.name, nil).Want(t, http.StatusOK))
		if len(session.Projects) != 1 || session.Projects[0].Project != c.project ||
			!slices.Equal(session.Cells, []string{cells[1-i].name}) {
			t.Errorf("the session in %s is %+v", c.name, session)
		}
	}
	// A project that the browser has opened nowhere is no 401 of a cell that may not be the right one.
	send(http.MethodGet, "/ui/elsewhere/v1/runs", "", nil).Want(t, http.StatusMisdirectedRequest)
	for _, c := range cells {
		send(http.MethodDelete, "/ui/-/session", c.name, nil).Want(t, http.StatusNoContent)
	}
	for _, c := range cells {
		send(http.MethodGet, "/ui/"+c.project+"/v1/runs", "", nil).Want(t, http.StatusUnauthorized)
	}
}

// wrongCell sends to one cell what belongs to the other, as a proxy with an old map would.
func wrongCell(t *testing.T, cells []*cell) {
	for i, c := range cells {
		other := cells[1-i]
		for what, r := range map[string]harness.Response{
			"key":        c.send(t, other.key, http.MethodGet, "/v1/runs", nil),
			"key of SDK": c.send(t, other.key, http.MethodGet, "/sdk/v2/runs", nil),
			"webhook":    c.send(t, "", http.MethodPost, "/hooks/"+other.project+"/token", []byte(`{}`)),
			"sign-in": c.send(t, "", http.MethodPost, "/ui/-/session", map[string]any{"key": other.key},
				"Stepwell-UI", "1", "Origin", "http://"+c.addrs[0]),
			"session": c.send(t, "", http.MethodGet, "/ui/"+other.project+"/v1/runs", nil, "Stepwell-UI", "1",
				"Cookie", "stepwell_session_"+other.name+"=abc"),
		} {
			if err := r.Problem(http.StatusMisdirectedRequest); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if what != "webhook" && !bytes.Contains(r.Body, []byte(other.name)) {
				t.Errorf("%s: %s does not name %s", what, r.Body, other.name)
			}
		}
		c.send(t, "", http.MethodPost, "/hooks/"+c.project+"/token", []byte(`{}`)).Want(t, http.StatusNotFound)
	}
}

// app runs a workflow of an app of the Workflow SDK that asks the proxy for its deliveries.
func app(t *testing.T, url string, c *cell, deployment string) {
	t.Helper()
	folder := harness.AppFolder(filepath.Join("..", "app"))
	if err := folder.Ready(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "server.mjs")
	cmd.Dir = folder.Path
	cmd.Env = harness.CleanEnv("PORT=0", "WORKFLOW_TARGET_WORLD=@stepwell/world", "STEPWELL_URL="+url,
		"STEPWELL_DEPLOYMENT_ID="+deployment, "STEPWELL_API_KEY="+c.key, "STEPWELL_PULL=1")
	_, port := harness.Start(t, "app "+deployment, cmd, harness.AppReady)
	started := harness.Send(t.Context(), http.DefaultClient, http.MethodPost, "http://127.0.0.1:"+port+"/start", "",
		map[string]any{"workflow": "sequential", "args": []any{3}})
	id := harness.Decode[struct{ RunID string }](t, started.Want(t, http.StatusOK)).RunID
	if status := runOf(t, url, c.key, id); status != "completed" {
		t.Errorf("the run of the app is %s", status)
	}
}

// deadCell uses the cell that is left, with one server: the other's death changes nothing in it.
func deadCell(t *testing.T, url string, cells []*cell) {
	alive, dead := cells[0], cells[1]
	for range 20 {
		harness.Send(t.Context(), http.DefaultClient, http.MethodGet, url+"/v1/runs", alive.key, nil).Want(t, http.StatusOK)
		page := harness.Send(t.Context(), http.DefaultClient, http.MethodGet, url+"/ui/-/session", "", nil)
		page.Want(t, http.StatusOK)
	}
	harness.Send(t.Context(), http.DefaultClient, http.MethodGet, url+"/v1/runs", dead.key, nil).
		Want(t, http.StatusBadGateway, http.StatusServiceUnavailable)
	document := "flow: waits\nsteps:\n  wait: {wait: 1s}\n"
	harness.Send(t.Context(), http.DefaultClient, http.MethodPost, url+"/v1/flows", alive.key,
		map[string]any{"document": document}).Want(t, http.StatusCreated, http.StatusOK)
	started := harness.Send(t.Context(), http.DefaultClient, http.MethodPost, url+"/v1/runs", alive.key,
		map[string]any{"workflow": "waits"}).Want(t, http.StatusCreated)
	id := harness.Decode[struct{ ID string }](t, started).ID
	if status := runOf(t, url, alive.key, id); status != "completed" {
		t.Errorf("the run is %s", status)
	}
}
