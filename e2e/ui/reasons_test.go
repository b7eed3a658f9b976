package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// reasonScene is a run that does not go on, and the way from the overview to the reason.
type reasonScene struct {
	// answer is what the function answers when it is called for the run; hangs if it is empty.
	status int
	answer string
	// start has what else starts the run, and arrange changes the database then.
	start   map[string]any
	arrange string
	// kind is the reason, and clicks are the names of what is clicked on: the run's short ID if a name is empty.
	kind   string
	clicks []string
	// remedy is the button that helps; empty if time does.
	remedy string
}

// running is the way over the view of runs that have not ended.
var running = []string{"Running", ""}

var reasonScenes = map[string]reasonScene{
	"parked": {
		status: 500, kind: "parked", clicks: running, remedy: "Retry now",
		arrange: `UPDATE messages SET parked_at = now(), delivery_count = 64 WHERE run_id = $1 AND lease = '' AND delivery_count > 0`,
	},
	"missing": {
		start: map[string]any{"deployment": "gone"}, kind: "deployment_missing", clicks: running, remedy: "Register gone …",
	},
	"unreachable": {
		start: map[string]any{"deployment": "far"}, kind: "unreachable", clicks: running, remedy: "Move far …",
	},
	"fails":   {status: 500, answer: "oops", kind: "function_fails", clicks: running, remedy: "Retry now"},
	"blocked": {status: 500, answer: `{"error": {"code": "no_stock", "message": "no stock"}}`, kind: "function_refuses", clicks: running, remedy: "Retry now"},
	"refused": {status: 200, answer: `{"commands": [{"type": "dance"}]}`, kind: "answer_refused", clicks: running, remedy: "Retry now"},
	"stranded": {
		start: map[string]any{"delay": "1h"}, kind: "stranded", clicks: []string{"Not started", ""}, remedy: "Cancel …",
		arrange: `WITH lost AS (DELETE FROM messages WHERE run_id = $1), old AS (UPDATE runs SET updated_at = now() - interval '1 minute' WHERE id = $1)
			INSERT INTO run_wakes (run_id, stranded_at, stranded_seq, repairs, repaired_at) VALUES ($1, now() - interval '20 minutes', 1, 9, now())`,
	},
	"backoff": {
		status: 200, answer: `{"commands": [{"type": "runStep", "id": "charge", "retry": {"backoff": "1h"}}]}`,
		kind: "step_backoff", clicks: running, remedy: "Retry now",
	},
	"child": {
		status: 200, answer: `{"commands": [{"type": "startChild", "id": "ship", "workflow": "hook"}]}`, kind: "child", clicks: running,
		remedy: "Open the child",
	},
	"hook": {
		status: 200, answer: `{"commands": [{"type": "openHook", "id": "approval"}]}`, kind: "hook", clicks: running, remedy: "Resume …",
	},
	"signal": {
		status: 200, answer: `{"commands": [{"type": "openHook", "id": "paid", "signal": {"name": "order.paid"}}]}`, kind: "signal",
		clicks: running, remedy: "Send the signal …",
	},
	"sleep": {status: 200, answer: `{"commands": [{"type": "wait", "id": "nap", "for": "1h"}]}`, kind: "wait", clicks: running},
	"delay": {start: map[string]any{"delay": "1h"}, kind: "start_delay", clicks: []string{"Not started", ""}},
	"turn":  {kind: "called", clicks: running},
}

// TestReasonsAreTwoClicksAway goes from the overview to why each of many runs does not go on, and to the button that
// helps, in two clicks, though a page of newer runs has ended; and once more in four keys.
func TestReasonsAreTwoClicksAway(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	done := make(chan struct{})
	app := httptest.NewServer(answerScenes(done))
	t.Cleanup(app.Close)
	t.Cleanup(func() { close(done) })
	for id, url := range map[string]string{"scenes": app.URL, "gone": "http://127.0.0.1:1", "far": "http://127.0.0.1:1"} {
		i.call("PUT", "/v1/deployments/"+id, map[string]any{"url": url}, nil)
	}
	runs := map[string]string{}
	for name, scene := range reasonScenes {
		more := map[string]any{"deployment": "scenes"}
		for k, v := range scene.start {
			more[k] = v
		}
		runs[name] = i.start(name, more)
	}
	i.call("DELETE", "/v1/deployments/gone", nil, nil)
	for range 100 {
		i.start("done", map[string]any{"deployment": "scenes"})
	}
	for name, scene := range reasonScenes {
		if scene.arrange != "" {
			i.exec(scene.arrange, runs[name])
		}
	}
	b := newTab(t, i.web)
	for name, scene := range reasonScenes {
		b.open("/ui/default/overview")
		b.shows("Needs attention")
		if len(scene.clicks) > 2 {
			t.Errorf("%s: %d clicks", name, len(scene.clicks))
		}
		for _, click := range scene.clicks {
			if click == "" {
				click = short(runs[name])
			}
			b.click(click)
		}
		b.finds(scene)
	}
	b.open("/ui/default/overview")
	b.shows("Needs attention", "parked: retry or discard", "gone is not registered", "far cannot be reached", "blocked: the function refuses to go on", "is stranded")
	b.accessible()
	b.look("overview-reasons")
	b.click("Look: gone is not registered: 1 message waiting")
	b.until("the form", `document.querySelector("dialog input[name=id]")?.value === "gone"`)
	newest := i.start("hook", map[string]any{"deployment": "scenes"})
	i.wait(newest, "hook_created")
	b.open("/ui/default/overview")
	b.shows("Needs attention")
	b.press("gr")
	b.until("the newest run", `document.querySelector("table.runs tbody tr")?.innerText.includes(`+quote(short(newest))+`)`)
	b.press("j\r")
	b.finds(reasonScenes["hook"])
	b.needs()
}

// needs has the list of runs show what is stuck, by its chip, and then all runs in the order of their needs.
func (b *tab) needs() {
	b.t.Helper()
	stuck := []string{"parked", "missing", "blocked", "refused", "stranded"}
	b.open("/ui/default/runs")
	b.until("the numbers", fmt.Sprintf(`document.querySelector(".needs")?.innerText.replace(/\s+/g, " ").startsWith("stuck %d retrying 3 waiting ")`, len(stuck)))
	b.click(fmt.Sprintf("stuck %d", len(stuck)))
	for _, workflow := range stuck {
		b.until(workflow+" in the list", `[...document.querySelectorAll("table.runs tbody tr")].some((r) => r.innerText.includes(`+quote(workflow)+`))`)
	}
	b.until("no other run", fmt.Sprintf(`document.querySelectorAll("table.runs tbody tr").length === %d`, len(stuck)))
	b.shows("is parked: it failed 64 times", "deployment gone is not registered")
	b.accessible()
	b.look("runs-stuck")
	b.open("/ui/default/runs?order=need")
	b.until("those first that need somebody most", fmt.Sprintf(`(() => {
		const words = [...document.querySelectorAll("table.runs tbody tr")].map((r) => r.querySelector(".pill, .status")?.innerText.trim());
		return words.length > %[1]d && words.slice(0, %[1]d).every((w) => w === "blocked" || w === "stranded") && words[%[1]d] === "retrying";
	})()`, len(stuck)))
}

// finds waits until the page of a run has the reason of the scene, the state that belongs to it, and the button that helps.
func (b *tab) finds(scene reasonScene) {
	b.t.Helper()
	b.until("the reason "+scene.kind, `document.querySelector('[data-kind="`+scene.kind+`"]')`)
	b.until("the state of "+scene.kind, `[document.querySelector("section.why").dataset.verdict.replace("working", "running")]
		.includes(document.querySelector(".pill").innerText.trim())`)
	if scene.remedy != "" {
		b.until("the button "+scene.remedy, `[...document.querySelectorAll('[data-kind="`+scene.kind+`"] :is(button, a.button)')]
			.some((e) => e.innerText.trim() === `+quote(scene.remedy)+` && !e.disabled)`)
	}
}

// answerScenes is the function of all scenes. It hangs, where it has to, until the test is done.
func answerScenes(done <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Type   string
			Run    struct{ Workflow string }
			Events []struct{ Type string }
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		scene := reasonScenes[call.Run.Workflow]
		switch {
		case call.Type == "step":
			w.WriteHeader(http.StatusServiceUnavailable)
		case call.Run.Workflow == "done":
			_, _ = fmt.Fprint(w, `{"commands": [{"type": "complete"}]}`)
		case scene.status == 0:
			select {
			case <-done:
			case <-r.Context().Done():
			}
		case len(call.Events) > 2:
			_, _ = fmt.Fprint(w, `{"commands": []}`)
		default:
			w.WriteHeader(scene.status)
			_, _ = fmt.Fprint(w, scene.answer)
		}
	}
}
