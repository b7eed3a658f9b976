package ui

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// meter counts what a tab asks its server for, and gets.
type meter struct {
	mu       sync.Mutex
	requests []string // their addresses, apart from the live connection's
	bytes    int64
	live     map[network.RequestID]bool
	beats    int // pieces that came on live connections
}

// measure counts from now on.
func (b *tab) measure() *meter {
	b.t.Helper()
	m := &meter{live: map[network.RequestID]bool{}}
	err := chromedp.Listen(b.ctx, func(event any) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			u, err := url.Parse(e.Request.URL)
			if err != nil || u.Scheme == "data" {
				return
			}
			if strings.HasSuffix(u.Path, "/v1/live") {
				m.live[e.RequestID] = true
			}
			m.requests = append(m.requests, e.Request.Method+" "+u.RequestURI())
		case *network.EventDataReceived:
			m.bytes += max(e.EncodedDataLength, e.DataLength) // one of them may come later
			if m.live[e.RequestID] {
				m.beats++
			}
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

// reset begins to count anew.
func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests, m.bytes, m.beats = nil, 0, 0
}

// asked returns what was asked for.
func (m *meter) asked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// heartbeats waits until so many pieces have come on live connections.
func (m *meter) heartbeats(t *testing.T, n int) {
	t.Helper()
	harness.Eventually(t, "heartbeats", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.beats >= n
	})
}

// hasten makes the timers of pages go ten times as fast, apart from short ones and from those that bound how long the
// server may take: 5 s for a hello, 30 s for an answer, 40 s for a heartbeat.
func (b *tab) hasten() {
	b.t.Helper()
	send(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		for (const name of ["setTimeout", "setInterval"]) {
			const real = window[name];
			window[name] = (f, ms, ...more) => real(f, ms < 1500 || [5000, 30000, 40000].includes(ms) ? ms : ms / 10, ...more);
		}`})
}

// begins begins to count seconds of the page's time, and passed waits until they have passed.
func (b *tab) begins(seconds int) {
	b.t.Helper()
	evaluate[chromedp.Void](b, fmt.Sprintf(`window.passed = false; setTimeout(() => (window.passed = true), %d)`, seconds*1000))
}

func (b *tab) passed() {
	b.t.Helper()
	b.until("time passes", `window.passed`)
}

// mostPerHour is how many bytes an open page may get in an hour in which nothing happens.
const mostPerHour = 500_000

// TestIdlePagesAskForNothing: while nothing happens, only the heartbeats of the live connections travel, one in 15 s.
func TestIdlePagesAskForNothing(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	i.wait(i.start("reminder", nil), "wait_created")
	first := newTab(t, i.web)
	tabs, meters := map[string]*tab{}, map[string]*meter{}
	for _, path := range []string{"/overview", "/queue/delayed", "/limits", "/servers", "/runs"} {
		b := first
		if len(tabs) > 0 {
			ctx, _ := chromedp.NewContext(first.ctx)
			b = &tab{t: t, ctx: ctx, web: i.web}
			send(b, network.Enable, network.EnableParams{})
		}
		b.hasten()
		tabs[path], meters[path] = b, b.measure()
		b.open("/ui/default" + path)
	}
	for _, b := range tabs {
		b.isLive()
	}
	const longestPoll = 60 // seconds
	quiet := func() (asked []string) {
		for path, b := range tabs {
			meters[path].reset()
			b.begins(longestPoll + 10)
		}
		for path, b := range tabs {
			b.passed()
			asked = append(asked, meters[path].asked()...)
		}
		return asked
	}
	for n := 0; len(quiet()) > 0; n++ { // what happened before is sent, and read
		if n == 5 {
			t.Fatalf("they still ask for %q", quiet())
		}
	}
	for _, m := range meters {
		m.reset()
	}
	for path, m := range meters {
		m.heartbeats(t, 1)
		if asked := m.asked(); len(asked) > 0 {
			t.Errorf("%s asked for %q while nothing happened", path, asked)
		}
		if perHour := m.bytes * 240 / int64(m.beats); perHour == 0 || perHour > mostPerHour {
			t.Errorf("%s: %d bytes an hour, want at most %d", path, perHour, mostPerHour)
		}
		t.Logf("%s: %d bytes in %d heartbeats", path, m.bytes, m.beats)
	}
}
