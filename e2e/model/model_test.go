package model_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/e2e/model"
	"github.com/stepwell-dev/stepwell/why"
)

// TestServerMatchesModel sends random requests to a server and to the model. After each request it compares answers,
// rows, logs and messages. At the end, why each run is not done is compared with the sweeper's opinion. A failure shrinks
// to a short script.
func TestServerMatchesModel(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes many seconds")
	}
	s := newServer(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t.Context(), rt, s)
		defer m.end(rt)
		if one(rt, "create runs", false, true, true, true) {
			m.createRuns(rt)
		}
		rt.Repeat(map[string]func(*rapid.T){"act": m.act, "": m.check})
		m.checkWhy(rt)
	})
	t.Logf("the verdicts of the runs: %v", s.explained)
	if !t.Failed() && s.explained[why.VerdictStranded] == 0 {
		t.Error("no run was stranded")
	}
}

// machine is one sequence of requests. Its runs, tokens, keys and streams have unique names, so that all sequences
// share one database. The script shows short names instead.
type machine struct {
	ctx context.Context
	s   *server
	w   model.World

	runs       []string
	suffix     string // of tokens, keys and streams
	shortNames *strings.Replacer
	past       []model.Request
	sent       map[string]model.Request // by the ID of the message
	ids        []string                 // of messages
	handles    []string
	touched    string   // the run of the last request, or ""
	script     []string // all actions so far
}

func newMachine(ctx context.Context, rt *rapid.T, s *server) *machine {
	m := &machine{ctx: ctx, s: s, sent: map[string]model.Request{}, suffix: "." + ulid.Make().String()}
	names := []string{m.suffix, ""}
	for i, age := range []time.Duration{0, 0, 0, 23 * time.Hour, 25 * time.Hour, -time.Hour} {
		id := ulid.MustNew(ulid.Timestamp(s.clock().Add(-age)), ulid.DefaultEntropy())
		if i == 1 {
			if err := id.SetTime(id.Time() | 1<<47); err != nil { // the tag of newer clients
				rt.Fatal(err)
			}
		}
		m.runs = append(m.runs, "wrun_"+id.String())
		names = append(names, m.runs[i], fmt.Sprintf("run %d", i))
	}
	m.runs = append(m.runs, "wrun_"+strings.Repeat("U", 26)) // an ID that is not a ULID
	m.shortNames = strings.NewReplacer(names...)
	return m
}

// act performs one random action.
func (m *machine) act(rt *rapid.T) {
	switch one(rt, "what", "post", "post", "post", "post", "post", "batch", "again", "queue", "stream", "time") {
	case "post":
		m.do(rt, m.post(rt))
	case "batch":
		m.do(rt, m.batch(rt))
	case "again":
		m.do(rt, m.repeated(rt))
	case "queue":
		m.do(rt, m.message(rt))
	case "stream":
		m.do(rt, m.stream(rt))
	default:
		m.timePasses(rt)
	}
}

// note adds a line to the script.
func (m *machine) note(format string, args ...any) {
	m.script = append(m.script, m.shortNames.Replace(fmt.Sprintf(format, args...)))
}

// fail ends the test and logs the script. The message must be constant for each kind of failure, because rapid uses it
// to recognize the failure while shrinking.
func (m *machine) fail(rt *rapid.T, what, details string) {
	rt.Helper()
	rt.Logf("the script:\n%s\n%s:\n%s", strings.Join(m.script, "\n"), what, m.shortNames.Replace(details))
	rt.Fatal(what)
}

// createRuns creates two runs, so that not every sequence has to start with that.
func (m *machine) createRuns(rt *rapid.T) {
	created := model.Event{Type: "run_created", Body: "in", Deployment: "dpl", Workflow: "wf"}
	m.do(rt, model.Request{Op: model.Post, Run: m.runs[0], Spec: 3, Events: []model.Event{created}})
	m.do(rt, model.Request{Op: model.Post, Run: m.runs[1], Spec: one(rt, "spec", 7, 8, 9), Events: []model.Event{created}})
}

// end checks that no unexpected delivery has come, and deletes the messages.
func (m *machine) end(rt *rapid.T) {
	if n := m.s.unexpected(m.ids); n > 0 {
		rt.Errorf("%d unexpected deliveries", n)
	}
	if err := m.s.forget(m.ctx, m.ids); err != nil {
		rt.Error(err)
	}
}

// do sends a request to the server and to the model, and compares the answers.
func (m *machine) do(rt *rapid.T, r model.Request) {
	rt.Helper()
	r.Now = m.s.clock().UnixMilli()
	m.past, m.touched = append(m.past, r), r.Run
	got, err := m.s.Do(m.ctx, r)
	if m.deliverable(r) && got.Status == 409 { // a worker is checking whether to deliver it
		got, err = m.retryDeliver(r)
	}
	r.ID, r.Handle = r.ID+newID(r, got), r.Handle+got.Handle
	want := m.w.Do(r).WithoutOmitted(got)
	m.note("%s\n    → %s", r, brief(got))
	if err != nil {
		m.fail(rt, "the request failed", err.Error())
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		m.fail(rt, "the answer differs from the model's (-)", diff)
	}
	if got.Handle != "" {
		m.handles = append(m.handles, got.Handle)
	}
	if r.Op == model.Send && !slices.Contains(m.ids, got.ID) {
		m.ids, m.sent[got.ID] = append(m.ids, got.ID), r
	}
	m.awaitDeliveries(rt)
}

// newID returns the ID that the server gave a message.
func newID(r model.Request, got model.Answer) string {
	if r.Op == model.Send {
		return got.ID
	}
	return ""
}

// deliverable reports whether the model can deliver the message to a pull.
func (m *machine) deliverable(r model.Request) bool {
	message := m.w.Messages[r.ID]
	return r.Op == model.Deliver && message.ID != "" && message.Handle == "" && !message.Delayed && !message.Acked
}

const timeout = 2 * time.Minute

// retryDeliver repeats a pull until it succeeds.
func (m *machine) retryDeliver(r model.Request) (got model.Answer, err error) {
	m.poll(func() bool {
		got, err = m.s.Do(m.ctx, r)
		return err != nil || got.Status != 409
	})
	return got, err
}

// poll waits for the condition, and reports whether it held within the timeout.
func (m *machine) poll(holds func() bool) bool {
	deadline := time.Now().Add(timeout)
	for !holds() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// awaitDeliveries waits for all deliveries that the model expects now.
func (m *machine) awaitDeliveries(rt *rapid.T) {
	for _, id := range m.ids {
		for {
			message := m.w.Messages[id]
			if m.sent[id].Deployment != pushed || message.Delayed || message.Acked || message.Handle != "" {
				break
			}
			var d delivery
			if !m.poll(func() (ok bool) { d, ok = m.s.takeDelivery(id); return ok }) {
				m.fail(rt, "a message is not delivered", id)
			}
			r := model.Request{Op: model.Deliver, Topic: m.sent[id].Topic, ID: id, Handle: d.handle}
			want := m.w.Do(r)
			got := model.Answer{Status: 200, ID: id, Handle: d.handle, Body: d.body, Count: d.count}
			m.note("%s\n    → %s", r, brief(got))
			if diff := cmp.Diff(want, got); diff != "" || slices.Contains(m.handles, d.handle) {
				m.fail(rt, "the delivery differs from the model's (-), or its handle is a repeated one", diff)
			}
			m.handles = append(m.handles, d.handle)
		}
	}
}

// check compares the state of the server with the model.
func (m *machine) check(rt *rapid.T) {
	m.checkRows(rt)
	m.checkMessages(rt)
	if want := m.w.Runs[m.touched]; want != nil {
		r := model.Request{Op: model.ReadLog, Run: m.touched, Spec: want.Run.Spec}
		got, err := m.s.Do(m.ctx, r)
		if err != nil {
			m.fail(rt, "reading the log failed", err.Error())
		}
		if diff := cmp.Diff(m.w.Do(r), got, cmpopts.EquateEmpty()); diff != "" {
			m.fail(rt, "the log differs from the model's (-)", diff)
		}
		for i, e := range got.Events {
			if e.Seq != i+1 {
				m.fail(rt, "the log is not dense", fmt.Sprintf("event %d has position %d", i+1, e.Seq))
			}
		}
	}
}

func (m *machine) checkRows(rt *rapid.T) {
	want := map[string]*model.History{}
	now := m.s.clock().UnixMilli()
	for id, h := range (&m.w).Clone().Runs {
		h.Log, h.Resumed = nil, nil
		for key, hook := range h.Hooks {
			if h.Run.Ended > 0 && hook.Retain <= now {
				delete(h.Hooks, key)
			}
		}
		want[id] = h
	}
	got, err := m.s.rows(m.ctx, m.runs)
	if err != nil {
		m.fail(rt, "reading the rows failed", err.Error())
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		m.fail(rt, "the rows differ from the model's (-)", diff)
	}
}

func (m *machine) checkMessages(rt *rapid.T) {
	want := map[string]model.Message{}
	for id, message := range m.w.Messages {
		if !message.Acked {
			want[id] = message
		}
	}
	diff := ""
	same := func() bool {
		got, err := m.s.messages(m.ctx, m.ids)
		if err != nil {
			m.fail(rt, "reading the messages failed", err.Error())
		}
		diff = cmp.Diff(want, got, cmpopts.EquateEmpty())
		return diff == ""
	}
	if !m.poll(same) {
		m.fail(rt, "the messages differ from the model's (-)", diff)
	}
	m.checkJobs(rt)
}

// checkJobs checks that no message has a second job, or any job while it is leased or delayed. A missing job would show
// as a missing delivery.
func (m *machine) checkJobs(rt *rapid.T) {
	got, err := m.s.jobs(m.ctx, m.ids)
	if err != nil {
		m.fail(rt, "reading the jobs failed", err.Error())
	}
	for id, n := range got {
		if message := m.w.Messages[id]; n > 1 || message.Delayed || message.Handle != "" {
			m.fail(rt, "a message has too many jobs", fmt.Sprintf("%d for %+v", n, message))
		}
	}
}

// timePasses advances the clock of the event log. The queue uses the database's clock.
func (m *machine) timePasses(rt *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Millisecond, 999 * time.Millisecond, 5 * time.Second, time.Hour}).Draw(rt, "by")
	m.note("%s pass", d)
	m.s.advance(d)
	m.touched = ""
}

// brief formats the answer on one line.
func brief(a model.Answer) string {
	if a.Code != "" {
		return fmt.Sprintf("%d %s", a.Status, a.Code)
	}
	words := []string{fmt.Sprint(a.Status)}
	if a.Event != nil {
		words = append(words, a.Event.String())
	}
	for _, item := range a.Items {
		words = append(words, "{"+brief(item)+"}")
	}
	if a.ID != "" {
		words = append(words, a.ID, a.Handle)
	}
	if len(a.Events) > 0 {
		words = append(words, fmt.Sprintf("with %d events", len(a.Events)))
	}
	return strings.Join(words, " ")
}
