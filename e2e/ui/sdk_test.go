package ui

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/entities/codec"
)

// sdkApp is an app of the Workflow SDK with one run.
type sdkApp struct {
	*installation

	run string
}

// put sends a request as the SDK's client does.
func (a sdkApp) put(method, path string, body []byte, header map[string]string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.server+"/sdk"+path, bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apiKey)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(resp.Body)
		a.t.Fatalf("%s: %s %s", path, resp.Status, text)
	}
}

// event records an event of the run, with a payload.
func (a sdkApp) event(eventType, correlation, payload string, meta map[string]any) {
	a.t.Helper()
	all := map[string]any{"eventType": eventType, "specVersion": 3, "deploymentId": "dpl", "remoteRefBehavior": "resolve"}
	if correlation != "" {
		all["correlationId"] = correlation
	}
	for name, value := range meta {
		all[name] = value
	}
	data, err := codec.Marshal(all)
	if err != nil {
		a.t.Fatal(err)
	}
	body := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	body = binary.BigEndian.AppendUint32(append(body, data...), uint32(len(payload)))
	a.put(http.MethodPost, "/v4/runs/"+a.run+"/events/"+eventType, append(body, payload...), map[string]string{"Content-Type": "application/octet-stream"})
}

// sdkWorkflow is the name of the workflow of [installation.placeOrder], as the SDK has it.
const sdkWorkflow = "workflow//./workflows/order//placeOrder"

// placeOrder makes a run of the Workflow SDK that has charged a card and waits for an approval, at most a day.
func (i *installation) placeOrder() sdkApp {
	i.t.Helper()
	a := sdkApp{installation: i, run: "wrun_" + ulid.Make().String()}
	charge := "step_" + ulid.Make().String()
	name := map[string]any{"stepName": "step//./workflows/order//chargeCard"}
	a.event("run_created", "", `devl[["Map",1,2],"order","A-1"]`, map[string]any{"workflowName": sdkWorkflow})
	a.event("run_started", "", "", nil)
	a.event("step_created", charge, `devl[{"args":1},[]]`, name)
	a.event("step_started", charge, "", name)
	a.event("step_completed", charge, `devl[{"at":1},["Date","2026-11-21T02:00:00.000Z"]]`, name)
	a.event("hook_created", "hook_"+ulid.Make().String(), "", map[string]any{"hookToken": "approval:jwog17"})
	a.event("wait_created", "wait_"+ulid.Make().String(), "", map[string]any{"resumeAt": codec.NewTime(time.Now().Add(24 * time.Hour))})
	return a
}

// TestSDKRun: a run of the Workflow SDK is shown as its author named it, everywhere, and its IDs and whole names on demand.
func TestSDKRun(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base)
			a := i.placeOrder()
			b := newTab(t, i.web)
			i.enter(b, "write")
			a.namesScene(b)
			a.streamScene(b)
		})
	}
}

// unreadable is true if the page shows a name or an ID that the SDK made, apart from where one looks for it.
const unreadable = `/(step|hook|wait)_[0-9A-Z]{26}|(workflow|step)\/\//.test([...document.querySelectorAll("main *")]
	.filter((e) => !e.closest(".facts, details, [hidden]")).flatMap((e) => [...e.childNodes]).filter((n) => n.nodeType === 3).map((n) => n.data).join("\n"))`

func (a sdkApp) namesScene(b *tab) {
	page := "/ui/default/runs/" + a.run
	for _, tab := range []struct {
		path  string
		shown []string
	}{
		{page, []string{"placeOrder", "chargeCard", "approval:jwog17", "sleep 1 d", "Nobody has resumed hook approval:jwog17."}},
		{page + "/steps", []string{"chargeCard"}},
		{page + "/hooks", []string{"approval:jwog17", "sleep 1 d"}},
		{page + "/log", []string{"step_completed", "chargeCard", "approval:jwog17", "sleep 1 d"}},
		{page + "/family", []string{"placeOrder"}},
		{"/ui/default/runs", []string{"placeOrder"}},
		{"/ui/default/runs?q=workflow:" + sdkWorkflow, []string{"workflow:placeOrder"}},
		{"/ui/default/waiting/hooks", []string{"placeOrder", "approval:jwog17"}},
		{"/ui/default/waiting/timers", []string{"placeOrder", "sleep 1 d"}},
		{"/ui/default/workflows", []string{"placeOrder"}},
	} {
		b.open(tab.path)
		b.shows(tab.shown...)
		if evaluate[bool](b, unreadable) {
			b.t.Errorf("%s shows what the Workflow SDK made:\n%s", tab.path, b.text())
		}
		b.narrow()
	}
	b.open(page)
	b.until("the title of the tab", `document.title.startsWith("placeOrder …")`)
	b.until("the whole name on demand", fmt.Sprintf(`document.querySelector("h1 span").title === %s`, quote(sdkWorkflow)))
	b.accessible()
	b.look("sdk")
	b.open(page + "/log")
	b.shows("step_completed")
	b.look("sdk-log")
}

// write writes to the default stream of the run: each content is one chunk, as the SDK's client frames it.
func (a sdkApp) write(done string, contents ...string) {
	a.t.Helper()
	var body []byte
	for _, c := range contents {
		body = binary.BigEndian.AppendUint32(body, uint32(4+len(c)))
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(c))), c...)
	}
	path := "/v2/runs/" + a.run + "/stream/" + strings.Replace(a.run, "wrun", "strm", 1) + "_user"
	if done != "" {
		a.put(http.MethodPut, path, nil, map[string]string{"X-Stream-Done": done})
		return
	}
	a.put(http.MethodPut, path, body, map[string]string{"X-Stream-Multi": "true"})
}

// streamScene follows a stream of texts and values, and looks at its bytes. Payloads are decoded too.
func (a sdkApp) streamScene(b *tab) {
	page := "/ui/default/runs/" + a.run
	a.write("", `devl["line 353: \u003Cb>Once"]`, `devl[" upon\n"]`, `devl[{"at":1},["Date",2],"2026-11-21T02:00:00.000Z"]`)
	b.open(page + "/streams")
	b.shows("default", "line 353: <b>Once upon\n{\"at\":\"2026-11-21T02:00:00.000Z\"}")
	a.write("", `devl["a time"]`, "encr\x01\x02")
	b.shows("a time\n(encrypted)", "1 chunk is encrypted: only the app can read it")
	if text := b.text(); strings.Contains(text, "devl") {
		b.t.Errorf("the page shows frames:\n%s", text)
	}
	a.write("true")
	b.shows("closed")
	b.accessible()
	b.narrow()
	b.look("sdk-streams")
	b.click("Bytes")
	b.shows("64 65 76 6c") // devl
	b.open(page + "/data")
	b.until("the input, decoded", `[...document.querySelectorAll(".tree-row")].some((r) => r.textContent.includes("order: \"A-1\""))`)
}
