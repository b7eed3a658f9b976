package remote

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The API's objects, with the fields that are printed. encoding/json matches the names without regard to case.

// failure is the error of a run or a step.
type failure struct {
	Code, Message string
	Details       json.RawMessage
}

// String returns "code: message", or "" for nil.
func (f *failure) String() string {
	switch {
	case f == nil:
		return ""
	case strings.HasPrefix(f.Message, f.Code+": "):
		return f.Message
	case f.Code != "" && f.Message != "":
		return f.Code + ": " + f.Message
	default:
		return f.Code + f.Message
	}
}

// details returns the details as text, or "" for nil.
func (f *failure) details() multiline {
	if f == nil {
		return ""
	}
	return payloadText(f.Details, "")
}

type run struct {
	ID, Workflow, Deployment, Driver, Status, Key, ParentID, RootID string

	Attributes                                                     map[string]string
	CreatedAt, StartAt, StartedAt, CompletedAt, Deadline, ForcedAt time.Time
	Error                                                          *failure
	Held                                                           *held
	CancelReason                                                   string
	Input, Output                                                  json.RawMessage
	InputEncoding, OutputEncoding                                  string
}

// held says why a run does not go on.
type held struct {
	failure

	Since    time.Time
	Attempts int
}

// code returns "held: code", or "" for nil.
func (h *held) code() string {
	if h == nil {
		return ""
	}
	return "held: " + h.Code
}

// text returns the whole reason, or "" for nil.
func (h *held) text() multiline {
	if h == nil {
		return ""
	}
	return escapeLines(fmt.Sprintf("since %s, %d attempts: %s", timestamp(h.Since), h.Attempts, h))
}

type step struct {
	ID, RunID, Name, Status, Deployment, ChildID string

	Attempt                                       int
	CreatedAt, StartedAt, CompletedAt, RetryAfter time.Time
	Input, Output                                 json.RawMessage
	InputEncoding, OutputEncoding                 string
	Error                                         *failure
}

type hook struct {
	ID, RunID, Workflow, Token, Status, Signal, Condition, ConflictingRunID string

	Webhook                                          bool
	CreatedAt, ReceivedAt, DisposedAt, RetainedUntil time.Time
	Metadata                                         json.RawMessage
	MetadataEncoding                                 string
}

type wait struct {
	ID, RunID, Workflow, Status      string
	ResumeAt, CreatedAt, CompletedAt time.Time
}

type event struct {
	RunID, Type, CorrelationID, Encoding string

	Seq       int64
	CreatedAt time.Time
	Data      map[string]json.RawMessage
	Payload   json.RawMessage
	Truncated bool
}

type stream struct {
	Name                string
	Chunks              int64
	CreatedAt, ClosedAt time.Time
}

type chunk struct {
	Text   string
	Base64 []byte
}

type signal struct {
	ID, Name, Key        string
	CreatedAt, KeepUntil time.Time
	Data                 json.RawMessage
	Truncated            bool
}

type deployment struct {
	ID, URL, Build       string
	LastError            string
	Workflows            []string
	StepsOnly            bool
	OpenRuns             int64
	WaitingMessages      int64
	MaxConcurrent        int
	CreatedAt, UpdatedAt time.Time

	AnsweredAt, UnreachableSince, FailedAt time.Time

	Health deploymentHealth
}

// deploymentHealth is what probes have found out about a deployment.
type deploymentHealth struct {
	Path, Status, LastError string
	HeldUntil               time.Time
}

// String says how the deployment is; empty if it is not probed.
func (h deploymentHealth) String() string {
	if h.Status != "unhealthy" {
		return h.Status
	}
	return fmt.Sprintf("unhealthy, not called until %s: %s", timestamp(h.HeldUntil), h.LastError)
}

type secret struct {
	Name                 string
	CreatedAt, UpdatedAt time.Time
	Origins              []string
}

type message struct {
	ID, Topic, DeploymentID, RunID, Work, Subject, State, LastError string

	DeliveryCount              int
	CreatedAt, DueAt, ParkedAt time.Time
}
