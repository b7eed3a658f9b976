package hostile

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// idleReaders is how many readers an attacker opens, with one key; a key may have half of STEPWELL_READERS.
const idleReaders = 1500

// TestManyReaders follows a project 1,500 times with one key, first without events and then with them. The key gets its share of readers, and the victim is unharmed.
func TestManyReaders(t *testing.T) {
	for name, busy := range map[string]bool{"idle": false, "events": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.wantUnharmed(t, func() func() {
				a := newAudience(t)
				a.open(f.attacker, idleReaders)
				harness.Eventually(t, "every reader has an answer", func() bool {
					return a.following.Load()+a.refused.Load()+a.failed.Load() == idleReaders
				})
				if n, refused := a.following.Load(), a.refused.Load(); n != 1000 || refused != idleReaders-1000 {
					t.Errorf("%d readers follow and %d are refused, want 1000 and the rest", n, refused)
				}
				if busy {
					a.wg.Go(func() {
						for a.ctx.Err() == nil {
							_, _, _ = f.attacker.do(a.ctx, http.MethodPost, "/v1/signals/noise", []byte(`{}`))
							_, _, _ = f.attacker.do(a.ctx, http.MethodPost, "/v1/runs",
								[]byte(`{"workflow":"three","deployment":"f"}`))
							time.Sleep(20 * time.Millisecond) // paces the attack
						}
					})
				}
				return func() {
					a.close()
					if busy && a.events.Load() < 1000 {
						t.Errorf("all readers together got %d events, want at least one each", a.events.Load())
					}
				}
			})
		})
	}
}

// audience is a number of readers of a project's events.
type audience struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	client *http.Client

	following, refused, failed, events atomic.Int64
}

func newAudience(t *testing.T) *audience {
	t.Helper()
	a := &audience{client: &http.Client{Transport: &http.Transport{MaxIdleConns: 1}}}
	a.ctx, a.cancel = context.WithCancel(t.Context())
	t.Cleanup(a.close)
	return a
}

func (a *audience) close() {
	a.cancel()
	a.wg.Wait()
}

// open starts n readers.
func (a *audience) open(n tenant, readers int) {
	for range readers {
		a.wg.Go(func() { a.follow(n) })
	}
}

// follow reads until the context ends.
func (a *audience) follow(n tenant) {
	req, err := http.NewRequestWithContext(a.ctx, http.MethodGet, n.url+"/v1/events/stream?payloads=false", nil)
	if err != nil {
		a.failed.Add(1)
		return
	}
	req.Header.Set("Authorization", "Bearer "+n.admin)
	resp, err := a.client.Do(req)
	if err != nil {
		a.failed.Add(1)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "":
		a.refused.Add(1)
		return
	case resp.StatusCode != http.StatusOK:
		a.failed.Add(1)
		return
	}
	a.following.Add(1)
	part := make([]byte, 16<<10)
	for {
		n, err := resp.Body.Read(part)
		a.events.Add(int64(bytes.Count(part[:n], []byte("\ndata: "))))
		if err != nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			return
		}
	}
}
