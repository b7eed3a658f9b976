package ui

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// mostRequests is how many requests the first view of a page may make, with its files and the live connection.
const mostRequests = 10

// readsIn returns what the requests read: some consist of several reads.
func readsIn(t *testing.T, requests []string) (reads []string) {
	t.Helper()
	for _, request := range requests {
		u, err := url.Parse(strings.TrimPrefix(request, "GET "))
		if err != nil {
			t.Fatal(err)
		}
		if together := u.Query()["read"]; len(together) > 0 {
			reads = append(reads, together...)
		} else {
			reads = append(reads, request)
		}
	}
	return reads
}

// TestFirstViewIsCheap opens pages in browsers that know nothing yet: few requests, and nothing twice.
func TestFirstViewIsCheap(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	run := i.start("order", nil)
	i.wait(run, "hook_created")
	for path, seen := range map[string][]string{
		"/overview":             {"How long runs take", "No run has failed.", "waiting"},
		"/runs":                 {"order", "1 run"},
		"/queue":                {"There are no such messages", "parked0"},
		"/runs/" + run:          {"charge", "Nobody has resumed"},
		"/runs/" + run + "/log": {"hook_created", "Nobody has resumed"},
	} {
		t.Run(strings.ReplaceAll(path, run, "RUN"), func(t *testing.T) {
			t.Parallel()
			b := newTab(t, i.web)
			m := b.measure()
			b.open("/ui/default" + path)
			b.shows(seen...)
			b.isLive()
			m.heartbeats(t, 2)
			if len(m.requests) > mostRequests {
				t.Errorf("%d requests, want at most %d", len(m.requests), mostRequests)
			}
			asked := map[string]bool{}
			for _, read := range readsIn(t, m.requests) {
				if asked[read] {
					t.Errorf("%s is asked for twice", read)
				}
				asked[read] = true
			}
			t.Logf("%d requests:\n%s", len(m.requests), strings.Join(m.requests, "\n"))
		})
	}
}
