package ui

import (
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
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
			m.bytes += max(e.EncodedDataLength, 0)
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

// heartbeats waits until so many pieces have come on live connections.
func (m *meter) heartbeats(t *testing.T, n int) {
	t.Helper()
	harness.Eventually(t, "heartbeats", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.beats >= n
	})
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
	meters := map[string]*meter{}
	for _, path := range []string{"/overview", "/queue/delayed", "/limits", "/servers", "/runs"} {
		b := first
		if len(meters) > 0 {
			ctx, _ := chromedp.NewContext(first.ctx)
			b = &tab{t: t, ctx: ctx, web: i.web}
			send(b, network.Enable, network.EnableParams{})
		}
		meters[path] = b.measure()
		b.open("/ui/default" + path)
		b.isLive()
	}
	const beats = 2
	window := func() (asked []string) {
		for _, m := range meters {
			m.reset()
		}
		for _, m := range meters {
			m.heartbeats(t, beats)
			asked = append(asked, m.requests...)
		}
		return asked
	}
	for n := 0; len(window()) > 0; n++ { // what happened before is told, and read
		if n == 4 {
			t.Fatalf("they still ask for %q", window())
		}
	}
	window()
	for path, m := range meters {
		if len(m.requests) > 0 {
			t.Errorf("%s asked for %q while nothing happened", path, m.requests)
		}
		if perHour := m.bytes * 240 / beats; perHour == 0 || perHour > mostPerHour {
			t.Errorf("%s: %d bytes an hour, want at most %d", path, perHour, mostPerHour)
		}
		t.Logf("%s: %d bytes in %d heartbeats", path, m.bytes, beats)
	}
}
