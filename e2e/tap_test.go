package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// keptBody is the number of bytes that a tap keeps of each request and answer.
const keptBody = 256 << 10

// tap is a proxy that records the traffic from an app to a server, for cases that check which requests the app sends.
// It can also drop answers.
type tap struct {
	*proxy

	mu    sync.Mutex
	asked []string // paths of all requests, also of those that are not answered yet
	calls []*call
	lose  []func(*http.Request) bool
}

// call is an answered request and its answer.
type call struct {
	*http.Request
	requestBody []byte
	status      int
	header      http.Header
	answer      bytes.Buffer
	took        time.Duration
	at          time.Time // the end of the answer
}

func newTap(t *testing.T, target string) *tap {
	t.Helper()
	tp := &tap{}
	tp.proxy = newProxy(t, target, func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { tp.serve(w, r, forward) }
	})
	return tp
}

func (tp *tap) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	c := &call{Request: r}
	requestBody := &limitedWriter{w: &bytes.Buffer{}}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, requestBody), r.Body}
	started := time.Now()
	tp.mu.Lock()
	tp.asked = append(tp.asked, r.URL.Path)
	tp.mu.Unlock()
	if tp.loses(r) {
		forward.ServeHTTP(httptest.NewRecorder(), r)
		hangUp(w)
	}
	forward.ServeHTTP(&capturingWriter{ResponseWriter: w, call: c}, r)
	c.at = time.Now()
	c.took, c.requestBody, c.header = c.at.Sub(started), requestBody.w.Bytes(), w.Header().Clone()
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.calls = append(tp.calls, c)
}

// loseAnswer forwards the next request that matches, and drops its answer.
func (tp *tap) loseAnswer(matches func(*http.Request) bool) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.lose = append(tp.lose, matches)
}

func (tp *tap) loses(r *http.Request) bool {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for i, matches := range tp.lose {
		if matches(r) {
			tp.lose = append(tp.lose[:i], tp.lose[i+1:]...)
			return true
		}
	}
	return false
}

// awaitRequest waits for a request about a run whose path ends in the suffix. It may not be answered yet.
func (tp *tap) awaitRequest(t *testing.T, runID, ending string) {
	t.Helper()
	eventually(t, "a request of "+ending+" for "+runID, func() bool {
		tp.mu.Lock()
		defer tp.mu.Unlock()
		return slices.ContainsFunc(tp.asked, func(path string) bool {
			return strings.Contains(path, runID) && strings.HasSuffix(path, ending)
		})
	})
}

// of returns the calls about a run whose paths end in one of the suffixes, in the order of their answers.
func (tp *tap) of(runID string, endings ...string) (found []*call) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for _, c := range tp.calls {
		for _, ending := range endings {
			if strings.Contains(c.URL.Path, runID) && strings.HasSuffix(c.URL.Path, ending) {
				found = append(found, c)
			}
		}
	}
	return found
}

// wantLongPoll checks that one request for the run's status, sent before the run ended, was held until then, and no
// longer.
func (tp *tap) wantLongPoll(t *testing.T, runID string, ended time.Time) {
	t.Helper()
	var asked []*call
	eventually(t, "the status of "+runID+" is answered", func() bool {
		asked = tp.of(runID, "/status")
		return len(asked) > 0
	})
	late := asked[0].at.Sub(ended)
	t.Logf("the answer came %s after the run's end", late)
	var run runEntity
	if err := wireCBOR.Unmarshal(asked[0].answer.Bytes(), &run); err != nil {
		t.Fatal(err)
	}
	held := asked[0].took
	if len(asked) != 1 || run.Status != "completed" || held < late || late > 5*time.Second {
		t.Errorf("%d requests for the status of %s; the first was held for %s, and answered %s, %s after the end",
			len(asked), runID, held, run.Status, late)
	}
	if wait := asked[0].URL.Query().Get("waitMs"); strings.TrimLeft(wait, "0123456789") != "" || wait == "" {
		t.Errorf("waitMs=%q", wait)
	}
}

// wantCorrectDeltas checks the events that the answers to all writes contain because the writers did not know them
// (protocol: delta, and skipped slots): exactly those after the position that the request names, up to the written
// event.
func (tp *tap) wantCorrectDeltas(t *testing.T) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	requested, pushed := 0, 0
	for _, c := range tp.calls {
		if c.status != http.StatusOK || c.Method != http.MethodPost || !strings.Contains(c.URL.Path, "/events/") ||
			c.header.Get("Content-Type") != "application/cbor" || strings.HasSuffix(c.URL.Path, "/batch") ||
			c.answer.Len() == keptBody {
			continue
		}
		meta, news := c.meta(t), c.writeAnswer(t)
		own := position(news.Event.ID)
		since, isDelta := meta["sinceCursor"].(string)
		known, hasKnown := meta["maxSlot"].(uint64)
		var want []int
		switch {
		case isDelta:
			requested++
			// The delta may include events written after its own, and a long delta is cut.
			n := len(news.Events)
			if n <= own-position(since)-1 && !news.HasMore {
				t.Errorf("%s of %v: delta of %d events, own event at %d", c.URL.Path, meta, n, own)
			}
			want = between(position(since), position(since)+n+1)
		case hasKnown && known >= 1 && own > int(known)+1:
			pushed++
			want = between(int(known), own)
		default:
			continue
		}
		if diff := cmp.Diff(want, news.positions()); diff != "" {
			t.Errorf("%s of %v: delta (-want +got):\n%s", c.URL.Path, meta, diff)
		}
	}
	t.Logf("%d writes requested a delta, and %d got unrequested events because they were late", requested, pushed)
}

// writeAnswer is the part of the answer to a write that contains events.
type writeAnswer struct {
	Event   event   `cbor:"event"`
	Events  []event `cbor:"events"`
	HasMore bool    `cbor:"hasMore"`
}

func (c *call) writeAnswer(t *testing.T) (n writeAnswer) {
	t.Helper()
	if err := wireCBOR.Unmarshal(c.answer.Bytes(), &n); err != nil {
		t.Fatalf("answer to %s: %v", c.URL.Path, err)
	}
	return n
}

func (n writeAnswer) positions() (positions []int) {
	for _, e := range n.Events {
		positions = append(positions, position(e.ID))
	}
	return positions
}

// position returns the log position in an event ID or cursor, or 0.
func position(id string) int {
	n, _ := strconv.Atoi(strings.TrimLeft(id[strings.LastIndex(id, "_")+1:], "0"))
	return n
}

// between returns the numbers between low and high, exclusively.
func between(low, high int) (numbers []int) {
	for n := low + 1; n < high; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

// meta decodes the first frame of a request.
func (c *call) meta(t *testing.T) (meta map[string]any) {
	t.Helper()
	block, err := readBlock(bytes.NewReader(c.requestBody))
	if err == nil {
		err = wireCBOR.Unmarshal(block, &meta)
	}
	if err != nil {
		t.Fatalf("request %s: %v", c.URL.Path, err)
	}
	return meta
}

// capturingWriter copies the answer into its call.
type capturingWriter struct {
	http.ResponseWriter
	call *call
}

func (o *capturingWriter) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *capturingWriter) WriteHeader(status int) {
	o.call.status = status
	o.ResponseWriter.WriteHeader(status)
}

func (o *capturingWriter) Write(data []byte) (int, error) {
	_, _ = (&limitedWriter{w: &o.call.answer}).Write(data) // never fails
	return o.ResponseWriter.Write(data)
}

// limitedWriter keeps the first keptBody bytes.
type limitedWriter struct{ w *bytes.Buffer }

func (l *limitedWriter) Write(data []byte) (int, error) {
	_, _ = l.w.Write(data[:min(len(data), max(0, keptBody-l.w.Len()))]) // never fails
	return len(data), nil
}
