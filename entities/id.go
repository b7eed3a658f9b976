package entities

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
)

// Project is a namespace. An API key belongs to one project; to it, the runs, hooks, streams, messages and deployments
// of other projects do not exist (I9).
type Project string

// DefaultProject is the project that always exists. Its admin keys administer the whole installation.
const DefaultProject Project = "default"

// RunID is "wrun_" and a ULID that the client made before its first call.
type RunID string

// StepID is the correlation ID of a step's events; unique within its run.
type StepID string

// HookID is the correlation ID of a hook's events; unique within its run.
type HookID string

// WaitID is the correlation ID of a wait's events; unique within its run.
type WaitID string

// StreamName is the name of a stream; unique in the project.
type StreamName string

const (
	runIDPrefix = "wrun_"
	// The time in a new run's ID may be this far in the past or in the future (protocol §2.6).
	maxRunIDAge  = 24 * time.Hour
	maxRunIDSkew = 5 * time.Minute

	maxIDLength    = 256
	maxNameLength  = 1024
	maxTokenLength = 1024
)

// regionTag is the top bit of the time in a run ID. Newer clients set it in IDs that contain a region.
const regionTag = uint64(1) << 47

// NewRunID returns an ID for a run that is created at the given time.
func NewRunID(at time.Time) RunID {
	return RunID(runIDPrefix + ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String())
}

// ValidateNewRunID validates the ID of a run to be created now. It fails with [ErrInvalid] unless the ID is "wrun_" and
// a ULID made within the last 24 hours, or up to 5 minutes from now by a clock that is ahead.
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
		return Invalid("run ID %q was made at %s by the client's clock, and here it is %s: that may be at most %d hours "+
			"behind and %d minutes ahead; set the client's clock", id, made.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339), maxRunIDAge/time.Hour, maxRunIDSkew/time.Minute)
	}
	return nil
}

// ValidateID validates an ID: 1 to 256 bytes of printable characters without spaces and path separators. What names the
// kind of ID in the error, which is an [ErrInvalid].
func ValidateID(what, s string) error {
	if s == "" {
		return Invalid("%s is missing", what)
	}
	if len(s) > maxIDLength {
		return Invalid("%s is %d bytes long; the limit is %d", what, len(s), maxIDLength)
	}
	if s == "." || s == ".." || !isText(s) || strings.ContainsFunc(s, notInID) {
		return Invalid("%s %q has characters an ID may not have: "+
			"want printable ones without spaces and slashes, and not U+FFFD", what, s)
	}
	return nil
}

func notInID(r rune) bool {
	return r == '/' || r == '\\' || unicode.IsSpace(r) || !unicode.IsPrint(r)
}

// ValidateName validates the name of a workflow, step, topic or deployment: 1 to 1,024 bytes without control
// characters. What names the kind of name in the error, which is an [ErrInvalid].
func ValidateName(what, s string) error {
	if !isText(s) {
		return Invalid("%s has U+FFFD, half of a surrogate pair, or invalid UTF-8", what)
	}
	return ValidateText(what, s, maxNameLength)
}

// isText reports whether a key has all the characters that its sender gave it. Decoders replace others, such as half of
// a surrogate pair in JSON, so that two keys would become one.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, utf8.RuneError) }

// WorkflowTopic is the prefix of the topic of a workflow's messages; the workflow's name follows (protocol §5.1).
const WorkflowTopic = "__wkf_workflow_"

// ValidateWorkflowName validates the name of a workflow: both the name and the workflow's topic must be valid names.
// The error is an [ErrInvalid].
func ValidateWorkflowName(what, s string) error {
	return ValidateText(what, s, maxNameLength-len(WorkflowTopic))
}

// ValidateToken validates the token of a hook: 1 to 1,024 bytes without control characters. The error is an
// [ErrInvalid].
func ValidateToken(s string) error {
	return ValidateText("hook token", s, maxTokenLength)
}

// ValidateText validates a text of 1 to limit bytes: UTF-8 without control characters. What names the text in the
// error, which is an [ErrInvalid].
func ValidateText(what, s string, limit int) error {
	if s == "" {
		return Invalid("%s is missing", what)
	}
	if len(s) > limit {
		return Invalid("%s is %d bytes long; the limit is %d", what, len(s), limit)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return Invalid("%s contains control characters or invalid UTF-8", what)
	}
	return nil
}
