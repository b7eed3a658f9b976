// Command function-go runs an order workflow on Stepwell. It uses only Go's standard library, and Stepwell's own
// package for signed calls.
//
// The first part is a minimal SDK: results come from the run's log, and each missing result becomes a command. The
// second part, after "The application starts here", is the workflow with its steps. docs/function-contract.md describes
// the whole contract.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/signature"
)

// call is the body of the server's POST.
type call struct {
	Type    string
	Attempt int
	Run     struct {
		ID, Workflow string
		Input        json.RawMessage
	}
	Step struct {
		ID, Name string
		Input    json.RawMessage
	}
	Events []struct {
		Type, CorrelationID string
		Payload             json.RawMessage
	}
}

// command is one command of the answer. Its fields depend on its type.
type command map[string]any

// errWaiting means that the workflow cannot continue, because a result is not in the log yet.
var errWaiting = errors.New("waiting")

// failed is a permanent failure. A step that returns one is not retried; after any other error it is.
type failed struct {
	Message string `json:"message"`
}

func (f failed) Error() string { return f.Message }

// workflow is the API for workflow code.
type workflow struct {
	log      map[string]json.RawMessage // by type and ID; the first event wins
	commands []command
}

// result waits for the result of a step and decodes it.
type result func(into any) error

// step starts a step, in parallel with others.
func (w *workflow) step(id string, input any, options command) result {
	c := command{"type": "runStep", "id": id, "input": input}
	for key, value := range options {
		c[key] = value
	}
	w.ask("step_created", c)
	return func(into any) error { return w.result(id, into) }
}

func (w *workflow) sleep(id, duration string) error {
	w.ask("wait_created", command{"type": "wait", "id": id, "for": duration})
	return w.need("wait_completed", id, nil)
}

// hook waits for a payload sent to the token.
func (w *workflow) hook(id, token string, into any) error {
	if _, taken := w.log["hook_conflict "+id]; taken {
		return failed{"another run has the token " + token}
	}
	w.ask("hook_created", command{"type": "openHook", "id": id, "token": token})
	return w.need("hook_received", id, into)
}

func (w *workflow) result(id string, into any) error {
	var f failed
	if err := w.need("step_failed", id, &f); err == nil {
		return failed{id + ": " + f.Message}
	}
	return w.need("step_completed", id, into)
}

func (w *workflow) ask(answeredBy string, c command) {
	if _, ok := w.log[fmt.Sprint(answeredBy, " ", c["id"])]; !ok {
		w.commands = append(w.commands, c)
	}
}

func (w *workflow) need(event, id string, into any) error {
	payload, ok := w.log[event+" "+id]
	if !ok {
		return errWaiting
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(payload, into)
}

// advance replays the workflow as far as its log goes, and returns its next commands.
func advance(c call) (any, error) {
	w := &workflow{log: map[string]json.RawMessage{}}
	for _, e := range c.Events {
		if key := e.Type + " " + e.CorrelationID; w.log[key] == nil {
			w.log[key] = append(json.RawMessage{}, e.Payload...) // never nil
		}
	}
	do, ok := workflows[c.Run.Workflow]
	if !ok {
		return nil, fmt.Errorf("no workflow %q", c.Run.Workflow)
	}
	output, err := do(w, c.Run.Input)
	switch f := (failed{}); {
	case err == nil:
		w.commands = append(w.commands, command{"type": "complete", "output": output})
	case errors.As(err, &f):
		w.commands = append(w.commands, command{"type": "fail", "error": f})
	case !errors.Is(err, errWaiting):
		return nil, err
	}
	return map[string]any{"commands": w.commands}, nil
}

func execute(c call) (any, error) {
	do, ok := steps[c.Step.Name]
	if !ok {
		return nil, fmt.Errorf("no step %q", c.Step.Name)
	}
	return do(c)
}

func serve(w http.ResponseWriter, r *http.Request) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name, do := c.Run.Workflow, advance
	if c.Type == "step" {
		name, do = c.Step.Name, execute
	}
	fmt.Println(c.Type, name, "attempt", c.Attempt)
	answer, err := do(c)
	w.Header().Set("Content-Type", "application/json")
	if err != nil { // the server retries after any error other than failed
		f, status := failed{err.Error()}, http.StatusInternalServerError
		if errors.As(err, &f) {
			status = http.StatusUnprocessableEntity
		}
		w.WriteHeader(status)
		answer = map[string]any{"error": f}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		log.Print(err)
	}
}

// The application starts here.

// purchase is the input of an order.
type purchase struct {
	ID      string  `json:"id"`
	Item    string  `json:"item"`
	Amount  float64 `json:"amount"`
	Seconds float64 `json:"seconds,omitempty"`
}

type payment struct {
	Charged float64 `json:"charged"`
	Key     string  `json:"key"`
}

func order(w *workflow, input json.RawMessage) (any, error) {
	var (
		p      purchase
		paid   payment
		parcel string
		no     failed
	)
	if err := json.Unmarshal(input, &p); err != nil {
		return nil, failed{err.Error()}
	}
	charge := w.step("charge", p, command{"retry": command{"maxAttempts": 5, "backoff": "200ms"}})
	reserve := w.step("reserve", p, command{"attemptTimeout": "30s"})
	if err := charge(&paid); err != nil { // both steps are running by now
		return nil, err
	}
	if err := reserveAndApprove(w, p, reserve); errors.As(err, &no) {
		if err := w.step("refund", paid, nil)(nil); err != nil {
			return nil, err
		}
		return map[string]any{"status": "rejected", "reason": no.Message}, nil
	} else if err != nil {
		return nil, err
	}
	if err := w.step("ship", p.Item, nil)(&parcel); err != nil {
		return nil, err
	}
	return map[string]any{"status": "shipped", "payment": paid, "parcel": parcel}, nil
}

func reserveAndApprove(w *workflow, p purchase, reserve result) error {
	if err := reserve(nil); err != nil {
		return err
	}
	if err := w.sleep("cool-off", "1s"); err != nil {
		return err
	}
	var decision struct{ Approved bool }
	if err := w.hook("approval", "approve-"+p.ID, &decision); err != nil {
		return err
	}
	if !decision.Approved {
		return failed{"it was not approved"}
	}
	return nil
}

var workflows = map[string]func(*workflow, json.RawMessage) (any, error){"order": order}

var steps = map[string]func(call) (any, error){
	"charge": func(c call) (any, error) {
		if c.Attempt == 1 {
			return nil, errors.New("the bank is busy") // a transient error; the next attempt succeeds
		}
		var p purchase
		err := json.Unmarshal(c.Step.Input, &p)
		return payment{p.Amount, c.Run.ID + "/" + c.Step.ID}, err
	},
	"reserve": func(c call) (any, error) {
		var p purchase
		if err := json.Unmarshal(c.Step.Input, &p); err != nil {
			return nil, err
		}
		if p.Item == "unicorn" {
			return nil, failed{"there are no unicorns"}
		}
		time.Sleep(time.Duration(p.Seconds * float64(time.Second))) // the work itself
		return map[string]any{"reserved": p.Item}, nil
	},
	"refund": func(c call) (any, error) {
		var p payment
		err := json.Unmarshal(c.Step.Input, &p)
		return map[string]any{"refunded": p.Charged}, err
	},
	"ship": func(c call) (any, error) {
		var item string
		err := json.Unmarshal(c.Step.Input, &item)
		return "a parcel with one " + item, err
	},
}

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "3000"
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	var function http.Handler = http.HandlerFunc(serve)
	if list := os.Getenv("STEPWELL_SIGNING_KEYS"); list != "" { // without keys, every call is accepted
		keys, err := signature.ParseKeys(list)
		if err != nil {
			log.Fatal(err)
		}
		function = signature.Handler{Next: function, Keys: keys, Now: time.Now}
	}
	fmt.Println("listening", l.Addr().(*net.TCPAddr).Port)
	server := http.Server{Handler: function, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.Serve(l))
}
