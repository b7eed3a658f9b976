package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/sdk/internal/memserver"
)

// event is an event of a log, as far as it is compared.
type event struct {
	Type    string          `json:"type"`
	ID      string          `json:"correlationId"`
	Data    map[string]any  `json:"data"`
	Payload json.RawMessage `json:"payload"`
}

// call is a call of a function.
type call struct {
	Type    string `json:"type"`
	Attempt int    `json:"attempt"`
	Run     struct {
		ID       string          `json:"id"`
		Workflow string          `json:"workflow"`
		Input    json.RawMessage `json:"input"`
	} `json:"run"`
	Events []event `json:"events"`
	Step   struct {
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	} `json:"step"`
	Token  string `json:"token"`
	Server struct {
		Features []string `json:"features"`
	} `json:"server"`
}

// name names a call: the workflow, which is another one for each run, and the step with its attempt.
func (c call) name() string {
	if c.Type == "step" {
		return fmt.Sprintf("step %s of %s, attempt %d", c.Step.ID, c.Run.Workflow, c.Attempt)
	}
	return "workflow " + c.Run.Workflow
}

// line is a line of a script: a call with its answer, or a message from outside.
type line struct {
	call        *call
	status      int
	answer      []byte
	contentType string
	requests    []message // during the call
	commands    []byte    // during the call, before the requests; nil for none
	events      string    // that they are answered with

	message *message // between calls
	// logs are those of runs, by workflow, before the line.
	logs map[string]string
}

// message is what is sent from outside: a payload for a hook, a signal, a message to the inbox, or a request to cancel.
type message struct {
	kind    string
	token   string // of the hook, or the ID of the message to the inbox
	payload int
	grace   string
	refused bool
}

// author makes a script: it runs a random workflow on the server in memory, and writes down what happens.
type author struct {
	t        *rapid.T
	server   *memserver.Server
	prefix   string // of workflows and tokens
	features []string
	script   []line
	calls    map[string]int // of workflows
	payloads int
	known    map[int]bool // payloads that are in the script
	inbox    bool         // the run has one
}

// write runs a workflow until nothing happens any more.
func (a *author) write() *memserver.Run {
	a.server = memserver.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	a.server.Function = http.HandlerFunc(a.serve)
	a.server.Choose = func(n int) int { return rapid.IntRange(0, n-1).Draw(a.t, "next") }
	r := a.server.Start(a.prefix, json.RawMessage(`{"of":"root"}`))
	if a.inbox = rapid.Bool().Draw(a.t, "inbox"); a.inbox {
		a.server.OpenInbox(r, "notes")
		a.known[1000] = true
		_ = a.server.Send(r, "notes", "m0", json.RawMessage("1000")) // it is open
	}
	for round := range 4 {
		a.server.Advance(10 * time.Second) // less than the long waits; all rounds are over while signals are remembered
		a.delivered()
		if r.Status != "running" || round == 3 {
			break
		}
		logs := a.logs()
		m := a.outside()
		a.script = append(a.script, line{message: &m, logs: logs})
	}
	return r
}

// outside sends something random to the server in memory.
func (a *author) outside() message {
	root := a.server.Runs()[0]
	m := message{kind: rapid.SampledFrom([]string{"resume", "resume", "signal", "signal", "inbox", "cancel"}).Draw(a.t, "outside")}
	switch m.kind {
	case "signal":
		m.payload = rapid.IntRange(0, 9).Draw(a.t, "signal")
		m.refused = a.server.Signal(a.prefix, json.RawMessage(fmt.Sprintf(`{"n":%d}`, m.payload)), 0) != nil
	case "inbox":
		n := rapid.IntRange(0, 2).Draw(a.t, "message")
		m.token, m.payload = fmt.Sprint("m", n), 1000+n
		a.known[m.payload] = true
		m.refused = a.server.Send(root, "notes", m.token, json.RawMessage(strconv.Itoa(m.payload))) != nil
	case "cancel":
		m.grace = rapid.SampledFrom([]string{"", "2s", "1h", "1h"}).Draw(a.t, "grace")
		grace, _ := time.ParseDuration("0" + m.grace) // 0 or one of them
		a.server.Cancel(root, "not needed", grace)
	default:
		return a.message()
	}
	return m
}

// message sends a payload for a random hook to the server in memory.
func (a *author) message() message {
	a.payloads++
	m := message{kind: "resume", token: a.token(), payload: a.payloads}
	a.known[m.payload] = true
	m.refused = a.server.Resume(m.token, json.RawMessage(strconv.Itoa(m.payload))) != nil
	return m
}

func (a *author) token() string {
	return a.prefix + rapid.SampledFrom([]string{"-h0", "-h1"}).Draw(a.t, "token")
}

func (a *author) logs() map[string]string {
	logs := map[string]string{}
	for _, r := range a.server.Runs() {
		logs[r.Workflow] = textsOf(r.Log)
	}
	return logs
}

// delivered adds messages to the script that were delivered since it was last called.
func (a *author) delivered() {
	for _, r := range a.server.Runs() {
		for i, e := range r.Log {
			payload, err := strconv.Atoi(string(e.Payload))
			if e.Type != "hook_received" || err != nil || a.known[payload] {
				continue
			}
			a.known[payload] = true
			created := r.Log[slices.IndexFunc(r.Log, func(c memserver.Event) bool { return c.Type == "hook_created" && c.ID == e.ID })]
			a.script = append(a.script, line{
				message: &message{kind: "resume", token: fmt.Sprint(created.Data["token"]), payload: payload},
				logs:    map[string]string{r.Workflow: textsOf(r.Log[:i])},
			})
		}
	}
}

// serve answers a call at random.
func (a *author) serve(w http.ResponseWriter, r *http.Request) {
	var c call
	data, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	a.delivered()
	asked := c
	l := line{call: &asked, logs: a.logs()}
	if c.Type == "step" {
		l.status, l.contentType, l.answer = a.stepAnswer()
	} else {
		if rapid.IntRange(0, 3).Draw(a.t, "during the call") == 0 && slices.Contains(a.features, "commands") {
			l.commands, l.events = a.during(&c)
		}
		l.status, l.answer = http.StatusOK, a.answer(c)
		switch kind := rapid.IntRange(0, 7).Draw(a.t, "message"); {
		case strings.Contains(string(l.answer), `"for":"1ms"`): // nothing else may happen until a short wait is over
		case kind == 0 && len(a.server.Runs()) == 1: // another run may be called at once
			l.requests = append(l.requests, a.message())
		case kind == 1:
			a.payloads++
			a.server.ResumeWhenOpen(a.token(), json.RawMessage(strconv.Itoa(a.payloads)))
		}
	}
	a.script = append(a.script, l)
	w.Header().Set("Content-Type", l.contentType)
	w.WriteHeader(l.status)
	_, _ = w.Write(l.answer) // a recorder
}

// during sends random commands during a call, and adds their events to it.
func (a *author) during(c *call) (commands []byte, events string) {
	// A child is cancelled, and a hook gets the signals that its run has missed, when the server likes.
	all := slices.DeleteFunc(a.commands(*c), func(command map[string]any) bool {
		return command["signal"] != nil || command["type"] == "cancelStep" && strings.HasPrefix(fmt.Sprint(command["id"]), "c")
	})
	commands = encode(map[string]any{"commands": all})
	choose := a.server.Choose
	a.server.Choose = nil
	defer func() { a.server.Choose = choose }()
	log, err := a.server.Command(a.server.Run(c.Run.ID), commands, int64(len(c.Events)))
	if err != nil {
		a.t.Fatal(err)
	}
	added := eventsOf(log)
	c.Events = slices.Concat(c.Events, added)
	return commands, texts(added)
}

func (a *author) stepAnswer() (status int, contentType string, answer []byte) {
	switch rapid.IntRange(0, 5).Draw(a.t, "outcome") {
	case 0:
		return http.StatusInternalServerError, "", []byte(`{"error":{"message":"it is busy","code":"busy"}}`)
	case 1:
		return http.StatusUnprocessableEntity, "", []byte(`{"error":{"message":"no","code":"refused","details":{"why":1}}}`)
	case 2:
		if slices.Contains(a.features, "store") {
			return http.StatusOK, "application/vnd.stepwell.step+json", []byte(`{"output":7,"store":{"key":8,"other":null}}`)
		}
	}
	return http.StatusOK, "", []byte(strconv.Itoa(rapid.IntRange(0, 99).Draw(a.t, "output")))
}

// most is how often a workflow is called before it completes.
const most = 8

// answer returns random commands. The run then has something to wait for, or ends.
func (a *author) answer(c call) []byte {
	a.calls[c.Run.Workflow]++
	state := stateOf(c.Events)
	n := a.calls[c.Run.Workflow]
	switch {
	case state.cancelled && rapid.IntRange(0, 1).Draw(a.t, "cancelled") == 0:
		return encode(map[string]any{"commands": []any{map[string]any{"type": "cancelled"}}})
	case n > most || rapid.IntRange(0, 7).Draw(a.t, "end") == 7:
		return encode(map[string]any{"commands": []any{a.end()}})
	case c.Run.Workflow == a.prefix && state.idle() && rapid.Bool().Draw(a.t, "short wait"):
		short := map[string]any{"type": "wait", "id": fmt.Sprint("short", len(c.Events)), "for": "1ms"}
		return encode(map[string]any{"commands": []any{short}})
	}
	commands := a.commands(c)
	open := openAfter(c.Events, commands)
	if len(open) == 0 {
		id := fmt.Sprint("long", n)
		commands = append(commands, map[string]any{"type": "wait", "id": id, "for": "1h"})
		open = append(open, "wait:"+id)
	}
	answer := map[string]any{"commands": commands}
	if slices.Contains(a.features, "known") {
		answer["seen"] = len(c.Events)
	}
	if rapid.IntRange(0, 2).Draw(a.t, "await") == 0 && slices.Contains(a.features, "await") {
		all := rapid.SliceOfNDistinct(rapid.SampledFrom(open), 1, len(open), rapid.ID).Draw(a.t, "all")
		answer["await"] = map[string]any{"any": []string{rapid.SampledFrom(open).Draw(a.t, "any")}, "all": [][]string{all}}
	}
	return encode(answer)
}

// commands returns random commands.
func (a *author) commands(c call) (commands []map[string]any) {
	used := map[any]bool{} // an ID occurs once in an answer
	for range rapid.IntRange(1, 4).Draw(a.t, "commands") {
		if command := a.command(c); !used[command["id"]] {
			used[command["id"]] = true
			commands = append(commands, command)
		}
	}
	if !used["long"] {
		commands = append(commands, map[string]any{"type": "wait", "id": "long", "for": "1h"}) // creates one only once
	}
	return commands
}

// openAfter returns the steps and waits that are open after commands.
func openAfter(events []event, commands []map[string]any) (open []string) {
	known, isOpen := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		kind, change, _ := strings.Cut(e.Type, "_")
		if ref := kind + ":" + e.ID; kind == "step" || kind == "wait" {
			known[ref] = true
			isOpen[ref] = change != "completed" && change != "failed" && change != "cancelled"
		}
	}
	for _, c := range commands {
		kind := map[any]string{
			"runStep": "step:", "startChild": "step:", "recordStep": "-step:", "cancelStep": "-step:", "wait": "wait:", "cancelWait": "-wait:",
		}[c["type"]]
		ended, over := strings.CutPrefix(kind, "-")
		if ref := fmt.Sprint(ended, c["id"]); over {
			delete(isOpen, ref)
		} else if kind != "" && !known[ref] {
			isOpen[ref] = true
		}
	}
	for ref, is := range isOpen {
		if is {
			open = append(open, ref)
		}
	}
	slices.Sort(open)
	return open
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values of this file
	}
	return data
}

func (a *author) end() map[string]any {
	if rapid.Bool().Draw(a.t, "complete") {
		return map[string]any{"type": "complete", "output": map[string]any{"n": 1.5}}
	}
	return map[string]any{"type": "fail", "error": map[string]any{"message": "it failed", "code": "no_luck"}}
}

// kinds are the commands that each server knows, and optional those of features.
var (
	kinds    = []string{"runStep", "runStep", "runStep", "runStep", "runStep", "recordStep", "openHook", "openHook", "signal", "closeHook", "startChild"}
	optional = map[string]string{"cancelStep": "cancelStep", "cancelWait": "cancelWait", "store": "setStore"}
)

func (a *author) command(c call) map[string]any {
	all := slices.Clone(kinds)
	for feature, kind := range optional {
		if slices.Contains(a.features, feature) {
			all = append(all, kind)
		}
	}
	slices.Sort(all)
	id := func(prefix string) string { return prefix + strconv.Itoa(rapid.IntRange(0, 2).Draw(a.t, "id")) }
	switch kind := rapid.SampledFrom(all).Draw(a.t, "command"); kind {
	case "runStep":
		return map[string]any{"type": kind, "id": id("s"), "name": "work", "input": len(c.Events), "retry": map[string]any{
			"maxAttempts": rapid.IntRange(1, 3).Draw(a.t, "attempts"), "backoff": "1ms",
		}}
	case "recordStep":
		command := map[string]any{"type": kind, "id": id("r"), "name": "work", "output": len(c.Events)}
		if rapid.Bool().Draw(a.t, "error") {
			delete(command, "output")
			command["error"] = map[string]any{"message": "it is wrong", "code": "wrong"}
		} else if slices.Contains(a.features, "store") && rapid.Bool().Draw(a.t, "store") {
			command["store"] = map[string]any{"key": len(c.Events)}
		}
		return command
	case "openHook":
		hook := id("h")
		return map[string]any{"type": kind, "id": hook, "token": a.token()}
	case "signal":
		if c.Run.Workflow != a.prefix { // one hook of one run, since a signal reaches several in any order
			return map[string]any{"type": "wait", "id": "long", "for": "1h"}
		}
		return map[string]any{"type": "openHook", "id": "signal", "signal": map[string]any{
			"name": a.prefix, "condition": "data.n > 2",
		}}
	case "startChild":
		if c.Run.Workflow != a.prefix { // no children of children
			return map[string]any{"type": "wait", "id": "long", "for": "1h"}
		}
		child := id("c")
		return map[string]any{"type": kind, "id": child, "workflow": a.prefix + "-" + child, "input": child}
	case "cancelStep":
		step := rapid.SampledFrom([]string{"s0", "s1", "s2", "c0", "c1", "c2"}).Draw(a.t, "step")
		if !slices.ContainsFunc(c.Events, func(e event) bool { return e.Type == "step_created" && e.ID == step }) {
			return map[string]any{"type": "wait", "id": "long", "for": "1h"}
		}
		return map[string]any{"type": kind, "id": step, "reason": "not needed"}
	case "cancelWait":
		if !slices.ContainsFunc(c.Events, func(e event) bool { return e.Type == "wait_created" && e.ID == "long" }) {
			return map[string]any{"type": "wait", "id": "long", "for": "1h"}
		}
		return map[string]any{"type": kind, "id": "long"}
	case "setStore":
		return map[string]any{"type": kind, "id": id("v"), "values": map[string]any{"key": len(c.Events)}}
	default: // closeHook, of one that there is; others are refused
		hook := id("h")
		if !slices.ContainsFunc(c.Events, func(e event) bool { return e.Type == "hook_created" && e.ID == hook }) {
			return map[string]any{"type": "openHook", "id": hook, "token": a.token()}
		}
		return map[string]any{"type": "closeHook", "id": hook}
	}
}

// textsOf formats a log of the server in memory.
func textsOf(log []memserver.Event) string { return texts(eventsOf(log)) }

func eventsOf(log []memserver.Event) (events []event) {
	if err := json.Unmarshal(encode(log), &events); err != nil {
		panic(err) // it was made from JSON
	}
	return events
}

// state is what a run waits for.
type state struct {
	open      int
	cancelled bool // it was asked to cancel
}

// stateOf counts the hooks of a log, and its steps and waits that have not ended, except long waits and the inbox.
func stateOf(events []event) (s state) {
	for _, e := range events {
		switch {
		case e.Type == "cancel_requested":
			s.cancelled = true
		case strings.HasPrefix(e.ID, "long"), strings.HasPrefix(e.ID, "inbox:"):
		case e.Type == "step_created", e.Type == "wait_created", e.Type == "hook_created":
			s.open++
		case e.Type == "step_completed", e.Type == "step_failed", e.Type == "wait_completed":
			s.open--
		}
	}
	return s
}

// idle reports whether nothing can happen to the run. Only then may it have a short wait, which ends when it likes.
func (s state) idle() bool { return s.open == 0 }
