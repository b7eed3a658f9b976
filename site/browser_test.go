package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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

	"github.com/stepwell-dev/stepwell/site/cast"
)

// waitLimit limits each wait, for busy machines.
const waitLimit = time.Minute

// tab is a page of the site in a browser. Exceptions, errors in the console, what breaks the content security policy and
// requests to other hosts fail the test.
type tab struct {
	t   *testing.T
	ctx context.Context
	web string // the address of the site, with a slash at its end

	mu       sync.Mutex
	problems []string
}

// newTab opens a tab in a browser of its own; the site is served below a path.
func newTab(t *testing.T) *tab {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs a browser, and takes some seconds")
	}
	folder, err := made()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix("/stepwell/", http.FileServer(http.Dir(folder))))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 5*waitLimit)
	allocator, wait := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)...)
	browser, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		defer cancel()
		defer wait()
		if err := chromedp.Cancel(browser); err != nil {
			t.Errorf("close Chromium: %v", err)
		}
	})
	b := &tab{t: t, ctx: browser, web: server.URL + "/stepwell/"}
	b.window(1400, 1000)
	b.watch()
	send(b, network.Enable, network.EnableParams{})
	send(b, log.Enable, cdp.Empty{})
	send(b, audits.Enable, cdp.Empty{})
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			t.Error(p)
		}
	})
	return b
}

func send[P, R any](b *tab, c cdp.Command[P, R], params P) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	}))
}

func (b *tab) watch() {
	own, err := url.Parse(b.web)
	if err != nil {
		b.t.Fatal(err)
	}
	err = chromedp.Listen(b.ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.problem("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError && !strings.HasSuffix(e.Entry.URL, "/favicon.ico") {
				b.problem("log: %s %s", e.Entry.Text, e.Entry.URL)
			}
		case *audits.EventIssueAdded:
			if e.Issue.Code == audits.InspectorIssueCodeContentSecurityPolicyIssue {
				b.problem("content security policy: %+v", e.Issue.Details.ContentSecurityPolicyIssueDetails)
			}
		case *network.EventRequestWillBeSent:
			if u, err := url.Parse(e.Request.URL); err == nil && u.Host != own.Host {
				b.problem("request to another host: %s", e.Request.URL)
			}
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) window(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.web + path))
}

// media sets a media feature, such as prefers-color-scheme.
func (b *tab) media(name, value string) {
	b.t.Helper()
	send(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}})
}

func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	deadline := time.After(waitLimit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if holds, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](`!!(`+expression+`)`)); err == nil && holds {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("not within %s: %s; the page is %s", waitLimit, expression, evaluate[string](b, `location.href + "\n" + document.documentElement.textContent.slice(0, 500)`))
		}
	}
}

// press presses keys where the focus is. A key and what it types are one event, as they are for a person.
func (b *tab) press(keys string) {
	b.t.Helper()
	for _, r := range keys {
		events := kb.Encode(r)
		down, up := events[0], events[len(events)-1]
		if typed := events[1]; typed.Type == kb.KeyChar {
			down.Text, down.UnmodifiedText = typed.Text, typed.UnmodifiedText
		}
		send(b, input.DispatchKeyEvent, *down)
		send(b, input.DispatchKeyEvent, *up)
	}
}

// write types a text where the focus is.
func (b *tab) write(text string) {
	b.t.Helper()
	send(b, input.InsertText, input.InsertTextParams{Text: text})
}

// look saves a screenshot if SITE_SCREENSHOTS names a folder.
func (b *tab) look(name string) {
	b.t.Helper()
	folder := os.Getenv("SITE_SCREENSHOTS")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// TestSearchFindsWhatOneExpects types queries, and looks for a page among the first three.
func TestSearchFindsWhatOneExpects(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	for query, want := range map[string]string{
		"install":                     "index.html#install",
		"kill -9":                     "tutorial.html",
		"how to retry a step":         "sdk-",
		"cron time zone":              "schedules.html",
		"helm chart":                  "deploy.html#",
		"worker behind nat":           "workers.html",
		"debounce":                    "collections.html",
		"STEPWELL_LISTEN":             "configuration.html#the-server",
		"idempotency key transaction": "transactions.html",
		"temporal":                    "comparison.html",
		"claude code mcp":             "agents.html",
		"verify signature":            "function-contract.html#",
	} {
		b.open("next/concepts.html")
		b.press("/")
		b.until(`document.activeElement.type === "search"`)
		b.write(query)
		b.until(`document.querySelector("#site-found a")`)
		b.until(`document.querySelector("[role=search] input").value === ` + quote(query))
		links := evaluate[[]string](b, `new Promise((done) => requestAnimationFrame(() => done(
			[...document.querySelectorAll("#site-found a")].map((a) => a.getAttribute("href")))))`)
		first := strings.Join(links[:min(3, len(links))], "\n")
		if !strings.Contains("\n"+first, "\n"+want) {
			t.Errorf("%q finds\n%s\nnot %s", query, first, want)
		}
	}
	b.look("search")
	for _, width := range []int64{320, 390, 801} {
		b.window(width, 844)
		if at := evaluate[[]float64](b, `(({left, right}) => [left, right])(document.getElementById("site-found").getBoundingClientRect())`); at[0] < 0 || at[1] > float64(width) {
			t.Errorf("what was found reaches from %v to %v in a window of %d px", at[0], at[1], width)
		}
	}
}

func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string
	}
	return string(data)
}

// TestSearchWorksByKeys goes to a result without a mouse, from a page in a folder.
func TestSearchWorksByKeys(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	b.open("next/examples/order.html")
	b.press("/")
	b.write("goals")
	b.until(`document.querySelectorAll("#site-found a").length > 2`)
	selected := `document.querySelector("#site-found [aria-selected=true]")`
	b.until(selected + `.id === "site-found-0" && document.activeElement.getAttribute("aria-activedescendant") === "site-found-0"`)
	b.press(kb.ArrowDown)
	b.until(selected + `.id === "site-found-1"`)
	b.press(kb.ArrowUp + kb.ArrowUp)
	b.until(selected + ` === document.querySelector("#site-found").lastChild`)
	b.press(kb.ArrowDown)
	b.press(kb.Enter)
	b.until(`location.pathname === "/stepwell/next/goals.html" && document.readyState === "complete"`)
	b.press("/")
	b.write("xyzzyx")
	b.until(`document.querySelector(".count").textContent === "Nothing found"`)
	b.press(kb.Escape)
	b.until(`document.activeElement === document.body && document.querySelector(".count").textContent === ""`)
}

// TestVersionIsChosen goes to the same page in another version, and to the first one if there is none.
func TestVersionIsChosen(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	b.open("")
	b.until(`location.pathname === "/stepwell/latest/"`)
	b.open("next/examples/order.html#try-it")
	b.until(`document.querySelector("select.version").value === "next"`)
	choose := `(() => { const s = document.querySelector("select.version"); s.value = "v0.1"; s.dispatchEvent(new Event("change")); })()`
	evaluate[chromedp.Void](b, choose)
	b.until(`location.pathname === "/stepwell/v0.1/examples/order.html" && document.querySelector("select.version").value === "v0.1"`)
	b.open("next/changelog.html")
	b.until(`(() => { const r = document.querySelector("#site-pages [aria-current]").getBoundingClientRect();
		return r.top > 0 && r.bottom < innerHeight && scrollY === 0; })()`) // the list is longer than the window
	b.open("versions.html")
	b.until(`document.querySelectorAll("main li").length === 3`)
}

// TestPagesWorkWithoutScripts: all but the search is there, and the version leads to the list of versions.
func TestPagesWorkWithoutScripts(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	send(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.window(390, 844)
	b.open("next/tutorial.html")
	b.until(`document.querySelector("article h1").checkVisibility() && !document.querySelector("[role=search]").checkVisibility()`)
	pages := `document.getElementById("site-pages")`
	b.until(`!` + pages + `.checkVisibility()`)
	b.do(chromedp.Click(`a.menu`))
	b.until(pages + `.checkVisibility()`)
	b.do(chromedp.Click(`#site-pages a[href="concepts.html"]`))
	b.until(`location.pathname.endsWith("/next/concepts.html")`)
	b.do(chromedp.Click(`a.version`))
	b.until(`location.pathname === "/stepwell/versions.html"`)
}

// TestRecordingStandsStill for who prefers reduced motion, and for who asks for its end.
func TestRecordingStandsStill(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	moves := `document.getAnimations().filter((a) => a.playState === "running").length > 5`
	b.open("next/images/recording.svg")
	b.until(moves)
	b.open("next/images/recording.svg?#still")
	b.until(`document.querySelector("svg:target") && !document.getAnimations().length`)
	b.media("prefers-reduced-motion", "reduce")
	b.open("next/images/recording.svg")
	b.until(`document.documentElement.getBoundingClientRect().height > 0 && !document.getAnimations().length`)
	last := `[...document.querySelectorAll(".all text")].at(-1)`
	b.until(last + `.textContent.includes("run_completed") && ` + last + `.getBoundingClientRect().bottom < document.documentElement.getBoundingClientRect().bottom`)
	b.media("", "")
	b.open("next/index.html")
	b.until(`document.querySelector(".moving").checkVisibility() && !document.querySelector(".still").checkVisibility()`)
	b.do(chromedp.Click(`#site-still`))
	b.until(`!document.querySelector(".moving").checkVisibility() && document.querySelector(".still").checkVisibility()`)
	b.look("still")
}

// TestPagesAreAccessible runs the rules of axe-core in light, and those of contrast in dark, and no page is wider than a
// phone.
func TestPagesAreAccessible(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	axe, err := os.ReadFile(filepath.Join(repository, "ui", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("%v: run npm ci in the folder ui", err)
	}
	for _, page := range []string{"index", "docs", "tutorial", "configuration", "cli", "dashboard", "comparison", "sdk-python", "examples/order"} {
		for _, scheme := range []string{"light", "dark"} {
			b.media("prefers-color-scheme", scheme)
			b.window(1400, 1000)
			b.open("next/" + page + ".html")
			b.look(strings.ReplaceAll(page, "/", "-") + "-" + scheme)
			evaluate[chromedp.Void](b, string(axe)+`;undefined`)
			for _, violation := range evaluate[[]string](b, `axe.run({resultTypes: ["violations"]}).then((r) => r.violations
				.filter((v) => v.impact === "serious" || v.impact === "critical")
				.map((v) => v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + n.failureSummary).join(" | ")))`) {
				t.Errorf("%s, %s: %s", page, scheme, violation)
			}
			for _, width := range []int64{320, 390, 1024} {
				b.window(width, 844)
				if wide := evaluate[[]string](b, `document.scrollingElement.scrollWidth <= innerWidth ? [] :
					[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("table, pre"))
						.slice(0, 5).map((e) => e.outerHTML.slice(0, 120))`); len(wide) > 0 {
					t.Errorf("%s is wider than %d px: %s", page, width, strings.Join(wide, " | "))
				}
				b.look(fmt.Sprintf("%s-%s-%d", strings.ReplaceAll(page, "/", "-"), scheme, width))
			}
		}
	}
}

// TestRecordingShowsLinesInTime moves the animation to the time before and after each line, and looks at which lines can
// be seen, and that the last of them is in the window.
func TestRecordingShowsLinesInTime(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	file, err := os.Open(filepath.Join(repository, "docs", "images", "recording.cast"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // it was read
	recorded, err := cast.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	b.open("next/images/recording.svg")
	b.until(`document.getAnimations().length > 5`)
	lines := recorded.Lines()
	for i, l := range lines {
		for _, after := range []time.Duration{-20 * time.Millisecond, 20 * time.Millisecond} {
			now := max(0, l.At+after)
			want := slices.IndexFunc(lines, func(l cast.Line) bool { return l.At > now })
			if want < 0 {
				want = len(lines)
			}
			seen := evaluate[[]float64](b, fmt.Sprintf(`(() => {
				for (const a of document.getAnimations()) { a.pause(); a.currentTime = %d; }
				const seen = [...document.querySelectorAll(".all text")].filter((e) => getComputedStyle(e).opacity === "1");
				const bottom = document.documentElement.getBoundingClientRect().bottom;
				return [seen.length, seen.at(-1)?.getBoundingClientRect().bottom - bottom, seen.at(-1)?.getBoundingClientRect().top];
			})()`, now.Milliseconds()))
			if int(seen[0]) != want || seen[1] > 0 || seen[2] < 0 {
				t.Errorf("line %d, %s: %v of %d lines are seen, the last at %v and %v", i, now, seen[0], want, seen[1], seen[2])
			}
		}
		if strings.Contains(l.Text, " Killed ") || strings.Contains(l.Text, "shipped the teapot") && l.At > 0 {
			b.look(fmt.Sprintf("recording-%d", i))
		}
	}
}
