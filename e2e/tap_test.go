package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// keptBody is how much of a request or an answer a tap keeps.
const keptBody = 256 << 10

// tap stands between an app and a server and keeps what they say to each other, for the cases that are about
// how something comes to pass. It can lose answers, too.
type tap struct {
	*proxy

	mu    sync.Mutex
	calls []*call
	lose  []func(*http.Request) bool
}

// call is one request that has been answered, and its answer.
type call struct {
	*http.Request
	asked  []byte
	status int
	header http.Header
	answer bytes.Buffer
	took   time.Duration
	at     time.Time // when the answer was over
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
	asked := &limited{w: &bytes.Buffer{}}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, asked), r.Body}
	begun := time.Now()
	if tp.loses(r) {
		forward.ServeHTTP(httptest.NewRecorder(), r)
		hangUp(w)
	}
	forward.ServeHTTP(&overheard{ResponseWriter: w, call: c}, r)
	c.at = time.Now()
	c.took, c.asked, c.header = c.at.Sub(begun), asked.w.Bytes(), w.Header().Clone()
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.calls = append(tp.calls, c)
}

// loseAnswer lets the server do what the next such request asks for, and the app never know.
func (tp *tap) loseAnswer(such func(*http.Request) bool) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.lose = append(tp.lose, such)
}

func (tp *tap) loses(r *http.Request) bool {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for i, such := range tp.lose {
		if such(r) {
			tp.lose = append(tp.lose[:i], tp.lose[i+1:]...)
			return true
		}
	}
	return false
}

// of is the calls about a run whose paths end in one of the endings, in the order in which they were answered.
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

// wantNews checks what all writes were told of the events that their writers did not know (protocol: delta, and
// skipped slots): those after the position they named, up to their own, and no others.
func (tp *tap) wantNews(t *testing.T) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	asked, pushed := 0, 0
	for _, c := range tp.calls {
		if c.status != http.StatusOK || c.Method != http.MethodPost || !strings.Contains(c.URL.Path, "/events/") ||
			c.header.Get("Content-Type") != "application/cbor" || strings.HasSuffix(c.URL.Path, "/batch") ||
			c.answer.Len() == keptBody {
			continue
		}
		meta, news := c.meta(t), c.news(t)
		own := position(news.Event.ID)
		since, isDelta := meta["sinceCursor"].(string)
		known, hasKnown := meta["maxSlot"].(uint64)
		var want []int
		switch {
		case isDelta:
			asked++
			// One that was written after its own may have come along, and a long list is cut.
			told := len(news.Events)
			if told <= own-position(since)-1 && !news.HasMore {
				t.Errorf("%s of %v: told of %d events, its own was %d", c.URL.Path, meta, told, own)
			}
			want = between(position(since), position(since)+told+1)
		case hasKnown && known >= 1 && own > int(known)+1:
			pushed++
			want = between(int(known), own)
		default:
			continue
		}
		if diff := cmp.Diff(want, news.positions()); diff != "" {
			t.Errorf("%s of %v: what it was told (-want +got):\n%s", c.URL.Path, meta, diff)
		}
	}
	t.Logf("%d writes asked for what was new, and %d were told that they came late", asked, pushed)
}

// news is what the answer to a write tells of events.
type news struct {
	Event   event   `cbor:"event"`
	Events  []event `cbor:"events"`
	HasMore bool    `cbor:"hasMore"`
}

func (c *call) news(t *testing.T) (n news) {
	t.Helper()
	if err := wireCBOR.Unmarshal(c.answer.Bytes(), &n); err != nil {
		t.Fatalf("answer to %s: %v", c.URL.Path, err)
	}
	return n
}

func (n news) positions() (positions []int) {
	for _, e := range n.Events {
		positions = append(positions, position(e.ID))
	}
	return positions
}

// position is the place in the log that an event's ID, or a cursor, says; 0 if it says none.
func position(id string) int {
	n, _ := strconv.Atoi(strings.TrimLeft(id[strings.LastIndex(id, "_")+1:], "0"))
	return n
}

// between is the numbers between two others.
func between(low, high int) (numbers []int) {
	for n := low + 1; n < high; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

// meta is what the first frame of a request says.
func (c *call) meta(t *testing.T) (meta map[string]any) {
	t.Helper()
	block, err := readBlock(bytes.NewReader(c.asked))
	if err == nil {
		err = wireCBOR.Unmarshal(block, &meta)
	}
	if err != nil {
		t.Fatalf("request %s: %v", c.URL.Path, err)
	}
	return meta
}

// overheard is an answer on its way.
type overheard struct {
	http.ResponseWriter
	call *call
}

func (o *overheard) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *overheard) WriteHeader(status int) {
	o.call.status = status
	o.ResponseWriter.WriteHeader(status)
}

func (o *overheard) Write(data []byte) (int, error) {
	_, _ = (&limited{w: &o.call.answer}).Write(data) // never fails
	return o.ResponseWriter.Write(data)
}

// limited keeps the beginning of what is written to it.
type limited struct{ w *bytes.Buffer }

func (l *limited) Write(data []byte) (int, error) {
	_, _ = l.w.Write(data[:min(len(data), max(0, keptBody-l.w.Len()))]) // never fails
	return len(data), nil
}
