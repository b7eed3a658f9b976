package linear

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/e2e/model"
	"github.com/stepwell-dev/stepwell/e2e/model/client"
)

const (
	topic      = "__wkf_workflow_w"
	deployment = "dpl_linear"
)

// workload is the shared state of the clients of one test.
type workload struct {
	t       *testing.T
	began   time.Time
	cluster *cluster
	proxies [2]*proxy
	http    *http.Client
	ended   chan struct{} // closed at the end of the test

	marks, clients atomic.Int64

	mu  sync.Mutex
	now *round
	all []*round
}

// round is a small set of runs, tokens, a message and a stream that all clients use for a while. It is small so that
// their requests conflict.
type round struct {
	runs, messages, streams history

	ids       []string // of the runs
	prefix    string   // of all other names
	remaining int      // operations

	mu      sync.Mutex
	id      string // of the message, once a client knows it
	handles []string
	last    model.Request // the last generated request
}

// roundLength is the number of operations in a round: enough for conflicts, and few enough for porcupine.
const roundLength = 220

func newWorkload(t *testing.T, c *cluster) *workload {
	t.Helper()
	w := &workload{t: t, began: time.Now(), cluster: c, ended: make(chan struct{}), http: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, // one request per connection, so that each has its own fault
		Timeout:   10 * time.Second,
	}}
	for i := range w.proxies {
		w.proxies[i] = newProxy(t,
			func() string { return c.servers[i].addr }, func() string { return c.servers[1-i].addr })
	}
	function := httptest.NewServer(http.HandlerFunc(w.called))
	t.Cleanup(func() { close(w.ended); function.Close() })
	w.register(c.servers[0], function.URL)
	w.now = w.newRound()
	return w
}

func (w *workload) register(s *server, url string) {
	body, err := json.Marshal(map[string]string{"url": url})
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPut,
		"http://"+s.addr+"/v1/deployments/"+deployment, bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("register the function: %s", resp.Status)
	}
}

func (w *workload) newRound() *round {
	n := len(w.all)
	s := &round{prefix: fmt.Sprintf("s%d.", n), remaining: roundLength}
	s.runs.name, s.messages.name = fmt.Sprintf("runs %d", n), fmt.Sprintf("message %d", n)
	s.streams.name = fmt.Sprintf("stream %d", n)
	for range 3 {
		s.ids = append(s.ids, "wrun_"+ulid.Make().String())
	}
	w.all = append(w.all, s)
	return s
}

// nextRound returns the round of the next operation.
func (w *workload) nextRound() *round {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.remaining == 0 {
		w.now = w.newRound()
	}
	w.now.remaining--
	return w.now
}

// history returns the history that requests of the kind belong to.
func (s *round) history(op string) *history {
	switch op {
	case model.Send, model.Deliver, model.Extend, model.Ack:
		return &s.messages
	case model.Write, model.Read:
		return &s.streams
	default:
		return &s.runs
	}
}

// over reports whether the clients have moved on to another round.
func (w *workload) over(s *round) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now != s
}

// since returns the time since the start of the test.
func (w *workload) since() time.Duration { return time.Since(w.began) }

// client sends one request after the other until the context ends.
func (w *workload) client(ctx context.Context, number int, random *rand.Rand, faults func() fault) {
	for ctx.Err() == nil {
		s := w.nextRound()
		d := generator{random, s, fmt.Sprintf("m%d", w.marks.Add(1))}
		r := d.request()
		h := s.history(r.Op)
		r.Now = w.began.UnixMilli()
		f := faults()
		o := operation{Request: r, client: number, call: w.since()}
		// Requests in flight are completed at the end.
		w.send(context.Background(), &o, w.proxies[random.IntN(2)].url(f))
		if o.changes() || o.known() {
			h.add(o)
		}
		s.learn(o)
		if f == duplicate && o.isWrite() {
			again := operation{Request: r, client: w.oneOffClient(), call: o.call, answer: never}
			h.add(again)
		}
	}
}

// isWrite reports whether requests of this kind can change anything, whatever the answer was.
func (o operation) isWrite() bool { return (operation{Request: o.Request}).changes() }

// oneOffClient returns the number of a new client that sends only one request.
func (w *workload) oneOffClient() int { return 1000 + int(w.clients.Add(1)) }

// send sends the request and records the answer.
func (w *workload) send(ctx context.Context, o *operation, url string) {
	got, err := client.Client{URL: url, Key: apiKey, HTTP: w.http}.Do(ctx, o.Request)
	o.answer = w.since()
	switch {
	case errors.Is(err, client.ErrUnknown):
		o.answer, o.client = never, w.oneOffClient()
	case err != nil:
		w.t.Errorf("%v: %v", o.Request, err)
		o.answer = never
	default:
		o.got = got
		o.Handle += got.Handle // of a message that was pulled
	}
}

// called is the function that receives messages. It does not answer, so that the lease remains: the clients, which all
// know the handle, decide about the message.
func (w *workload) called(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server died
	}
	at := w.since()
	number, _, _ := strings.Cut(strings.TrimPrefix(string(body), "s"), ".")
	n, err := strconv.Atoi(number)
	if err != nil {
		w.t.Errorf("a message was delivered that no client sent: %q", body)
		return
	}
	w.mu.Lock()
	s := w.all[n]
	w.mu.Unlock()
	count, _ := strconv.Atoi(r.Header.Get("Ce-Vqsdeliverycount")) // 0 is never right
	id, handle := r.Header.Get("Ce-Vqsmessageid"), r.Header.Get("Ce-Vqsreceipthandle")
	o := operation{
		Request: model.Request{Op: model.Deliver, Topic: topic, ID: id, Handle: handle},
		client:  w.oneOffClient(), answer: at, // call is 0, as the time of the lease is unknown
		got: model.Answer{Status: 200, ID: id, Handle: handle, Body: string(body), Count: count},
	}
	s.messages.add(o)
	s.learn(o)
	if w.over(s) { // or it would be delivered again after every crash
		w.acknowledge(s, handle)
	}
	select {
	case <-w.ended:
	case <-r.Context().Done():
	}
}

// acknowledge acknowledges the message of an earlier round.
func (w *workload) acknowledge(s *round, handle string) {
	o := operation{Request: model.Request{Op: model.Ack, Topic: topic, Handle: handle}, client: w.oneOffClient(), call: w.since()}
	w.send(context.Background(), &o, "http://"+w.cluster.servers[0].addr)
	s.messages.add(o)
}

// learn records the message's ID and handle from an answer.
func (s *round) learn(o operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.got.ID != "" {
		s.id = o.got.ID
	}
	if o.got.Handle != "" {
		s.handles = append(s.handles, o.got.Handle)
	}
}

// readFinalState adds reads of the final state to the histories.
func (w *workload) readFinalState(s *round) {
	final := func(h *history, r model.Request) {
		r.Now = w.began.UnixMilli()
		o := operation{Request: r, client: w.oneOffClient(), call: w.since(), final: true}
		for range 100 {
			if w.send(w.t.Context(), &o, "http://"+w.cluster.servers[0].addr); o.known() {
				h.add(o)
				return
			}
			pause()
		}
		w.t.Errorf("%v: no answer at the end of the test", r)
	}
	for _, id := range s.ids {
		final(&s.runs, model.Request{Op: model.ReadLog, Run: id})
	}
	for _, token := range tokens {
		final(&s.runs, model.Request{Op: model.ByToken, Events: []model.Event{{Token: s.prefix + token}}})
	}
	final(&s.streams, model.Request{Op: model.Read, Run: s.ids[0], Stream: s.prefix + "stream"})
	if id := s.message(); id != "" {
		final(&s.messages, model.Request{Op: model.Deliver, Topic: topic, ID: id})
	}
}

// message returns the ID of the round's message, or "" if no client knows it.
func (s *round) message() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}
