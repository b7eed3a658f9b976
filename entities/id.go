package entities

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
)

// Project is a name space that one API key sees; runs, hooks, streams, messages and deployments of
// other projects do not exist for it (I9).
type Project string

// DefaultProject is the project that is always there. Its admin keys look after the whole installation.
const DefaultProject Project = "default"

// RunID is "wrun_" and a ULID that the client made before its first call.
type RunID string

// StepID is the correlation ID of a step's events; unique within its run.
type StepID string

// HookID is the correlation ID of a hook's events; unique within its run.
type HookID string

// WaitID is the correlation ID of a wait's events; unique within its run.
type WaitID string

const (
	runIDPrefix = "wrun_"
	// A new run's ID may be this old, or this far ahead of our clock (protocol §2.6).
	maxRunIDAge  = 24 * time.Hour
	maxRunIDSkew = 5 * time.Minute

	maxIDLength    = 256
	maxNameLength  = 1024
	maxTokenLength = 1024
)

// regionTag is the top bit of a run ID's time, which newer clients set to mark IDs that carry a region.
const regionTag = uint64(1) << 47

// NewRunID makes the ID of a run that begins at the given time.
func NewRunID(at time.Time) RunID {
	return RunID(runIDPrefix + ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String())
}

// ValidateNewRunID reports whether a run may be created with this ID now. It fails with [ErrInvalid]
// when the ID is not "wrun_" and a ULID made within the last 24 hours.
func ValidateNewRunID(id RunID, now time.Time) error {
	digits, ok := strings.CutPrefix(string(id), runIDPrefix)
	if !ok {
		return Invalid("run ID %q does not begin with %s", id, runIDPrefix)
	}
	u, err := ulid.ParseStrict(digits)
	if err != nil {
		return Invalid("run ID %q is not %s and a ULID", id, runIDPrefix)
	}
	made := ulid.Time(u.Time() &^ regionTag)
	if made.Before(now.Add(-maxRunIDAge)) || made.After(now.Add(maxRunIDSkew)) {
		return Invalid("run ID %q was made at %s, which is not within the last 24 hours: check the client's clock",
			id, made.UTC().Format(time.RFC3339))
	}
	return nil
}

// ValidateID reports whether s can be the ID of anything: 1 to 256 printable characters without
// spaces or path separators. What names the kind of ID in the error, which is an [ErrInvalid].
func ValidateID(what, s string) error {
	if s == "" {
		return Invalid("%s is missing", what)
	}
	if len(s) > maxIDLength {
		return Invalid("%s is %d bytes long; the limit is %d", what, len(s), maxIDLength)
	}
	if s == "." || s == ".." || !utf8.ValidString(s) || strings.ContainsFunc(s, notInID) {
		return Invalid("%s %q has characters an ID may not have: want printable ones without spaces and slashes", what, s)
	}
	return nil
}

func notInID(r rune) bool {
	return r == '/' || r == '\\' || unicode.IsSpace(r) || !unicode.IsPrint(r)
}

// ValidateName reports whether s can be a workflow's, step's, topic's or deployment's name: 1 to 1,024
// printable characters. What names the kind of name in the error, which is an [ErrInvalid].
func ValidateName(what, s string) error {
	return ValidateText(what, s, maxNameLength)
}

// WorkflowTopic is how the topic of a workflow's messages begins; its name follows (protocol §5.1).
const WorkflowTopic = "__wkf_workflow_"

// ValidateWorkflowName reports whether s can be the name of a workflow whose runs are sent messages: a name,
// and so is its topic. The error is an [ErrInvalid].
func ValidateWorkflowName(what, s string) error {
	return ValidateText(what, s, maxNameLength-len(WorkflowTopic))
}

// ValidateToken reports whether s can be a hook's token: 1 to 1,024 printable characters. The error is
// an [ErrInvalid].
func ValidateToken(s string) error {
	return ValidateText("hook token", s, maxTokenLength)
}

func ValidateText(what, s string, limit int) error {
	if s == "" {
		return Invalid("%s is missing", what)
	}
	if len(s) > limit {
		return Invalid("%s is %d bytes long; the limit is %d", what, len(s), limit)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return Invalid("%s has control characters or is not UTF-8", what)
	}
	return nil
}
