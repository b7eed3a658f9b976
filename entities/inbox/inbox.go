// Package inbox defines inboxes. An inbox is a hook of a run that is opened with the run, so that nothing sent after
// the start is lost. Its messages are in the log, in their order, and each message ID counts once.
package inbox

import (
	"crypto/rand"
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
