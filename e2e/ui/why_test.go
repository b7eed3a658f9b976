package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// secret is a word of payloads and errors.
const secret = "classified"

// ward is an app whose functions do not work until they are healed, by workflow.
type ward struct {
	mu     sync.Mutex
	healed map[string]bool
	// checked is closed when approvals may go on.
	checked chan struct{}
}

func (a *ward) heal(workflow string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.healed[workflow] = true
}

func (a *ward) isHealed(workflow string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.healed[workflow]
}

// commands are those of a workflow that is called first. Workflows without commands fail until they are healed. What
// follows the workflow's first word is the PAUSE.
var commands = map[string]string{
	"backoff": `[{"type": "runStep", "id": "charge", "retry": {"backoff": "PAUSE"}}]`,
	"approve": `[{"type": "openHook", "id": "approval"}]`,
	"signal":  `[{"type": "openHook", "id": "paid", "signal": {"name": "order.paid"}}]`,
	"sleep":   `[{"type": "wait", "id": "nap", "for": "PAUSE"}]`,
	"parent":  `[{"type": "startChild", "id": "ship", "workflow": "approve"}]`,
	"many": `[{"type": "openHook", "id": "first"}, {"type": "openHook", "id": "second"}, {"type": "openHook", "id": "third"},
		{"type": "wait", "id": "tomorrow", "for": "24h"}]`,
}

func (a *ward) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Type    string
		Attempt int
		Run     struct{ Workflow string }
		Events  []struct{ Type string }
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	has := func(kinds ...string) bool {
		for _, e := range call.Events {
			for _, kind := range kinds {
				if e.Type == kind {
					return true
				}
			}
		}
		return false
	}
	name, pause, _ := strings.Cut(call.Run.Workflow, " ")
	first, known := commands[name]
	switch {
	case call.Type == "step" && call.Attempt == 1:
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, `{"error": {"message": "the bank is %s", "code": "busy"}}`, secret)
	case call.Type == "step":
		_, _ = fmt.Fprint(w, `{"output": 1}`)
	case !known && !a.isHealed(call.Run.Workflow):
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, `{"error": {"message": "no %s stock", "code": "no_stock"}}`, secret)
	case call.Run.Workflow == "approve" && has("hook_received"):
		select {
		case <-a.checked:
		case <-r.Context().Done():
		}
		_, _ = fmt.Fprint(w, `{"commands": [{"type": "complete", "output": "done"}]}`)
	case !known || has("step_completed", "hook_received", "wait_completed"):
		_, _ = fmt.Fprint(w, `{"commands": [{"type": "complete", "output": "done"}]}`)
	case has("step_created", "hook_created", "wait_created"):
		_, _ = fmt.Fprint(w, `{"commands": []}`)
	default:
		_, _ = fmt.Fprintf(w, `{"commands": %s}`, strings.ReplaceAll(first, "PAUSE", pause))
	}
}

// TestWhy checks that the page of a run says why it is not done, and that what it offers makes the reason go away.
func TestWhy(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base)
			app := &ward{healed: map[string]bool{}, checked: make(chan struct{})}
			server := httptest.NewServer(app)
			t.Cleanup(server.Close)
			for id, url := range map[string]string{"ward": server.URL, "gone": server.URL, "far": "http://127.0.0.1:1"} {
				i.call("PUT", "/v1/deployments/"+id, map[string]any{
					"url": url, "workflows": []string{id, "approve"}, "schemas": map[string]any{id: map[string]any{"input": map[string]any{}}},
				}, nil)
			}
			b := newTab(t, i.web)
			b.allow("401")
			b.open("/")
			b.fill("input[name=key]", apiKey)
			b.click("Sign in")
			b.shows("Sign out")
			s := whyScene{installation: i, tab: b, app: app, url: server.URL}
			s.run()
		})
	}
}

type whyScene struct {
	*installation
	*tab

	app *ward
	url string
}

func (s whyScene) run() {
	parked, gone, far := s.startFor("ward", "parked"), s.startFor("gone", "gone"), s.startFor("far", "far")
	blocked, secretly, parent := s.startFor("ward", "blocked"), s.startFor("ward", "secretly"), s.startFor("ward", "parent")
	s.goesByItself("sleep", "It sleeps nap.", "the sleep nap is over")
	backoff := s.goesByItself("backoff", "Step charge failed and is tried again: attempt 2 of 5.", "busy: the bank is "+secret)

	s.park(parked)
	s.see(parked, "parked", "Nothing happens until somebody looks: the call of its function failed", "Discard …", secret)
	s.accessible()
	s.look("why-parked")
	s.app.heal("parked")
	s.click("Retry now")
	s.isDone()

	s.remove(gone)
	s.see(gone, "deployment_missing", "The call of its function is for deployment gone, which is not registered.")
	s.allow("/deployments/gone") // is a 404 until it is registered
	s.app.heal("gone")
	s.click("Register gone …")
	s.fill("dialog input", s.url)
	s.click("Register")
	s.isDone()

	s.see(far, "unreachable", "Deployment far cannot be reached: it was tried", "No attempt is used up.")
	s.look("why-unreachable")
	s.app.heal("far")
	s.click("Move far …")
	s.until("the URL is read", `document.querySelector("dialog input").value === "http://127.0.0.1:1"`)
	s.look("why-register")
	s.fill("dialog input", s.url)
	s.click("Register")
	s.isDone()
	var moved struct {
		Workflows []string
		Schemas   map[string]any
	}
	s.call("GET", "/v1/deployments/far", nil, &moved)
	if !slices.Equal(moved.Workflows, []string{"approve", "far"}) || moved.Schemas["far"] == nil {
		s.t().Errorf("the move left %+v", moved)
	}

	s.allow("/retry") // is a 404 if the function was called by itself in the meantime
	s.see(blocked, "function_refuses", "The function refuses to go on.", "no_stock", secret, "Next:")
	s.app.heal("blocked")
	s.click("Retry now")
	s.isDone()

	s.hooks(parent)
	s.manyReasons()
	s.messages()
	s.streams(parent)
	s.changed(parent)
	s.withoutPayloads(secretly, backoff)
}

// startFor starts a run of a workflow for a deployment.
func (s whyScene) startFor(deployment, workflow string) string {
	return s.start(workflow, map[string]any{"deployment": deployment, "input": map[string]any{"note": secret, "id": 9007199254740993}})
}

// see opens the page of a run and waits for the reason and texts.
func (s whyScene) see(run, kind string, texts ...string) {
	s.t().Helper()
	s.open("/ui/default/runs/" + run + "/messages")
	s.until("the reason "+kind, `document.querySelector('[data-kind="`+kind+`"]')`)
	s.shows(texts...)
}

func (s whyScene) t() *testing.T { return s.tab.t }

// isDone waits until the page says that the run completed, and no longer has the reason.
func (s whyScene) isDone() {
	s.t().Helper()
	s.shows("Completed ")
	s.until("no reason", `!document.querySelector("[data-kind]")`)
}

// goesByItself waits until a reason with a known end goes away, without a click. If the run was done before the page
// showed the reason, another run pauses for longer.
func (s whyScene) goesByItself(workflow string, texts ...string) (run string) {
	s.t().Helper()
	wanted, err := json.Marshal(append(texts, "Next:"))
	if err != nil {
		s.t().Fatal(err)
	}
	for _, pause := range []string{"3s", "12s", "50s"} {
		run = s.startFor("ward", workflow+" "+pause)
		s.open("/ui/default/runs/" + run + "/messages")
		s.until("how it stands", `(window.seen = `+string(wanted)+`.every((text) => document.body.innerText.includes(text))) ||
			document.body.innerText.includes("Completed ")`)
		if !evaluate[bool](s.tab, `window.seen`) {
			continue
		}
		s.look("why-" + workflow)
		s.isDone()
		return run
	}
	s.t().Fatalf("%s: the page never showed %q", workflow, texts)
	return ""
}

// park parks the message of a run as after 64 failures.
func (s whyScene) park(run string) {
	s.exec(`UPDATE messages SET parked_at = now(), delivery_count = 64 WHERE run_id = $1 AND lease = '' AND delivery_count > 0`, run)
}

// remove removes the deployment gone once it was called for the run.
func (s whyScene) remove(run string) {
	s.exec(`SELECT FROM messages WHERE run_id = $1 AND lease = '' AND delivery_count > 0`, run)
	s.call("DELETE", "/v1/deployments/gone", nil, nil)
}

// hooks goes from a parent to the child that it waits for, resumes its hook with a double click, and sends a signal.
func (s whyScene) hooks(parent string) {
	s.see(parent, "child", "Step approve (ship) waits for child wrun_", "which is running.")
	s.look("why-child")
	s.click("Family1")
	s.until("the child", `document.querySelectorAll("table.family tbody tr").length === 2`)
	s.accessible()
	s.look("family")
	s.click("Children of approve " + evaluate[string](s.tab, `document.querySelector("table.family tr:nth-child(2) .mono").innerText`))
	s.shows("It has started no runs.")
	s.click("Open the child")
	s.until("the hook", `document.querySelector("[data-kind=hook]")`)
	s.shows("Nobody has resumed hook approval.")
	child := evaluate[string](s.tab, `location.pathname.split("/").find((p) => p.startsWith("wrun_"))`)
	s.click("Resume …")
	s.until("the hook is read", `document.querySelector("dialog select")?.value === "approval" && !document.querySelector("dialog .primary").disabled`)
	resumeID := evaluate[string](s.tab, `/--resume-id ([0-9a-f-]{36})/.exec(document.querySelector("dialog .commands").textContent)[1]`)
	harness.Eventually(s.t(), "the double click", func() bool { // what comes above the button may move it away
		evaluate[chromedp.Void](s.tab, `{ const e = document.querySelector("dialog .primary"); e.setAttribute("data-e2e", "");
			e.addEventListener("click", () => { window.twice = true; }, {once: true, capture: true}); }`)
		s.do(chromedp.DoubleClick(`dialog [data-e2e]`))
		return evaluate[bool](s.tab, `!!window.twice`)
	})
	s.wait(child, "hook_received")
	var again struct{ Repeated bool }
	s.call("POST", "/v1/runs/"+child+"/hooks/approval/resume", map[string]any{"resumeId": resumeID, "payload": map[string]any{"approved": true}}, &again)
	var list struct{ Data []any }
	s.call("GET", "/v1/runs/"+child+"/events?type=hook_received", nil, &list)
	if len(list.Data) != 1 || !again.Repeated {
		s.t().Errorf("a double click and its repetition resumed %d times; repeated: %t", len(list.Data), again.Repeated)
	}
	s.until("the call", `document.querySelector("[data-kind=called]")`)
	close(s.app.checked)
	s.isDone()
	s.open("/ui/default/runs/" + child + "/family")
	s.until("the parent above", `document.querySelector("table.family tr.self")?.rowIndex === 2`)

	run := s.startFor("ward", "signal")
	s.see(run, "signal", "Hook paid waits for a signal order.paid.")
	s.click("Send the signal …")
	s.until("the name is filled", `document.querySelector("dialog input").value === "order.paid"`)
	s.click("Send")
	s.isDone()
}

// manyReasons shows the first two, and the others on demand.
func (s whyScene) manyReasons() {
	run := s.startFor("ward", "many")
	s.see(run, "hook", "Nobody has resumed hook first.", "and 2 more")
	if n := evaluate[int](s.tab, `document.querySelectorAll("[data-kind]").length`); n != 2 {
		s.t().Errorf("%d reasons are open", n)
	}
	s.click("and 2 more")
	s.shows("Nobody has resumed hook third.", "It sleeps tomorrow.")
	s.look("why-many")
	evaluate[chromedp.Void](s.tab, `document.querySelector(".run-id .commands summary").click()`)
	s.shows("stepwell why "+run, "stepwell hooks resume third --run "+run, "stepwell messages list --run "+run)
	if n := evaluate[int](s.tab, `[...document.querySelectorAll("summary")].filter((e) => e.innerText.includes("Copy as curl")).length`); n != 1 {
		s.t().Errorf("the page has %d places for commands", n)
	}
}

// messages retries and discards on the tab.
func (s whyScene) messages() {
	run := s.startFor("ward", "unpaid")
	s.park(run)
	s.see(run, "parked", "call the run’s function", "64")
	s.look("messages")
	s.app.heal("unpaid")
	evaluate[chromedp.Void](s.tab, `document.querySelector("table.messages tbody button:not(.icon)").click()`)
	s.shows("Completed", "The server owes this run nothing")
}

// streams follows a stream until it is closed.
func (s whyScene) streams(run string) {
	write := func(text, done string) {
		r, err := http.NewRequestWithContext(s.t().Context(), http.MethodPut,
			s.server+"/sdk/v2/runs/"+run+"/stream/strm_letters", strings.NewReader(text))
		if err != nil {
			s.t().Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+apiKey)
		r.Header.Set("X-Stream-Done", done)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			s.t().Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode >= 300 {
			s.t().Fatalf("write a stream: %s", resp.Status)
		}
	}
	write("Once upon ", "")
	s.open("/ui/default/runs/" + run + "/streams")
	s.shows("strm_letters", "Once upon", "Follow")
	s.accessible()
	s.look("streams")
	write("a time", "true")
	s.shows("Once upon a time", "closed")
	s.click("Bytes")
	s.shows("4f 6e 63 65 20 75 70 6f")
}

// changed starts a run with the changed input of another one.
func (s whyScene) changed(run string) {
	s.open("/ui/default/runs/" + run)
	s.click("Rerun …")
	s.click("With changes …")
	s.until("the input as it was written", `document.querySelector("dialog textarea")?.value.includes("9007199254740993")`)
	s.fill("dialog textarea", "{\n  \"note\": x}")
	s.shows("“x” begins no value in line 2, column 11")
	s.accessible()
	s.look("start")
	s.fill("dialog textarea", `{"note": 1e3}`)
	s.click("Start the run")
	s.until("the new run", `document.querySelector("[data-kind]") && !location.pathname.includes(`+quote(run)+`)`)
	started := evaluate[string](s.tab, `location.pathname.split("/").find((p) => p.startsWith("wrun_"))`)
	var event struct {
		Payload json.RawMessage
		Data    struct{ WorkflowName string }
	}
	s.call("GET", "/v1/runs/"+started+"/events/1", nil, &event)
	if string(event.Payload) != `{"note":1e3}` && string(event.Payload) != `{"note": 1e3}` || event.Data.WorkflowName != "parent" {
		s.t().Errorf("started %+v with %s", event.Data, event.Payload)
	}
}

// withoutPayloads looks at runs, and at every page, with a key of the role metadata. A word of payloads is searched for
// on the screen, and in all that the browser is sent.
func (s whyScene) withoutPayloads(blocked, ended string) {
	var key struct{ Key string }
	s.call("POST", "/v1/keys", map[string]any{"name": "support", "role": "metadata"}, &key)
	s.click("Sign out")
	s.fill("input[name=key]", key.Key)
	s.click("Sign in")
	s.until("the role", `document.querySelector(".role")?.innerText === "metadata"`)
	s.traffic.record()
	for path, text := range map[string]string{
		blocked + "/messages": "call the run’s function", blocked + "/data": "Not shown to keys of the role metadata.",
		blocked + "/family": "this run", ended + "/streams": "This run has no streams", ended + "/log": "step_retrying",
	} {
		s.open("/ui/default/runs/" + path)
		s.shows(text)
		s.until("how it stands", `document.querySelector(".why:not(.quiet) , .why.quiet a")`)
		if evaluate[bool](s.tab, `document.documentElement.outerHTML.includes(`+quote(secret)+`)`) {
			s.t().Errorf("%s shows a payload to the role metadata:\n%s", path, s.text())
		}
	}
	s.open("/ui/default/runs/" + blocked)
	s.shows("The function refuses to go on.", "no_stock")
	s.look("why-metadata")
	if !evaluate[bool](s.tab, `[...document.querySelectorAll("[data-kind=function_refuses] button")].every((e) => e.disabled && e.title.includes("role"))`) {
		s.t().Error("the role metadata may press a button")
	}
	for path, text := range map[string]string{
		"overview": "Slowest open runs", "runs": "newest first", "workflows": "secretly", "failures": "Failures", "waiting": "Waiting",
		"waiting/hooks": "Hooks", "waiting/signals": "Signals", "waiting/timers": "Timers", "queue": "Queue", "queue/retrying": "ward", "deployments": "ward",
		"compare?a=" + blocked + "&b=" + ended: "charge",
	} {
		s.open("/ui/default/" + path)
		s.shows(text)
	}
	sent := s.traffic.recorded()
	for _, word := range []string{secret, "9007199254740993", "Once upon"} {
		if at := strings.Index(sent, word); at >= 0 {
			s.t().Errorf("a payload is sent to the role metadata: %s", sent[max(0, at-300):at+100])
		}
	}
	if s.tab.web != s.server && !strings.Contains(sent, blocked) {
		s.t().Error("no traffic was recorded")
	}
}
