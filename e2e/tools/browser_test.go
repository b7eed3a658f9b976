package tools

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// newBrowser starts a headless Chromium that ends with the test, and returns its context. The contexts that
// chromedp.NewContext derives from it are tabs.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.WindowSize(1400, 1000),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.NoInheritEnv,
		chromedp.Env(cleanEnv()...))
	// Not t.Context(): it is canceled before the cleanup, which closes the browser gracefully.
	ctx, cancel := context.WithTimeout(context.Background(), 2*timeout)
	allocator, wait := chromedp.NewExecAllocator(ctx, options...)
	browser, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		defer cancel()
		defer wait() // else Chromium may still write to the folder that the test removes
		if err := chromedp.Cancel(browser); err != nil {
			t.Errorf("close Chromium: %v", err)
		}
	})
	if err := chromedp.Do(browser); errors.Is(err, exec.ErrNotFound) {
		t.Fatal("The dashboard tests need Chromium, which was not found. Install it: " +
			"on Debian with `sudo apt-get install chromium`, on Fedora with `sudo dnf install chromium`, " +
			"on macOS with `brew install --cask google-chrome`.")
	} else if err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return browser
}

// readPage returns the page's text and its ARIA labels: the bars of a timeline show their text only if they are wide
// enough.
const readPage = `(document.body?.innerText ?? '') + '\n' +
	Array.from(document.querySelectorAll('[aria-label]'), (element) => element.ariaLabel).join('\n')`

// showsAll reports whether the page shows each text at least as often as the object says.
const showsAll = `(times) => {
	const page = ` + readPage + `
	return Object.entries(times).every(([text, n]) => page.split(text).length > n)
}`

// wantPage opens a page in a new tab and waits until it shows all texts, each at least as often as it is listed. If
// E2E_SCREENSHOTS is set, it saves a screenshot to that folder.
func wantPage(t *testing.T, browser context.Context, name, url string, texts ...string) {
	t.Helper()
	times := map[string]int{}
	for _, text := range texts {
		times[text]++
	}
	tab, closeTab := chromedp.NewContext(browser)
	defer closeTab()
	if err := chromedp.Do(tab); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	ctx, cancel := context.WithTimeout(tab, timeout)
	defer cancel()
	if err := chromedp.Do(ctx,
		chromedp.Navigate(url),
		chromedp.PollFunction[chromedp.Void](showsAll, chromedp.WithPollingArgs(times),
			chromedp.WithPollingInterval(harness.PollInterval), chromedp.WithPollingTimeout(0)),
	); err != nil {
		seen, _ := chromedp.Run(tab, chromedp.Evaluate[string](readPage)) // empty if it cannot be read either
		t.Fatalf("the page %s does not show %q: %v; it shows:\n%s", name, texts, err, seen)
	}
	saveScreenshot(t, ctx, name)
}

func saveScreenshot(t *testing.T, tab context.Context, name string) {
	t.Helper()
	dir := os.Getenv("E2E_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600)
	}
	if err != nil {
		t.Errorf("screenshot of the page %s: %v", name, err)
	}
}

// dashboardPages opens the list of runs and the page of one run in a browser.
func dashboardPages(t *testing.T, d *dashboard) {
	browser := newBrowser(t)
	var texts []string
	for _, r := range d.runs {
		texts = append(texts, r.Workflow, r.ID, strings.ToUpper(r.Status[:1])+r.Status[1:])
	}
	wantPage(t, browser, d.name+"-runs", d.url, texts...)
	done := d.run(t, "sequential")
	wantPage(t, browser, d.name+"-run", d.url+"/run/"+done.ID, "sequential", "Completed", "add", "add", "add")
}
