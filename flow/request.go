package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// httpAction is a request that the server makes.
type httpAction struct {
	method    string
	url, body *template // body is nil for none
	// headers have texts, and secrets those whose values are secrets.
	headers map[string]*template
	secrets map[string]contract.HTTPHeader
	success []string
	retryOn []string
}

// httpFields are those of a runStep that is a request.
type httpFields struct {
	contract.HTTPRequest

	Success []string `json:"success,omitempty"`
	RetryOn []string `json:"retryOn,omitempty"`
}

// readHTTP reads "http: URL" or "http: {method, url, headers, body, success, retryOn}".
func (r *reader) readHTTP(n *node, a *action, u usage) {
	o := r.short(n, "url")
	h := &httpAction{
		headers: map[string]*template{}, secrets: map[string]contract.HTTPHeader{}, method: o.text("method"),
		body: o.template("body", u),
	}
	a.http = h
	check := contract.HTTPRequest{Method: h.method, URL: "https://example.com"}
	if h.body != nil {
		check.Body = json.RawMessage("{}")
	}
	r.faulty(orNode(o.get("method"), n), check)
	if address := o.get("url"); address == nil {
		r.faults.add(n, CodeMissing, `want a "url"`)
	} else if h.url = r.template(address, u); h.url.fixed != nil {
		r.faulty(address, contract.HTTPRequest{URL: plain(h.url.fixed)})
	}
	if headers := o.get("headers"); headers != nil {
		r.readHeaders(headers, h, u)
	}
	h.success, h.retryOn = r.statuses(o, "success"), r.statuses(o, "retryOn")
	o.end()
}

// faulty adds a fault if a request is invalid.
func (r *reader) faulty(at *node, request contract.HTTPRequest) {
	if err := request.Complete(); err != nil {
		r.faults.add(at, CodeType, "%v", err)
	}
}

func (r *reader) readHeaders(n *node, h *httpAction, u usage) {
	r.object(n)
	for i, name := range n.names {
		value, header := n.items[i], contract.HTTPHeader{Text: "x"}
		if value.kind == kindObject {
			o := r.object(value)
			header = contract.HTTPHeader{Secret: o.name("secret"), Prefix: o.text("prefix")}
			if o.node.get("secret") == nil {
				r.faults.add(value, CodeMissing, `a header is a text or {secret: NAME}`)
			}
			o.end()
			h.secrets[name] = header
		} else if h.headers[name] = r.template(value, u); h.headers[name].fixed != nil {
			header.Text = plain(h.headers[name].fixed)
		}
		r.faulty(value, contract.HTTPRequest{
			URL: "https://example.com", Headers: map[string]contract.HTTPHeader{name: header},
		})
	}
}

// statuses reads a list of statuses such as 404 and 5xx.
func (r *reader) statuses(o *object, name string) (list []string) {
	for _, n := range o.list(name, contract.MaxStatuses) {
		if !contract.HTTPStatus.MatchString(n.text) {
			r.faults.add(n, CodeType, "want a status such as 404 or 5xx")
		}
		list = append(list, n.text)
	}
	return list
}

// request returns the command for a request.
func (t *decision) request(id string, a *action, where *stepScope) (any, error) {
	h := a.http
	r := contract.HTTPRequest{Method: h.method, Headers: map[string]contract.HTTPHeader{}}
	address, err := h.url.json(where)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	r.URL = plain(address)
	for _, name := range slices.Sorted(maps.Keys(h.headers)) { // the first one that fails is recorded
		text, err := h.headers[name].json(where)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		r.Headers[name] = contract.HTTPHeader{Text: plain(text)}
	}
	for name, secret := range h.secrets {
		r.Headers[name] = secret
	}
	if h.body != nil {
		if r.Body, err = h.body.json(where); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
	}
	command, err := work(id, a, where)
	if err != nil {
		return nil, err
	}
	err = r.Complete()
	command.HTTP = &httpFields{HTTPRequest: r, Success: h.success, RetryOn: h.retryOn}
	return command, err
}

// readEmit reads "emit: {signal, data, keepFor}", or "emit: SIGNAL" without data.
func (r *reader) readEmit(n *node, a *action, u usage) {
	o := r.short(n, "signal")
	a.name, a.lookBack = o.name("signal"), o.duration("keepFor")
	if o.node.get("signal") == nil {
		r.faults.add(n, CodeMissing, `want the name of the "signal"`)
	}
	if a.lookBack > contract.MaxKeep {
		r.faults.add(o.node.get("keepFor"), CodeType, "a signal is kept for %s at most", contract.MaxKeep)
	}
	a.input = o.template("data", u)
	o.end()
}

// emit is the command that sends a signal.
type emit struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Signal  string          `json:"signal"`
	Data    json.RawMessage `json:"data,omitempty"`
	KeepFor string          `json:"keepFor,omitempty"`
}

func (t *decision) emit(i int, a *action, data json.RawMessage) {
	if len(data) > contract.MaxSignal {
		t.record(i, expressionFailed("data", errTooMuchSignal))
		return
	}
	t.send(emit{"emit", t.Program.steps[i].id, a.name, data, duration(a.lookBack)})
	t.steps[i] = progress{status: statusCompleted, output: orNull(nil)}
}

var errTooMuchSignal = errors.New("a signal has at most " + strconv.Itoa(contract.MaxSignal>>20) + " MiB of data")

// respondAction answers a request that a webhook has received.
type respondAction struct {
	hook   int // the step of the hook, plus one; 0 for the request that has started the run
	status int
	body   *template // nil for none
}

// readRespond reads "respond: {to, status, body}". Without "to", it is the request that has started the run.
func (r *reader) readRespond(n *node, a *action, u usage) {
	o := r.object(n)
	defer o.end()
	a.respond = &respondAction{status: o.count("status", 200, 200, 599), body: o.template("body", u)}
	if a.respond.body != nil && (a.respond.status == 204 || a.respond.status == 304) {
		r.faults.add(o.node.get("body"), CodeConflict, "a response with status %d has no body", a.respond.status)
	}
	to := o.get("to")
	if to == nil {
		return
	}
	if i, ok := r.stepID(to); ok {
		a.respond.hook = i + 1
		// It reads the step, and so the step must have ended.
		r.uses = append(r.uses, use{to, &expression{text: "to", steps: []string{to.text}}, u})
		r.respondsTo = append(r.respondsTo, use{to, nil, usage{step: i}})
	}
}

// checkResponses checks that requests are answered that webhooks have received.
func (r *reader) checkResponses(p *Program) {
	for _, u := range r.respondsTo {
		if s := &p.steps[u.step]; s.action.hook == nil || s.action.hook.webhook == nil {
			r.faults.add(u.at, CodeConflict, `%s is not a hook with "webhook", so nobody waits for a response`, s.id)
		}
	}
}

// respond is the command that answers a request.
type respond struct {
	Type    string          `json:"type"`
	Hook    string          `json:"hook,omitempty"`
	Request string          `json:"request"`
	Status  int             `json:"status"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// requestOf returns the hook that has received the request that is answered, and the request; empty if there is none.
func (t *decision) requestOf(a *respondAction) (hook, request string) {
	if a.hook == 0 {
		if event := t.run.Attributes[trigger.AttributeEvent]; strings.HasPrefix(event, webhook.RequestPrefix) {
			request = event
		}
		return "", request
	}
	var received struct {
		Request string `json:"request"`
	}
	if json.Unmarshal(orNull(t.steps[a.hook-1].output), &received) != nil {
		return "", ""
	}
	return t.Program.steps[a.hook-1].id, received.Request
}

func (t *decision) respond(i int, a *action, where *stepScope) {
	command := respond{Type: "respond", Status: a.respond.status}
	if command.Hook, command.Request = t.requestOf(a.respond); entities.ValidateID("request", command.Request) != nil {
		message := "the hook has received no request of a webhook"
		if a.respond.hook == 0 {
			message = "no request to a trigger has started the run"
		}
		t.record(i, contract.Failure{Code: codeNoRequest, Message: message})
		return
	}
	if a.respond.body != nil {
		var err error
		if command.Body, err = a.respond.body.json(where); err != nil {
			t.record(i, expressionFailed("body", err))
			return
		}
	}
	t.send(command)
	id := t.Program.steps[i].id
	t.send(recordStep{Type: "recordStep", ID: id, Name: id, Output: orNull(nil)})
	t.steps[i] = progress{status: statusCompleted, output: orNull(nil)}
}
