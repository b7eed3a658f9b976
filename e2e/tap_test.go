package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
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
