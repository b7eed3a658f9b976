package rest

import (
	"fmt"
	"slices"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

// firstMessage is a message that is sent with the start of a run.
type firstMessage struct {
	Inbox string `json:"inbox"`
	inboxMessage
}

// validateInboxes validates the names of inboxes and the messages to them.
func (b startRequest) validateInboxes() error {
	if n := len(b.Inbox); n > inbox.MaxInboxes {
		return badField("inbox", "%d inboxes; the limit is %d", n, inbox.MaxInboxes)
	}
	if n := len(b.Send); n > inbox.MaxMessages {
		return badField("send", "%d messages; the limit is %d", n, inbox.MaxMessages)
	}
	for i, name := range b.Inbox {
		if err := inbox.ValidateName(name); err != nil {
			return inField("inbox", err)
		}
		if slices.Contains(b.Inbox[:i], name) {
			return badField("inbox", "%q is there twice", name)
		}
	}
	for i, m := range b.Send {
		field := fmt.Sprintf("send[%d]", i)
		if !slices.Contains(b.Inbox, m.Inbox) {
			return badField(field, "%q is not one of the inboxes in inbox", m.Inbox)
		}
		if err := m.validate(); err != nil {
			return inField(field, err)
		}
	}
	return nil
}

// opened returns the requests that open the inboxes of a run.
func opened(inboxes []string) []eventlog.Request {
	var requests []eventlog.Request
	for _, name := range inboxes {
		requests = append(requests, eventlog.Request{
			Type: entities.EventHookCreated, CorrelationID: string(inbox.HookID(name)), SpecVersion: entities.SpecDriven,
			Data: entities.EventData{Token: inbox.NewToken()}, FreshToken: true,
		})
	}
	return requests
}

// sent returns the requests that send the messages. If the request can join a run and has an idempotency key, each
// message has it too, and counts once.
func (b startRequest) sent() []eventlog.Request {
	var requests []eventlog.Request
	for i, m := range b.Send {
		r := m.request(m.Inbox)
		if b.OnConflict == onConflictJoin && b.IdempotencyKey != "" {
			r.Data.IdempotencyKey = b.IdempotencyKey
			if m.ID == "" {
				r.Data.ResumeID = fmt.Sprintf("start:%s:%d", incoming.Digest([]byte(b.IdempotencyKey)), i)
				r.Data.ResumeDigest = incoming.Digest(m.Payload)
			}
		}
		requests = append(requests, r)
	}
	return requests
}
