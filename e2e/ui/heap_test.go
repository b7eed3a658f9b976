package ui

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestOpenListKeepsItsSize starts runs while their list is open: 400, or as many as E2E_RUNS says, such as those of
// hours. The second half of them must not add to the page's heap.
func TestOpenListKeepsItsSize(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	runs := 400
	if n, err := strconv.Atoi(os.Getenv("E2E_RUNS")); err == nil {
		runs = n
	}
	const most, noise = 60.0, 2.0 // MB
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	b := newTab(t, i.web)
	b.open("/ui/default/runs")
	b.isLive()
	i.fail(b, runs/2)
	half := b.heap()
	i.fail(b, runs-runs/2)
	whole := b.heapUntil(half + noise)
	t.Logf("after %d runs the heap has %.1f MB, after %d runs %.1f MB", runs/2, half, runs, whole)
	if whole > most || whole > half+noise {
		t.Errorf("the heap has grown from %.1f to %.1f MB, want at most %.0f, and %.0f more", half, whole, most, noise)
	}
}

// fail starts runs that fail at once, and waits until the list shows the last one.
func (i *installation) fail(b *tab, runs int) {
	i.t.Helper()
	var last string
	for range runs {
		last = i.start("refund", nil)
	}
	b.until("the last run has failed", `[...document.querySelectorAll("table.runs tbody tr")].some((row) =>
		row.innerText.includes(`+quote(last[len(last)-8:])+`) && row.innerText.includes("failed"))`)
}

// heapUntil returns the size of the page's heap in MB, as soon as it is at most this: what waits for a task of the browser
// is garbage only later.
func (b *tab) heapUntil(most float64) float64 {
	b.t.Helper()
	size := b.heap()
	for deadline := time.Now().Add(untilTimeout); size > most && time.Now().Before(deadline); {
		size = b.heap()
	}
	return size
}

// heap returns the size of the page's heap in MB, without garbage.
func (b *tab) heap() float64 {
	b.t.Helper()
	send(b, heapprofiler.CollectGarbage, cdp.Empty{})
	use, err := chromedp.Run(b.ctx, func(ctx context.Context, t *chromedp.Target) (runtime.GetHeapUsageResult, error) {
		return cdp.Call(ctx, t, runtime.GetHeapUsage, cdp.Empty{})
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return use.UsedSize / 1e6
}
