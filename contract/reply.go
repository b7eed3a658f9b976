package contract

import (
	"encoding/json"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// reply answers a message to an inbox. It is a step that has completed, whose ID follows from the message, so that the
// first answer of a run counts.
type reply struct {
	head

	Inbox   string          `json:"inbox"`
	Message string          `json:"message"`
	Output  json.RawMessage `json:"output"`
	// Error refuses the message.
	Error *Failure `json:"error"`
	At    place    `json:"at"`
}

func (c *reply) requests(Planner) ([]eventlog.Request, error) {
	if err := inbox.ValidateName(c.Inbox); err != nil {
		return nil, err
	}
	if err := inbox.ValidateMessageID(c.Message); err != nil {
		return nil, err
	}
	answer := inbox.Answer{Inbox: c.Inbox, Message: c.Message, Output: c.Output}
	switch {
	case c.Error == nil:
		answer.Output = orNull(c.Output)
	case c.Output != nil || c.Error.Message == "":
		return nil, entities.Invalid(`want either "output" or {"error": {"message": "…"}}`)
	default:
		answer.Error = c.Error.Text()
	}
	data, err := json.Marshal(answer)
	if len(data) > inbox.MaxReply {
		return nil, entities.Invalid("the answer is %d bytes long; the limit is %d", len(data), inbox.MaxReply)
	}
	id := inbox.ReplyID(inbox.ResumeID(c.Inbox, c.Message))
	return atOnce(string(id), inbox.Reply, data, nil, c.At), err
}
