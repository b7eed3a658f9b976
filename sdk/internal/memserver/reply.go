package memserver

import (
	"encoding/json"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Answer is a run's answer to a message: an output, or the error with which it was refused.
type Answer struct {
	RunID   string          `json:"-"`
	Inbox   string          `json:"inbox"`
	Message string          `json:"message"`
	Output  json.RawMessage `json:"output,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func (c command) replyID() string { return engine.ReplyID(c.Inbox, c.Message) }

// reply answers a message, unless the run has done so.
func (s *Server) reply(r *Run, c command, data map[string]any) {
	id := c.replyID()
	if r.has("step_created", id) {
		return
	}
	data["stepName"] = "reply"
	answer, _ := json.Marshal(Answer{r.ID, c.Inbox, c.Message, c.Output, c.Error}) // it comes from JSON
	s.write(r, "step_created", id, data, answer)
	s.append(r, "step_completed", id, nil, json.RawMessage("null"))
}

// Answered returns the answer of a run to a message, or that of a run as which it goes on. Over reports whether there
// is none, and never will be.
func (r *Run) Answered(inbox, message string) (a Answer, ok, over bool) {
	id := engine.ReplyID(inbox, message)
	for ; r != nil; r = r.next {
		for _, e := range r.Log {
			if e.Type == "step_created" && e.ID == id {
				ok = json.Unmarshal(e.Payload, &a) == nil
				a.RunID = r.ID
				return a, ok, false
			}
		}
		over = r.Status != "running"
	}
	return a, false, over
}
