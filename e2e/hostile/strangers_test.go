package hostile

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// openWebhook starts a workflow that opens a webhook, and returns the webhook's path.
func (n tenant) openWebhook(t *testing.T, workflow, token string) string {
	t.Helper()
	id := n.start(t, workflow, token)
	harness.Eventually(t, "the webhook is open", func() bool {
		r := n.send(t, http.MethodGet, "/v1/runs/"+id+"/events", nil).Want(t, http.StatusOK)
		return bytes.Contains(r.Body, []byte(`"hook_created"`))
	})
	return "/hooks/" + n.name + "/" + token
}

// wantAccepted sends large requests to a webhook of the victim.
func (f *fixture) wantAccepted(t *testing.T, path string) {
	t.Helper()
	for range 20 {
		send(t, "", http.MethodPost, f.url+path, largeInput).Want(t, http.StatusAccepted)
	}
}

// flood sends requests with many connections until the test ends or next returns no more paths. It returns a function
// that stops it.
func (f *fixture) flood(t *testing.T, connections int, next func() (path string, ok bool), answered func(status int)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	own := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for path, ok := next(); ok && ctx.Err() == nil; path, ok = next() {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := own.Do(req)
				if err != nil {
					continue // the server may refuse the attacker
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				answered(resp.StatusCode)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
		own.CloseIdleConnections()
	}
}

// TestStalledWebhooksLeaveRoomForOthers announces large bodies at tokens that do not exist, and at one of another
// project.
func TestStalledWebhooksLeaveRoomForOthers(t *testing.T) {
	f := newFixture(t)
	path := f.victim.openWebhook(t, "hook", "victims")
	known := f.attacker.openWebhook(t, "hook", "attackers")
	slow := f.newSlowSender(t)
	for i := range 40 {
		slow.open(t, head("/hooks/"+strconv.Itoa(i), "", 5<<20)+"{")
		slow.open(t, head(known, "", 5<<20)+"{")
	}
	f.wantAccepted(t, path)
}

// TestRandomTokensLeaveRoomForOthers tries tokens that do not exist, as fast as it can.
func TestRandomTokensLeaveRoomForOthers(t *testing.T) {
	f := newFixture(t)
	path := f.victim.openWebhook(t, "hook", "victims")
	const most = 20_000
	var tried, answered atomic.Int64
	stop := f.flood(t, 16, func() (string, bool) {
		n := tried.Add(1)
		return "/hooks/guess-" + strconv.FormatInt(n, 10), n < most
	}, func(int) { answered.Add(1) })
	defer stop()
	harness.Eventually(t, "3,000 guesses were answered", func() bool { return answered.Load() >= 3000 })
	f.wantAccepted(t, path)
	t.Logf("%d guesses were answered", answered.Load())
}

// TestWaitingWebhooksLeaveRoomForOthers sends more requests than the server runs at once to webhooks that never respond.
func TestWaitingWebhooksLeaveRoomForOthers(t *testing.T) {
	f := newFixture(t)
	path := f.victim.openWebhook(t, "hook", "victims")
	const webhooks, requests = 12, 90 // the burst that each webhook allows is 100
	var paths []string
	for i := range webhooks {
		paths = append(paths, f.attacker.openWebhook(t, "mute", "attackers-"+strconv.Itoa(i)))
	}
	var sent, accepted atomic.Int64
	stop := f.flood(t, webhooks*requests, func() (string, bool) {
		n := int(sent.Add(1)) - 1
		if n >= webhooks*requests {
			return "", false
		}
		return paths[n%webhooks], true
	}, func(status int) {
		if status == http.StatusAccepted {
			accepted.Add(1)
		}
	})
	defer stop()
	// Those beyond the attacker's share of slots to wait are answered at once.
	harness.Eventually(t, "the attacker's share is used up", func() bool {
		return accepted.Load() >= webhooks*requests-750
	})
	f.wantAccepted(t, path)
}
