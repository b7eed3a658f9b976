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

// world is what the clients of one test share.
type world struct {
	t       *testing.T
	began   time.Time
	cluster *cluster
	proxies [2]*proxy
	http    *http.Client
	ended   chan struct{} // closed in the end

	marks, clients atomic.Int64

	mu   sync.Mutex
	now  *scene
	past []*scene
}

// scene is a few things that all clients are at for a while: so few that they meet.
type scene struct {
	runs, messages, streams history

	ids   []string // of the runs
	names string   // what the names of all else begin with
	left  int      // operations

	mu      sync.Mutex
	id      string // of the message, once someone was told
	handles []string
	last    model.Request // that was drawn
}

// sceneLength is how many operations a scene has: enough for things to happen, and few enough for porcupine.
const sceneLength = 220

func newWorld(t *testing.T, c *cluster) *world {
	t.Helper()
	w := &world{t: t, began: time.Now(), cluster: c, ended: make(chan struct{}), http: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, // each request is a connection, and a fate
		Timeout:   10 * time.Second,
	}}
	for i := range w.proxies {
		w.proxies[i] = newProxy(t,
			func() string { return c.servers[i].addr }, func() string { return c.servers[1-i].addr })
	}
	function := httptest.NewServer(http.HandlerFunc(w.called))
	t.Cleanup(func() { close(w.ended); function.Close() })
	w.register(c.servers[0], function.URL)
	w.now = w.newScene()
	return w
}

func (w *world) register(s *server, url string) {
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

func (w *world) newScene() *scene {
	n := len(w.past)
	s := &scene{names: fmt.Sprintf("s%d.", n), left: sceneLength}
	s.runs.name, s.messages.name = fmt.Sprintf("runs %d", n), fmt.Sprintf("message %d", n)
	s.streams.name = fmt.Sprintf("stream %d", n)
	for range 3 {
		s.ids = append(s.ids, "wrun_"+ulid.Make().String())
	}
	w.past = append(w.past, s)
	return s
}

// scene is the one that the next operation is in.
func (w *world) scene() *scene {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.left == 0 {
		w.now = w.newScene()
	}
	w.now.left--
	return w.now
}

// history is the one that a request is part of.
func (s *scene) history(op string) *history {
	switch op {
	case model.Send, model.Deliver, model.Extend, model.Ack:
		return &s.messages
	case model.Write, model.Read:
		return &s.streams
	default:
		return &s.runs
	}
}

// over reports whether all have gone on to another scene.
func (w *world) over(s *scene) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now != s
}

// since is the time since the test began.
func (w *world) since() time.Duration { return time.Since(w.began) }

// client does one thing after the other until the context ends.
func (w *world) client(ctx context.Context, number int, random *rand.Rand, faults func() fault) {
	for ctx.Err() == nil {
		s := w.scene()
		d := draw{random, s, fmt.Sprintf("m%d", w.marks.Add(1))}
		r := d.request()
		h := s.history(r.Op)
		r.Now = w.began.UnixMilli()
		f := faults()
		o := operation{Request: r, client: number, call: w.since()}
		// The test's end does not break a request off.
		w.ask(context.Background(), &o, w.proxies[random.IntN(2)].url(f))
		if o.changes() || o.known() {
			h.add(o)
		}
		s.learn(o)
		if f == twice && o.changesWhatever() {
			again := operation{Request: r, client: w.stranger(), call: o.call, answer: endless}
			h.add(again)
		}
	}
}

// changesWhatever reports whether requests of the kind may change something.
func (o operation) changesWhatever() bool { return (operation{Request: o.Request}).changes() }

// stranger is the number of a client that makes one request and does not wait for the answer.
func (w *world) stranger() int { return 1000 + int(w.clients.Add(1)) }

// ask sends the request and notes what comes back.
func (w *world) ask(ctx context.Context, o *operation, url string) {
	got, err := client.Client{URL: url, Key: apiKey, HTTP: w.http}.Do(ctx, o.Request)
	o.answer = w.since()
	switch {
	case errors.Is(err, client.ErrUnknown):
		o.answer, o.client = endless, w.stranger()
	case err != nil:
		w.t.Errorf("%v: %v", o.Request, err)
		o.answer = endless
	default:
		o.got = got
		o.Handle += got.Handle // of a message that was pulled
	}
}

// called is the function that messages are delivered to. It does not answer, so that the lease goes on: what becomes
// of the message is up to the clients, who may all show its handle.
func (w *world) called(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server died
	}
	at := w.since()
	number, _, _ := strings.Cut(strings.TrimPrefix(string(body), "s"), ".")
	n, err := strconv.Atoi(number)
	if err != nil {
		w.t.Errorf("a message that nobody sent was delivered: %q", body)
		return
	}
	w.mu.Lock()
	s := w.past[n]
	w.mu.Unlock()
	count, _ := strconv.Atoi(r.Header.Get("Ce-Vqsdeliverycount")) // 0 is never right
	id, handle := r.Header.Get("Ce-Vqsmessageid"), r.Header.Get("Ce-Vqsreceipthandle")
	o := operation{
		Request: model.Request{Op: model.Deliver, Topic: topic, ID: id, Handle: handle},
		client:  w.stranger(), answer: at, // it may have been on its way since the beginning
		got: model.Answer{Status: 200, ID: id, Handle: handle, Body: string(body), Count: count},
	}
	s.messages.add(o)
	s.learn(o)
	if w.over(s) { // it would come again after every crash
		w.acknowledge(s, handle)
	}
	select {
	case <-w.ended:
	case <-r.Context().Done():
	}
}

// acknowledge ends the message of a scene that is over.
func (w *world) acknowledge(s *scene, handle string) {
	o := operation{Request: model.Request{Op: model.Ack, Topic: topic, Handle: handle}, client: w.stranger(), call: w.since()}
	w.ask(context.Background(), &o, "http://"+w.cluster.servers[0].addr)
	s.messages.add(o)
}

// learn notes what an answer says about the scene's message.
func (s *scene) learn(o operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.got.ID != "" {
		s.id = o.got.ID
	}
	if o.got.Handle != "" {
		s.handles = append(s.handles, o.got.Handle)
	}
}

// look adds to the histories what remains when all is over.
func (w *world) look(s *scene) {
	final := func(h *history, r model.Request) {
		r.Now = w.began.UnixMilli()
		o := operation{Request: r, client: w.stranger(), call: w.since(), final: true}
		for range 100 {
			if w.ask(w.t.Context(), &o, "http://"+w.cluster.servers[0].addr); o.known() {
				h.add(o)
				return
			}
			pause()
		}
		w.t.Errorf("%v: no answer in the end", r)
	}
	for _, id := range s.ids {
		final(&s.runs, model.Request{Op: model.ReadLog, Run: id})
	}
	for _, token := range tokens {
		final(&s.runs, model.Request{Op: model.ByToken, Events: []model.Event{{Token: s.names + token}}})
	}
	final(&s.streams, model.Request{Op: model.Read, Run: s.ids[0], Stream: s.names + "stream"})
	if id := s.message(); id != "" {
		final(&s.messages, model.Request{Op: model.Deliver, Topic: topic, ID: id})
	}
}

// message is the ID of the scene's message, as soon as someone was told.
func (s *scene) message() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}
