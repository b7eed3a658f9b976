package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// sceneTimeout limits all that a test does in a tab. It is generous, for busy machines, as untilTimeout is.
const sceneTimeout = 15 * time.Minute

// untilTimeout limits every wait for something in the page.
const untilTimeout = harness.Timeout

// clickTimeout limits one attempt to click on an element that was found.
const clickTimeout = 15 * time.Second

// tab is a page in the browser. What it must never do fails the test: see watch.
type tab struct {
	t   *testing.T
	ctx context.Context
	web string // the dashboard's address, without a slash at its end

	mu       sync.Mutex
	problems []string
	// allowed are the statuses of answers that the scene causes.
	allowed []string
}

// newTab opens a tab in a browser of its own, and closes both with the test.
func newTab(t *testing.T, web string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.WindowSize(1400, 900), chromedp.NoSandbox)
	limit := sceneTimeout
	if os.Getenv("E2E_CHAOS") != "" || os.Getenv("E2E_RUNS") != "" {
		limit = time.Hour
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	allocator, wait := chromedp.NewExecAllocator(ctx, options...)
	browser, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		defer cancel()
		defer wait()
		if err := chromedp.Cancel(browser); err != nil {
			t.Errorf("close Chromium: %v", err)
		}
	})
	b := &tab{t: t, ctx: browser, web: web}
	b.do(chromedp.EmulateViewport(1400, 900))
	b.watch()
	send(b, network.Enable, network.EnableParams{})
	send(b, log.Enable, cdp.Empty{})
	send(b, audits.Enable, cdp.Empty{})
	t.Cleanup(b.check)
	return b
}

// send sends a command of the protocol.
func send[P, R any](b *tab, c cdp.Command[P, R], params P) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	}))
}

// watch records what fails every scene: exceptions, console errors, reports of the content security policy, and
// requests to other origins.
func (b *tab) watch() {
	own, err := url.Parse(b.web)
	if err != nil {
		b.t.Fatal(err)
	}
	err = chromedp.Listen(b.ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.problem("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
				b.problem("console: %s", e.Args[0].Value)
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError {
				b.problem("log: %s %s", e.Entry.Text, e.Entry.URL)
			}
		case *audits.EventIssueAdded:
			if e.Issue.Code == audits.InspectorIssueCodeContentSecurityPolicyIssue {
				b.problem("content security policy: %+v", e.Issue.Details.ContentSecurityPolicyIssueDetails)
			}
		case *network.EventRequestWillBeSent:
			if u, err := url.Parse(e.Request.URL); err == nil && u.Host != own.Host && u.Scheme != "data" {
				b.problem("request to another origin: %s", e.Request.URL)
			}
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.ContainsFunc(b.allowed, func(a string) bool { return strings.Contains(text, a) }) {
		b.problems = append(b.problems, text)
	}
}

// allow accepts problems that have the text: a scene that sends a wrong key, for example, sees a 401.
func (b *tab) allow(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = append(b.allowed, text)
}

func (b *tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Error(p)
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v; the page shows:\n%s", err, b.text())
	}
}

// evaluate returns the value of an expression in the page.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (b *tab) text() string {
	v, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body?.innerText ?? ""`))
	return v
}

// open opens a path below the dashboard's address.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.web + path))
}

// until waits until an expression in the page is true. While a page is loaded, there is none to evaluate it in.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	deadline := time.After(untilTimeout)
	tick := time.NewTicker(harness.PollInterval)
	defer tick.Stop()
	for {
		holds, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](`!!(`+expression+`)`))
		if err == nil && holds {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("%s: not within %s, %v; the page shows:\n%s", what, untilTimeout, err, b.text())
		}
	}
}

// shows waits until the page shows all texts.
func (b *tab) shows(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("show %q", text), `document.body.innerText.includes(`+quote(text)+`)`)
	}
}

func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string
	}
	return string(data)
}

// click clicks on the button, link, box or tab with a name: a real click, at its place on the screen. A page that is drawn
// anew between the search and the click takes the element away, so it is searched again.
func (b *tab) click(name string) {
	b.t.Helper()
	const mark = `document.querySelectorAll("[data-e2e]").forEach((e) => e.removeAttribute("data-e2e"));`
	named := `[...([...document.querySelectorAll("dialog[open]")].at(-1) ?? document)
		.querySelectorAll("button, a, summary, label, input[type=checkbox], [role=tab]")]
		.find((e) => ((e.ariaLabel ?? "") === ` + quote(name) + ` || e.innerText.trim() === ` + quote(name) + `) && !e.disabled)`
	const listen = `e?.setAttribute("data-e2e", ""); window.clicked = false;
		e?.addEventListener("click", () => { window.clicked = true; }, {once: true, capture: true});`
	deadline := time.Now().Add(untilTimeout)
	for {
		b.until("find "+name, `(() => {`+mark+`const e = `+named+`;`+listen+` return e; })()`)
		ctx, cancel := context.WithTimeout(b.ctx, clickTimeout)
		err := chromedp.Do(ctx, chromedp.Click(`[data-e2e]`))
		cancel()
		// What came above it meanwhile may have moved it away. Another page knows nothing of the click, nor does one that
		// is being loaded. A click that was slow may have been one.
		missed, unknown := chromedp.Run(b.ctx, chromedp.Evaluate[bool](`window.clicked === false`))
		if unknown == nil && !missed || unknown != nil && err == nil {
			return
		}
		if time.Now().After(deadline) || b.ctx.Err() != nil {
			b.t.Fatalf("click %s: %v; the page shows:\n%s", name, err, b.text())
		}
	}
}

// fill types a text into a field, in place of what is in it.
func (b *tab) fill(field, text string) {
	b.t.Helper()
	find := `document.querySelector(` + quote(field) + `)`
	b.until("find "+field, find+`?.checkVisibility()`)
	evaluate[chromedp.Void](b, `(() => { const e = `+find+`; e.focus(); e.select(); })()`)
	b.typeText(text)
}

// typeText types a text where the focus is.
func (b *tab) typeText(text string) {
	b.t.Helper()
	send(b, input.InsertText, input.InsertTextParams{Text: text})
}

// press presses keys where the focus is. For the page they come at the same time, however long each takes on a busy
// machine: those of a shortcut must follow each other within a second. A key and what it types are one event, as they
// are for a person: what is typed by itself would go to a field that the key has opened.
func (b *tab) press(keys string) {
	b.t.Helper()
	at := input.TimeSinceEpoch(float64(time.Now().UnixMicro()) / 1e6)
	for _, r := range keys {
		events := kb.Encode(r)
		down, up := events[0], events[len(events)-1]
		if typed := events[1]; typed.Type == kb.KeyChar {
			down.Text, down.UnmodifiedText = typed.Text, typed.UnmodifiedText
		}
		down.Timestamp, up.Timestamp = at, at
		send(b, input.DispatchKeyEvent, *down)
		send(b, input.DispatchKeyEvent, *up)
	}
}

// accessible fails the test on serious violations of the accessibility rules by what the page shows now: all rules in
// light, and the contrast in dark again. In forced colours, the browser chooses the colours.
func (b *tab) accessible() {
	b.t.Helper()
	b.violations("light", `{}`)
	b.media("prefers-color-scheme", "dark")
	b.violations("dark", `{runOnly: ["color-contrast"]}`)
	b.media("", "")
}

// violations runs the rules of axe-core. The page's content security policy does not bind what the protocol evaluates.
func (b *tab) violations(theme, options string) {
	b.t.Helper()
	if !evaluate[bool](b, `!!window.axe`) {
		source, err := os.ReadFile(filepath.Join("..", "..", "ui", "node_modules", "axe-core", "axe.min.js"))
		if err != nil {
			b.t.Fatalf("%v: run npm ci in the folder ui", err)
		}
		evaluate[chromedp.Void](b, string(source)+`;undefined`)
	}
	found := evaluate[[]string](b, `axe.run({resultTypes: ["violations"], ...`+options+`}).then((r) => r.violations
		.filter((v) => v.impact === "serious" || v.impact === "critical")
		.map((v) => v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + n.failureSummary).join(" | ")))`)
	for _, violation := range found {
		b.t.Errorf("%s, %s: %s", evaluate[string](b, `location.pathname + location.search`), theme, violation)
	}
}

// media sets a media feature that the page sees, such as prefers-color-scheme; without a name, those of the browser.
func (b *tab) media(name, value string) {
	b.t.Helper()
	var params emulation.SetEmulatedMediaParams
	if name != "" {
		params.Features = []*emulation.MediaFeature{{Name: name, Value: value}}
	}
	send(b, emulation.SetEmulatedMedia, params)
}

// narrow fails the test if the page must be scrolled sideways at a width of 320 px, which is 1280 px at 400 %, or on a tablet.
func (b *tab) narrow() {
	b.t.Helper()
	for _, width := range []int64{320, 1024} {
		b.do(chromedp.EmulateViewport(width, 640))
		if wide := evaluate[[]string](b, `(() => {
			if (document.scrollingElement.scrollWidth <= innerWidth) return [];
			return [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
				.slice(0, 5).map((e) => e.outerHTML.slice(0, 120));
		})()`); len(wide) > 0 {
			b.t.Errorf("%s is wider than %d px: %s", evaluate[string](b, `location.pathname`), width, strings.Join(wide, " | "))
		}
	}
	b.do(chromedp.EmulateViewport(1400, 900))
}

// onTablet returns the value of an expression in the page at a width of 1024 px.
func onTablet[T any](b *tab, expression string) T {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(1024, 900))
	defer b.do(chromedp.EmulateViewport(1400, 900))
	return evaluate[T](b, expression)
}

// look saves screenshots of the page, light and dark, wide and narrow, if E2E_SCREENSHOTS names a folder.
func (b *tab) look(name string) {
	b.t.Helper()
	if !b.isLookedAt() {
		return
	}
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{1400, 1024, 390} {
			b.media("prefers-color-scheme", theme)
			b.do(chromedp.EmulateViewport(width, 900))
			b.shot(fmt.Sprintf("%s-%s-%d", name, theme, width))
		}
	}
	b.media("", "")
	b.do(chromedp.EmulateViewport(1400, 900))
}

// isLookedAt reports whether screenshots are saved: those at the root suffice.
func (b *tab) isLookedAt() bool {
	return os.Getenv("E2E_SCREENSHOTS") != "" && !strings.Contains(b.web, "/a/b")
}

// shot saves a screenshot as it is now, if screenshots are saved.
func (b *tab) shot(name string) {
	b.t.Helper()
	if !b.isLookedAt() {
		return
	}
	evaluate[chromedp.Void](b, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))`)
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Getenv("E2E_SCREENSHOTS"), name+".png"), png, 0o600)
	}
	if err != nil {
		b.t.Error(err)
	}
}
