package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestHooksOfARun answers a hook with a schema by the form that is made of it, without JSON, and rejects an approval. Then
// the timeline and the hooks of the run say who has decided what.
func TestHooksOfARun(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "")
	survey := httptest.NewServer(http.HandlerFunc(serveSurvey))
	t.Cleanup(survey.Close)
	i.call("PUT", "/v1/deployments/survey", map[string]any{"url": survey.URL}, nil)
	run := i.start("survey", map[string]any{"deployment": "survey"})
	i.wait(run, "hook_created")
	b := newTab(t, i.web)
	b.allow("401")
	b.open("/")
	b.fill("input[name=key]", apiKey)
	b.click("Sign in")
	b.shows("Sign out")
	b.open("/ui/default/runs/" + run)
	b.shows("Nobody has resumed hook size")
	b.click("Resume …")
	b.shows("How large?", "In centimetres.", "Something is missing or wrong.")
	b.until("a field for each property, and none for JSON", `[...document.querySelectorAll("dialog .generated [name]")].map((e) => e.name).join() === "/width,/wood,/note"
		&& !document.querySelector("dialog textarea")`)
	b.accessible()
	b.fill(`[name="/width"]`, "wide")
	b.shows("This is no whole number.")
	b.look("hook-form")
	b.fill(`[name="/width"]`, "80")
	b.until("the choice is missing", `document.querySelector("dialog button[type=submit]").disabled`)
	evaluate[bool](b, `(() => { const e = document.querySelector("[name='/wood']"); e.value = '"oak"'; return e.dispatchEvent(new Event("input")); })()`)
	b.click("Resume")
	i.wait(run, "hook_received")
	var received struct {
		Data []struct{ Payload json.RawMessage }
	}
	i.call("GET", "/v1/runs/"+run+"/events?type=hook_received&payloads=true", nil, &received)
	if got := string(received.Data[0].Payload); got != `{"width":80,"wood":"oak"}` {
		t.Errorf("the hook has received %s", got)
	}
	b.shows("Order 7")
	b.fill(`[name="as"]`, "zoe")
	b.click("Reject Order 7")
	b.shows("Completed ")
	b.until("the decision in its row", `[...document.querySelectorAll(".tl-row")].some((e) => e.innerText.replace(/\s+/g, " ").includes("agree rejected by zoe"))`)
	b.look("timeline-rejected")
	b.open("/ui/default/runs/" + run + "/hooks")
	b.until("the decision in the list", `[...document.querySelectorAll("tbody tr")].some((e) => e.cells[0].innerText.trim() === "rejected by zoe" && e.cells[1].innerText === "agree")`)
}

// serveSurvey asks how large something is to be, and then whether it may be made.
func serveSurvey(w http.ResponseWriter, r *http.Request) {
	const ask = `[{"type": "openHook", "id": "size", "metadata": {"question": "How large?", "schema": {"type": "object", "required": ["width", "wood"],
		"properties": {"width": {"type": "integer", "description": "In centimetres."}, "wood": {"enum": ["oak", "ash"]}, "note": {"type": "string"}}}}}]`
	var call struct {
		Events []struct {
			Type          string
			CorrelationID string `json:"correlationId"`
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&call)
	var seen strings.Builder
	for _, e := range call.Events {
		seen.WriteString(e.Type + " " + e.CorrelationID + "\n")
	}
	commands := `[]`
	switch has := func(event string) bool { return strings.Contains(seen.String(), event) }; {
	case !has("hook_created size"):
		commands = ask
	case has("hook_received size") && !has("hook_created agree"):
		commands = `[{"type": "openHook", "id": "agree", "approval": {"title": "Order 7"}}]`
	case has("hook_received agree"):
		commands = `[{"type": "complete"}]`
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"commands": %s}`, commands)
}
