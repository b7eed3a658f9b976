package stepwell

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// UpdateKind is the definition of updates: messages with an input of type I that the run answers, with an output of
// type O or an error. They come in an inbox of that name. See [UpdateKind.Ask].
type UpdateKind[I, O any] struct{ inbox *InboxKind[Update[I, O]] }

// NewUpdate returns the definition of updates. Workflows have their inbox that are declared with [WithInbox].
func NewUpdate[I, O any](name string) *UpdateKind[I, O] {
	return &UpdateKind[I, O]{NewInbox[Update[I, O]](name)}
}

// Name returns the name of the updates, which is that of their inbox.
func (k *UpdateKind[I, O]) Name() string { return k.inbox.name }

func (k *UpdateKind[I, O]) inboxName() string { return k.inbox.name }

func (k *UpdateKind[I, O]) lossy() []string {
	of := fmt.Sprintf(" of update %q", k.inbox.name)
	return append(unkeepable[I]("input", of), unkeepable[O]("output", of)...)
}

// Receive waits for the next update. If its input does not decode, the error has the code undecodable, and the update,
// which can be rejected, is the zero value but for its ID.
func (k *UpdateKind[I, O]) Receive(w *Context) (Update[I, O], error) { return k.inbox.Receive(w) }

// ReceiveWithin is [UpdateKind.Receive], but waits no longer than d. Then the error is [ErrTimeout].
func (k *UpdateKind[I, O]) ReceiveWithin(w *Context, d time.Duration) (Update[I, O], error) {
	return k.inbox.ReceiveWithin(w, d)
}

// Updates returns the inbox as a hook, for [Hook.All], [On] and [First].
func (k *UpdateKind[I, O]) Updates(w *Context) *Hook[Update[I, O]] { return k.inbox.Messages(w) }

// Update is a message that the run answers, once: with [Update.Reply] or [Update.Reject]. The caller waits meanwhile.
// It may be a part of the input with which a run continues as another one, which then answers.
type Update[I, O any] struct {
	// Inbox is the name of the inbox, and ID the sender's ID of the update, which counts once.
	Inbox string `json:"inbox"`
	ID    string `json:"id"`
	Input I      `json:"input"`
}

// read implements message.
func (u *Update[I, O]) read(hook string, e *engine.Event) (err error) {
	u.Inbox, u.ID = strings.TrimPrefix(hook, inboxPrefix), e.Data.MessageID
	u.Input, err = decode[I](e.Payload)
	return err
}

// inboxPrefix is what the IDs of hooks begin with that are inboxes.
const inboxPrefix = "inbox:"

// replyTo is the command that answers a message.
type replyTo struct {
	Type string `json:"type"`
	messageAnswer
	At string `json:"at,omitempty"`
}

// messageAnswer is an answer as the log has it.
type messageAnswer struct {
	Inbox   string          `json:"inbox"`
	Message string          `json:"message"`
	Output  json.RawMessage `json:"output,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// longestReply is how long an answer may be, in bytes, with what the log has besides.
const longestReply = 1<<20 - 4<<10

// Reply answers the update with an output. The answer is written with what the workflow asks for at the same time. A
// second answer is an error with the code already_answered, and one of more than a MiB one with the code
// answer_too_large; then the update can still be rejected.
func (u Update[I, O]) Reply(w *Context, output O) error {
	data, err := encode(output)
	if err != nil {
		return Permanent(fmt.Errorf("encode the answer to update %s: %w", u.ID, err))
	}
	return u.answer(w, messageAnswer{Inbox: u.Inbox, Message: u.ID, Output: data})
}

// Reject refuses the update with an error, whose code and details the caller gets. Reject it before anything is done.
func (u Update[I, O]) Reject(w *Context, err error) error {
	return u.answer(w, messageAnswer{Inbox: u.Inbox, Message: u.ID, Error: encodeFailure(encodeError(err))})
}

func (u Update[I, O]) answer(w *Context, a messageAnswer) error {
	w.co.Check()
	if u.ID == "" {
		return nil // a message that was sent without one: nobody can ask for the answer
	}
	if !w.exec.offers("reply") {
		panic("the server does not offer reply, which answers to updates need: upgrade the server")
	}
	id := engine.ReplyID(u.Inbox, u.ID)
	switch size := grown(w.exec.app.codec, len(a.Output)+len(a.Error)); {
	case w.exec.replied[id]:
		return Fail("already_answered", fmt.Sprintf("update %s of inbox %s is answered already", u.ID, u.Inbox))
	case size > longestReply:
		return Fail(codeTooLarge, fmt.Sprintf("the answer to update %s has %d bytes, more than %d", u.ID, size, longestReply))
	}
	if w.exec.replied == nil {
		w.exec.replied = map[string]bool{}
	}
	w.exec.replied[id] = true
	place := engine.Caller()
	input, _ := json.Marshal(a) // JSON and texts
	w.exec.engine.Ask(w.co, &engine.Operation{
		Kind: engine.KindReply, ID: id, Name: "reply", Place: place, Input: input, Command: replyTo{"reply", a, place},
	})
	return nil
}

// UpdateError is the error with which a run has rejected an update. [ErrorKind.Find] and errors.Is find the workflow's
// kind of errors in it.
type UpdateError struct {
	// RunID is the run that has rejected the update, and ID the sender's ID of it.
	RunID, ID string
	RunFailure
}

// Error implements error.
func (e *UpdateError) Error() string {
	return fmt.Sprintf("run %s rejected update %s: %s", e.RunID, e.ID, withCode(e.Code, e.Message))
}

// Unwrap returns the error as the workflow's code made it.
func (e *UpdateError) Unwrap() error { return &failure{e.Message, e.Code, e.Details} }

// Ask sends an update to a run, and waits for the answer. If the run continues as others, their answer counts. A
// rejection is an [*UpdateError]. If the run, or the last of them, ends without an answer, the error is an [*APIError]
// with the code unanswered. Ask outlives restarts of the server: it ends with the answer, with the context, or with a
// request that is refused for good. To ask again for the answer to the same update, use the same [MessageID] and input.
func (k *UpdateKind[I, O]) Ask(
	ctx context.Context, c *Client, runID string, input I, options ...SendOption,
) (output O, err error) {
	s, err := newSending(input, options)
	if err != nil {
		return output, err
	}
	r := apiRequest{
		method: http.MethodPost, path: apiPath("runs", runID, "inbox", k.Name()), poll: poll,
		header: http.Header{"Prefer": {fmt.Sprintf("wait=%d", int(poll.Seconds()))}},
		body:   map[string]any{"id": s.id, "payload": s.payload},
	}
	// A server that stops, or for which too many requests wait, answers at once.
	pause := time.NewTicker(time.Second)
	defer pause.Stop()
	for {
		var sent struct{ Answer *answerTo }
		if err := c.do(ctx, r, &sent); err != nil {
			return output, err
		}
		if sent.Answer != nil {
			return decodeAnswer[O](*sent.Answer, k.Name(), s.id)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return output, ctx.Err()
		}
	}
}

// answerTo is an answer as the server returns it.
type answerTo struct {
	RunID  string
	Output json.RawMessage
	Error  *RunFailure
}

func decodeAnswer[O any](a answerTo, name, id string) (output O, err error) {
	if a.Error != nil {
		return output, &UpdateError{a.RunID, id, *a.Error}
	}
	if output, err = decode[O](a.Output); err != nil {
		return output, fmt.Errorf("decode the answer of run %s to update %s %s: %w", a.RunID, name, id, err)
	}
	return output, nil
}
