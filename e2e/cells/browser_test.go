package cells

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// twoProjects opens the project of each cell in one browser by its pages, and shows both.
func twoProjects(t *testing.T, url string, cells []*cell) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WindowSize(1400, 900), chromedp.NoSandbox)
	allocator, wait := chromedp.NewExecAllocator(ctx, options...)
	browser, _ := chromedp.NewContext(allocator)
	defer wait()
	defer func() { _ = chromedp.Cancel(browser) }()
	until := func(what, script string) {
		t.Helper()
		harness.Eventually(t, what, func() bool {
			holds, err := chromedp.Run(browser, chromedp.Evaluate[bool](`!!(`+script+`)`))
			return err == nil && holds
		})
	}
	// An event tells the page of the key, as typing does.
	enter := func(key string) {
		t.Helper()
		until("the field of the key", `(() => {
			const field = [...document.querySelectorAll("input[name=key]")].at(-1);
			if (!field) return false;
			field.value = `+strconv.Quote(key)+`;
			field.dispatchEvent(new Event("input", {bubbles: true}));
			return true;
		})()`)
	}
	shown := func(project string) string {
		return `document.querySelector("label.project select")?.value === ` + strconv.Quote(project)
	}
	if err := chromedp.Do(browser, chromedp.Navigate(url+"/ui/")); err != nil {
		t.Fatal(err)
	}
	enter(cells[0].key)
	press := func(name string) {
		t.Helper()
		until("press "+name, `(() => {
			const button = [...document.querySelectorAll("button")].find((b) => b.innerText === `+strconv.Quote(name)+` && !b.disabled);
			button?.click();
			return button;
		})()`)
	}
	press("Sign in")
	until("the first project", shown(cells[0].project))
	until("another key", `(() => {
		const select = document.querySelector("label.project select");
		select.value = " key";
		select.dispatchEvent(new Event("change", {bubbles: true}));
		return true;
	})()`)
	enter(cells[1].key)
	press("Open")
	until("the second project", shown(cells[1].project))
	for _, c := range cells {
		if err := chromedp.Do(browser, chromedp.Navigate(url+"/ui/"+c.project+"/runs")); err != nil {
			t.Fatal(err)
		}
		until("the runs of "+c.project, `document.body.innerText.includes("through-")`)
		listed, err := chromedp.Run(browser, chromedp.Evaluate[string](
			`[...document.querySelectorAll("label.project option")].map((o) => o.value).join(" ")`))
		if err != nil || !strings.Contains(listed, cells[0].project) || !strings.Contains(listed, cells[1].project) {
			t.Errorf("the projects in %s are %q, %v", c.name, listed, err)
		}
	}
}
