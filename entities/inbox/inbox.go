// Package inbox defines inboxes. An inbox is a hook of a run that is opened with the run, so that nothing sent after
// the start is lost. Its messages are in the log, in their order, and each message ID counts once.
package inbox

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// MaxInboxes is the most inboxes with which a run starts.
	MaxInboxes = 16
	// MaxMessages is the most messages with which a run starts.
	MaxMessages = 100
	// maxID is the most bytes of a message ID.
	maxID = 256

	prefix = "inbox:"
)

// ErrNotFound reports that a run has no such inbox, or has closed it.
var ErrNotFound = errors.New("inbox not found")

// ErrUnanswered reports that a run has ended, as has every run that went on with its work, without an answer to a
// message.
var ErrUnanswered = errors.New("no answer")

// HookID returns the ID of the inbox's hook.
func HookID(name string) entities.HookID { return entities.HookID(prefix + name) }

// Name returns the name of the inbox that has the hook, and reports whether the hook is an inbox.
func Name(id entities.HookID) (name string, ok bool) { return strings.CutPrefix(string(id), prefix) }

// ValidateName validates the name of an inbox: with the prefix inbox: it must be a valid ID. The error is an
// [entities.ErrInvalid].
func ValidateName(name string) error {
	if name == "" {
		return entities.Invalid("the name of the inbox is missing")
	}
	return entities.ValidateID("the name of the inbox, with inbox: before it,", string(HookID(name)))
}

// ValidateMessageID validates the ID of a message: 1 to 256 bytes of text. The error is an [entities.ErrInvalid].
func ValidateMessageID(id string) error { return entities.ValidateText("message ID", id, maxID) }

// ResumeID returns the resume ID of a message, under which the log records it once. It is unambiguous, because the name
// of an inbox has no spaces.
func ResumeID(name, messageID string) string { return prefix + name + " " + messageID }

// NewToken returns a token for the inbox's hook. Nobody resumes an inbox by its token, but each hook has one.
func NewToken() string { return "inbox_" + rand.Text() }

const (
	// Reply is the name of the steps that hold answers to messages.
	Reply = "reply"
	// MaxReply is the limit of an answer in bytes.
	MaxReply = 1 << 20
)

// ReplyID returns the ID of the step that holds a run's answer to the message with the resume ID. A run has one such
// step at most, so that its first answer counts.
func ReplyID(resumeID string) entities.StepID {
	digest := sha256.Sum256([]byte(resumeID))
	return entities.StepID(Reply + ":" + hex.EncodeToString(digest[:16]))
}

// Answer is what a run has answered to a message: an output, or an error with which it has refused it. It is the input
// of its step.
type Answer struct {
	Inbox   string          `json:"inbox"`
	Message string          `json:"message"`
	Output  json.RawMessage `json:"output,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}
