package hostile

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// wantMemory checks the most memory that the server has had resident.
func (f *fixture) wantMemory(t *testing.T, most int) {
	t.Helper()
	got := f.LargestMemory(t)
	t.Logf("the server used up to %d MiB", got)
	if got > most {
		t.Errorf("the server used up to %d MiB, want at most %d", got, most)
	}
}

// TestUnfinishedHeadersTakeLittleMemory sends headers of 1 MB that do not end.
func TestUnfinishedHeadersTakeLittleMemory(t *testing.T) {
	f := newFixture(t)
	slow := f.newSlowSender(t)
	filler := strings.Repeat("x", 4000)
	var all sync.WaitGroup
	for range 300 {
		c := slow.open(t, "GET /v1/runs HTTP/1.1\r\nHost: stepwell\r\n")
		all.Go(func() {
			_ = c.SetWriteDeadline(time.Now().Add(harness.Timeout))
			for i := range 250 {
				if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", i, filler); err != nil {
					return // refused
				}
			}
		})
	}
	all.Wait()
	f.wantServed(t)
	f.wantMemory(t, 200)
}

// TestLargeStartsTakeBoundedMemory starts runs with large inputs at once, and then does not read the answers.
func TestLargeStartsTakeBoundedMemory(t *testing.T) {
	f := newFixture(t, "STEPWELL_REQUEST_MEMORY=128")
	input := bytes.Repeat([]byte("x"), 30<<20)
	body := fmt.Appendf(nil, `{"workflow":"three","deployment":"f","delay":"1h","input":"%s"}`, input)
	slow := f.newSlowSender(t)
	var all sync.WaitGroup
	var started atomic.Int64
	for range 6 {
		c := slow.open(t, head("/v1/runs", f.attacker.invoke, len(body)))
		all.Go(func() {
			_, _ = c.Write(body) // fails if it is refused meanwhile
			_ = c.SetReadDeadline(time.Now().Add(harness.Timeout))
			begin := make([]byte, len("HTTP/1.1 201"))
			if _, err := io.ReadFull(c, begin); err == nil && string(begin) == "HTTP/1.1 201" {
				started.Add(1)
			}
		})
	}
	all.Wait()
	if started.Load() == 0 {
		t.Error("no large run was started")
	}
	t.Logf("%d large runs were started", started.Load())
	f.wantServed(t)
	f.wantMemory(t, 500)
}

// TestLargeAnswersTakeBoundedMemory has many steps that answer with 16 MiB and do not end their answers.
func TestLargeAnswersTakeBoundedMemory(t *testing.T) {
	f := newFixture(t, "STEPWELL_BODY_MEMORY=64")
	f.attacker.start(t, "huge", 40)
	harness.Eventually(t, "all steps answer", func() bool { return f.function.hanging.Load() == 40 })
	f.wantServed(t)
	f.victimTimes(t)
	f.wantMemory(t, 300)
}

// TestUnreadPayloadsTakeBoundedMemory asks for a large payload many times at once, and reads only the beginning
// of the answers.
func TestUnreadPayloadsTakeBoundedMemory(t *testing.T) {
	f := newFixture(t, "STEPWELL_REQUEST_MEMORY=128")
	payload := func(n tenant, input string) string {
		r := n.send(t, http.MethodPost, "/v1/runs", map[string]string{
			"workflow": "three", "deployment": "f", "delay": "1h", "input": input,
		})
		return "/v1/runs/" + decode[struct{ ID string }](t, r.Want(t, http.StatusCreated)).ID + "/events/1/payload"
	}
	large := strings.Repeat("x", 40<<20)
	path, small := payload(f.attacker, large), payload(f.victim, largeInput)
	before := f.LargestMemory(t) // for the start of the run
	slow := f.newSlowSender(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for range 12 {
		c := slow.open(t, "GET "+path+" HTTP/1.1\r\nHost: stepwell\r\nAuthorization: Bearer "+f.attacker.admin+"\r\n\r\n")
		all.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(harness.Timeout))
			begin := make([]byte, len("HTTP/1.1 200"))
			_, _ = io.ReadFull(c, begin)
			mu.Lock()
			defer mu.Unlock()
			answers[string(begin)]++
		})
	}
	all.Wait()
	want := map[string]int{"HTTP/1.1 200": 1, "HTTP/1.1 503": 11}
	if diff := cmp.Diff(want, answers); diff != "" {
		t.Errorf("the answers differ (-want +got):\n%s", diff)
	}
	f.wantServed(t)
	f.victim.send(t, http.MethodGet, small, nil).Want(t, http.StatusOK)
	f.wantMemory(t, before+3*40)

	slow.close()
	harness.Eventually(t, "the payload can be read again", func() bool {
		r := f.attacker.send(t, http.MethodGet, path, nil)
		return r.Status == http.StatusOK && len(r.Body) == len(large)+len(`""`)
	})
}
