package differential

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
	call     *call
	status   int
	answer   []byte
	requests []message // during the call

	message *message // between calls
	// logs are those of runs, by workflow, before the line.
	logs map[string]string
}

// message is a payload for a hook.
type message struct {
	token   string
	payload int
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
}

// write runs a workflow until nothing happens any more.
func (a *author) write() *memserver.Run {
	a.server = memserver.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	a.server.Function = http.HandlerFunc(a.serve)
	a.server.Choose = func(n int) int { return rapid.IntRange(0, n-1).Draw(a.t, "next") }
	r := a.server.Start(a.prefix, json.RawMessage(`{"of":"root"}`))
	for round := range 4 {
		a.server.Advance(time.Minute) // less than the long waits
		a.delivered()
		if r.Status != "running" || round == 3 {
			break
		}
		logs := a.logs()
		m := a.message()
		a.script = append(a.script, line{message: &m, logs: logs})
	}
	return r
}

// message sends a random message to the server in memory.
func (a *author) message() message {
	a.payloads++
	m := message{token: a.token(), payload: a.payloads}
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
				message: &message{token: fmt.Sprint(created.Data["token"]), payload: payload},
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
	l := line{call: &c, logs: a.logs()}
	if c.Type == "step" {
		l.status, l.answer = a.stepAnswer()
	} else {
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
	w.WriteHeader(l.status)
	_, _ = w.Write(l.answer) // a recorder
}

func (a *author) stepAnswer() (int, []byte) {
	switch rapid.IntRange(0, 4).Draw(a.t, "outcome") {
	case 0:
		return http.StatusInternalServerError, []byte(`{"error":{"message":"it is busy","code":"busy"}}`)
	case 1:
		return http.StatusUnprocessableEntity, []byte(`{"error":{"message":"no","code":"refused","details":{"why":1}}}`)
	default:
		return http.StatusOK, []byte(strconv.Itoa(rapid.IntRange(0, 99).Draw(a.t, "output")))
	}
}

// most is how often a workflow is called before it completes.
const most = 8

// answer returns random commands. The run then has something to wait for, or ends.
func (a *author) answer(c call) []byte {
	a.calls[c.Run.Workflow]++
	state := stateOf(c.Events)
	var commands []map[string]any
	if a.calls[c.Run.Workflow] > most || rapid.IntRange(0, 7).Draw(a.t, "end") == 7 {
		commands = append(commands, a.end())
	} else if c.Run.Workflow == a.prefix && state.idle() && rapid.Bool().Draw(a.t, "short wait") {
		commands = append(commands, map[string]any{"type": "wait", "id": fmt.Sprint("short", len(c.Events)), "for": "1ms"})
	} else {
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
	}
	data, err := json.Marshal(map[string]any{"commands": commands})
	if err != nil {
		a.t.Fatal(err)
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
	kinds    = []string{"runStep", "runStep", "runStep", "runStep", "runStep", "recordStep", "openHook", "openHook", "closeHook", "startChild"}
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
	case "startChild":
		if c.Run.Workflow != a.prefix { // no children of children
			return map[string]any{"type": "wait", "id": "long", "for": "1h"}
		}
		child := id("c")
		return map[string]any{"type": kind, "id": child, "workflow": a.prefix + "-" + child, "input": child}
	case "cancelStep":
		return map[string]any{"type": kind, "id": id("s"), "reason": "not needed"}
	case "cancelWait":
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
func textsOf(log []memserver.Event) string {
	data, err := json.Marshal(log)
	var events []event
	if err == nil {
		err = json.Unmarshal(data, &events)
	}
	if err != nil {
		panic(err) // it was made from JSON
	}
	return texts(events)
}

// state is what a run waits for.
type state struct{ open int }

// stateOf counts the hooks of a log, and its steps and waits that have not ended, except the long wait.
func stateOf(events []event) (s state) {
	for _, e := range events {
		switch {
		case e.ID == "long":
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
