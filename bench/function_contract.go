package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// call is the body of the server's call of a function (docs/function-contract.md).
type call struct {
	Type string `json:"type"`
	Run  struct {
		ID       string `json:"id"`
		Workflow string `json:"workflow"`
	} `json:"run"`
	Events []logEvent `json:"events"`
	After  int        `json:"after"`
}

type instruction map[string]any

// contract is the endpoint for the function contract.
func (f *function) contract(r *http.Request) ([]byte, error) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		return nil, fmt.Errorf("read call: %w", err)
	}
	if c.Type == "step" {
		return []byte("3"), nil
	}
	s, err := shapeOf(c.Run.Workflow)
	if err != nil {
		return nil, err
	}
	if c.After > 0 {
		return nil, fmt.Errorf("the log of %s is longer than one page", c.Run.ID)
	}
	commands, complete := commandsFor(c, s)
	if complete {
		commands = append(commands, instruction{"type": "complete", "output": 3})
	}
	return json.Marshal(map[string]any{"commands": commands})
}

// commandsFor returns the next commands of the workflow.
func commandsFor(c call, s shape) (commands []instruction, complete bool) {
	log := map[logEvent]bool{}
	for _, e := range c.Events {
		log[e] = true
	}
	if s.signal {
		if log[logEvent{"hook_received", "inbox:" + signalInbox}] && !log[logEvent{"wait_created", "nap"}] {
			commands = append(commands, instruction{"type": "wait", "id": "nap", "for": nap.String()})
		}
		return commands, log[logEvent{"wait_completed", "nap"}]
	}
	t := s.next(
		func(n int) bool { return log[logEvent{"step_created", strconv.Itoa(n)}] },
		func(n int) bool { return log[logEvent{"step_completed", strconv.Itoa(n)}] },
	)
	for _, n := range t.create {
		commands = append(commands, instruction{
			"type": "runStep", "id": strconv.Itoa(n), "name": "work", "input": []int{1, 2},
		})
	}
	return commands, t.complete
}
