package tests

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// patience limits how long the real server may take to do the next thing.
const patience = 2 * time.Minute

// TestMemoryServerDoesWhatTheServerDoes runs random workflows on the server in memory, with messages from outside
// between and during calls. The real server must then make the same calls, given the same answers and messages in the
// same order, and write the same logs. Its calls of steps come when it likes, but are answered in the order of the
// script.
func TestMemoryServerDoesWhatTheServerDoes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	f := newFunction(t, s)
	rapid.Check(t, func(rt *rapid.T) {
		a := &author{
			t: rt, prefix: "w" + strings.ToLower(rand.Text()[:10]), features: f.features,
			calls: map[string]int{}, known: map[int]bool{},
		}
		a.write()
		p := &player{t: rt, s: s, f: f, runs: map[string]string{}, answered: map[string]line{}}
		p.play(t.Context(), a)
	})
}

// pending is a call of the real server that waits for its answer.
type pending struct {
	call   call
	answer chan line
}

// function is the function of the real server. Its calls wait until the script comes to them.
type function struct {
	deployment string
	calls      chan pending
	features   []string
}

func newFunction(t *testing.T, s *server) *function {
	t.Helper()
	f := &function{calls: make(chan pending, 1000)}
	listener := httptest.NewServer(f)
	t.Cleanup(listener.Close)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f.deployment = "d-" + strings.ToLower(rand.Text()[:10])
	s.admin(t, http.MethodPut, "/v1/deployments/"+f.deployment, map[string]any{"url": listener.URL}, nil)
	s.admin(t, http.MethodPost, "/v1/runs", map[string]any{"workflow": "probe", "deployment": f.deployment}, nil)
	select {
	case p := <-f.calls:
		f.features = p.call.Server.Features
		p.answer <- line{status: http.StatusOK, answer: []byte(`{"commands":[{"type":"complete"}]}`)}
	case <-ctx.Done():
		t.Fatal("the server does not call the function")
	}
	return f
}

// ServeHTTP implements http.Handler.
func (f *function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := pending{answer: make(chan line, 1)}
	data, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(data, &p.call)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.calls <- p
	select {
	case l := <-p.answer:
		w.Header().Set("Content-Type", l.contentType)
		w.WriteHeader(l.status)
		_, _ = w.Write(l.answer) // the server has gone
	case <-r.Context().Done():
	}
}

// player plays a script with the real server.
type player struct {
	t    *rapid.T
	s    *server
	f    *function
	held []pending
	root string            // the workflow of the run
	runs map[string]string // IDs by workflow
	line int
	// answered has the last answer to a call of each workflow.
	answered map[string]line
	// graceEnds is when the time is over that a request to cancel gives the run; zero without one, and after the script.
	graceEnds time.Time
}

// request sends a request with the admin key.
func (p *player) request(ctx context.Context, method, path string, body, into any) (reply, error) {
	return p.s.request(ctx, adminKey, method, path, body, into)
}

func (p *player) fatalf(format string, args ...any) {
	p.t.Helper()
	p.skipIfLate()
	p.t.Fatalf("line %d: %s%s", p.line, fmt.Sprintf(format, args...), p.failures())
}

// skipIfLate ends a check for which the machine is too slow: in memory, the run does all that is in the script within
// the time that a request to cancel gives it.
func (p *player) skipIfLate() {
	if !p.graceEnds.IsZero() && time.Now().After(p.graceEnds) {
		p.t.Skip("the grace was over before the script")
	}
}

// failures returns why calls of the real server's runs have failed.
func (p *player) failures() (text string) {
	for _, id := range p.runs {
		got, err := p.request(context.Background(), http.MethodGet, "/v1/messages?runId="+id, nil, nil)
		text += fmt.Sprintf("\nmessages of %s: %s %v", id, got, err)
	}
	return text
}

func (p *player) play(ctx context.Context, a *author) {
	var run struct{ ID string }
	start := map[string]any{"workflow": a.prefix, "deployment": p.f.deployment, "input": map[string]any{"of": "root"}}
	if a.inbox {
		start["inbox"] = []string{"notes"}
		start["send"] = []any{map[string]any{"inbox": "notes", "id": "m0", "payload": 1000}}
	}
	if got, err := p.request(ctx, http.MethodPost, "/v1/runs", start, &run); err != nil || !got.ok() {
		p.t.Fatal(got, err)
	}
	p.root, p.runs[a.prefix] = a.prefix, run.ID
	defer func() { // so that it does not disturb other checks
		_, _ = p.request(ctx, http.MethodPost, "/v1/runs/"+run.ID+"/cancel", map[string]any{}, nil)
	}()
	for i, l := range a.script {
		p.line = i
		for workflow, log := range l.logs {
			p.awaitLog(ctx, workflow, log)
		}
		if l.message != nil {
			p.send(ctx, *l.message)
			continue
		}
		got := p.await(*l.call)
		p.compareCalls(got.call, *l.call)
		l.answer = withSeen(l.answer, p.command(ctx, got.call, l))
		for _, m := range l.requests {
			p.send(ctx, m)
		}
		got.answer <- l
		if l.call.Type == "workflow" {
			p.answered[l.call.Run.Workflow] = l
		}
	}
	p.graceEnds = time.Time{}
	for _, r := range a.server.Runs() {
		p.awaitLog(ctx, r.Workflow, textsOf(r.Log))
	}
}

// withSeen returns an answer that names the position, if it names one. The real log has events that the one in memory
// has not.
func withSeen(answer []byte, position int) []byte {
	var fields map[string]any
	if err := json.Unmarshal(answer, &fields); err != nil || fields["seen"] == nil {
		return answer
	}
	fields["seen"] = position
	return encode(fields)
}

// command sends the commands of a line during its call, and returns the position up to which the function knows the
// log.
func (p *player) command(ctx context.Context, c call, l line) int {
	if l.commands == nil {
		return len(c.Events)
	}
	path := fmt.Sprintf("/v1/runs/%s/commands?after=%d", c.Run.ID, len(c.Events))
	var got struct {
		Events []event
		Seq    int
	}
	answered, err := p.s.request(ctx, c.Token, http.MethodPost, path, json.RawMessage(l.commands), &got)
	if err != nil || !answered.ok() || texts(got.Events) != l.events {
		p.fatalf("the commands during the call are answered %d, %v, with\n%s\nbut in memory with\n%s", answered.status, err,
			texts(got.Events), l.events)
	}
	return got.Seq
}

func (p *player) send(ctx context.Context, m message) {
	path, body := "/v1/hooks/"+m.token+"/resume", map[string]any{"payload": m.payload}
	switch m.kind {
	case "signal":
		path, body = "/v1/signals/"+p.root, map[string]any{"data": map[string]any{"n": m.payload}}
	case "inbox":
		path, body = "/v1/runs/"+p.runs[p.root]+"/inbox/notes", map[string]any{"id": m.token, "payload": m.payload}
	case "cancel":
		path, body = "/v1/runs/"+p.runs[p.root]+"/cancel", map[string]any{"reason": "not needed"}
		if m.grace != "" {
			body["grace"] = m.grace
			grace, _ := time.ParseDuration(m.grace) // it is one of those of the author
			p.graceEnds = time.Now().Add(grace)
		}
	}
	if got, err := p.request(ctx, http.MethodPost, path, body, nil); err != nil || got.ok() == m.refused {
		p.fatalf("%+v is answered %s, %v", m, got, err)
	}
}

// bringsLess reports whether a call of a workflow has not all of these events. The server may call for nothing new,
// which the answer to the call before answers as well.
func bringsLess(got call, events string) bool {
	had := texts(got.Events)
	return got.Type == "workflow" && len(had) < len(events) && strings.HasPrefix(events, had)
}

// await waits for a call.
func (p *player) await(want call) pending {
	timeout := time.After(patience)
	for {
		p.skipIfLate()
		if want.Type == "workflow" {
			p.answerAgain(want.Run.Workflow, texts(want.Events))
		}
		for i, held := range p.held {
			if held.call.name() == want.name() {
				p.held = append(p.held[:i:i], p.held[i+1:]...)
				return held
			}
		}
		select {
		case got := <-p.f.calls:
			p.held = append(p.held, got)
		case <-time.After(time.Second): // the grace may be over
		case <-timeout:
			names := []string{}
			for _, held := range p.held {
				names = append(names, held.call.name())
			}
			p.fatalf("the server does not make the call: %s. It makes %q", want.name(), names)
		}
	}
}

// answerAgain answers the calls of a workflow that have not all of these events as the one before.
func (p *player) answerAgain(workflow, events string) {
	last, ok := p.answered[workflow]
	if !ok {
		return
	}
	p.held = slices.DeleteFunc(p.held, func(held pending) bool {
		old := held.call.Run.Workflow == workflow && bringsLess(held.call, events)
		if old {
			held.answer <- last
		}
		return old
	})
}

func (p *player) compareCalls(got, want call) {
	p.runs[got.Run.Workflow] = got.Run.ID
	for what, pair := range map[string][2]string{
		"input":  {canonical(got.Run.Input), canonical(want.Run.Input)},
		"step":   {got.Step.Name + canonical(got.Step.Input), want.Step.Name + canonical(want.Step.Input)},
		"events": {texts(got.Events), texts(want.Events)},
	} {
		if what == "input" && got.Type == "step" {
			continue // the call of a step has no input of the run
		}
		if pair[0] != pair[1] {
			p.fatalf("%s: the %s of the server is\n%s\nbut in memory it is\n%s", want.name(), what, pair[0], pair[1])
		}
	}
}

// awaitLog waits until the log of a run is what it is in memory. A call for nothing new keeps the server from writing
// the rest until it is answered.
func (p *player) awaitLog(ctx context.Context, workflow, want string) {
	id := p.runs[workflow]
	if id == "" {
		return // a child that ended before it was called
	}
	for deadline := time.Now().Add(patience); ; {
		p.skipIfLate()
		var got struct{ Data []event }
		path := "/v1/runs/" + id + "/events?payloads=true&limit=1000"
		if answered, err := p.request(ctx, http.MethodGet, path, nil, &got); err != nil || !answered.ok() {
			p.t.Fatal(answered, err)
		}
		if texts(got.Data) == want {
			return
		}
		if len(got.Data) > strings.Count(want, "\n")+20 || time.Now().After(deadline) {
			p.fatalf("run %s: the log is\n%s\nbut in memory it is\n%s", workflow, texts(got.Data), want)
		}
		select {
		case call := <-p.f.calls:
			p.held = append(p.held, call)
		case <-time.After(5 * time.Millisecond): // the server is about to write the rest
		}
		p.answerAgain(workflow, want)
	}
}

// compared are the fields of data that are compared.
var compared = []string{"errorCode", "messageId", "reason"}

// texts formats the events that are compared. The start of a step is not: it comes when the server likes. Children that
// are cancelled together end in any order, which is therefore that of their steps.
func texts(events []event) string {
	events = slices.Clone(events)
	for i := range events {
		for ; i > 0 && isCancelledChild(events[i]) && isCancelledChild(events[i-1]) && events[i].ID < events[i-1].ID; i-- {
			events[i], events[i-1] = events[i-1], events[i]
		}
	}
	var b strings.Builder
	for _, e := range events {
		if e.Type == "step_started" {
			continue
		}
		if e.Type == "run_cancelled" { // functions never see it
			e.Data, e.Payload = nil, nil
		}
		fmt.Fprintf(&b, "  %s %s", e.Type, e.ID)
		if e.Type == "step_created" { // the real server repeats it in each event of the step
			fmt.Fprintf(&b, " stepName=%v", e.Data["stepName"])
		}
		for _, name := range compared {
			if v, ok := e.Data[name]; ok && v != "" {
				fmt.Fprintf(&b, " %s=%v", name, v)
			}
		}
		if token := fmt.Sprint(e.Data["token"]); strings.Contains(token, "-h") { // others are random
			fmt.Fprintf(&b, " token=%s", token)
		}
		if e.Data["via"] == "signal" { // the ID is another one
			var signal struct{ Data json.RawMessage }
			_ = json.Unmarshal(e.Payload, &signal) // the server has made it
			e.Payload = signal.Data
		}
		fmt.Fprintf(&b, " %s\n", canonical(e.Payload))
	}
	return runID.ReplaceAllString(b.String(), "wrun")
}

func isCancelledChild(e event) bool {
	return e.Type == "step_failed" && e.Data["errorCode"] == "child_cancelled"
}

var runID = regexp.MustCompile(`wrun_[0-9A-Z]+`)

// canonical formats JSON so that equal values are equal texts. Nothing at all is null.
func canonical(data json.RawMessage) string {
	if len(data) == 0 {
		return "null"
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return string(data)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return string(data)
	}
	return string(text)
}
