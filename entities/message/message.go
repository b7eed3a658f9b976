// Package message has the messages of the queue, and the kinds of work that a message can be for the server.
package message

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Work is a kind of task that the server itself performs for a run. Tasks are kept in the queue as messages.
type Work string

// The kinds of work.
const (
	// WorkNone marks messages that are delivered to functions, which alone interpret them.
	WorkNone Work = ""
	// WorkRun invokes the function of a run. It exists whenever the run can make progress, now or at a known time.
	WorkRun Work = "run"
	// WorkStep executes a step, its subject.
	WorkStep Work = "step"
	// WorkDeadline fails the run if it has not ended.
	WorkDeadline Work = "deadline"
	// WorkCancel asks the run to cancel, with the grace that is its subject. Without a subject, it ends a run that was
	// asked and has not ended in its grace.
	WorkCancel Work = "cancel"
	// WorkReport gives the run the result of a child. Its subject is the step that waits for it.
	WorkReport Work = "report"
	// WorkEnd cleans up after the end of a run: it deletes the run's other work and ends its children.
	WorkEnd Work = "end"
	// WorkSignal dispatches a signal, its subject, to the hooks that wait for it.
	WorkSignal Work = "signal"
	// WorkEmit posts a signal that a run has sent; its body says which. It belongs to no run, whose end would delete it.
	WorkEmit Work = "emit"
	// WorkLookBack resumes a hook, its subject, with earlier signals.
	WorkLookBack Work = "lookback"
	// WorkSchedule decides the ticks of a schedule, its subject, and is due at the next one. It belongs to no run.
	WorkSchedule Work = "schedule"
	// WorkCollection starts the run, its subject, of a collection that is due. It belongs to no run as long as there is
	// none.
	WorkCollection Work = "collection"
	// WorkTrigger starts the run of a trigger for an event; both are its subject. It belongs to no run.
	WorkTrigger Work = "trigger"
	// WorkProbe probes the health of the message's deployment, and is due at the next probe. Its subject is
	// [ProbeSubject], and it belongs to no run.
	WorkProbe Work = "probe"
	// WorkRequest makes the request of the API in its body, which an app has left in SQL. It belongs to no run.
	WorkRequest Work = "request"
)

// ProbeSubject returns the subject of the probes of a deployment: work that belongs to no run is told apart by it.
func ProbeSubject(p entities.Project, deployment string) string { return string(p) + "/" + deployment }

// StoresProgress reports whether the work stores how far it is, so that it can be interrupted at any time and any
// process can go on with it.
func (w Work) StoresProgress() bool { return w == WorkSignal || w == WorkLookBack }

// Message is delivered to a function of a deployment at least once, or is [Work] for the server.
type Message struct {
	Project entities.Project
	// Topic is the name of the queue, as in URLs.
	Topic string
	// DeploymentID is the deployment whose functions receive the message.
	DeploymentID string
	// RunID is the run that the message is about, if the sender names one.
	RunID entities.RunID
	// ContentType and Body are delivered as they were sent (I10).
	ContentType string
	Body        []byte
	// Key is the idempotency key: until Retention has passed, another message with the same project, deployment, topic
	// and key is a duplicate. Empty for none.
	Key string
	// Work is set if the message is a task for the server, and Subject is the part of the run that the task is about.
	// At most one task exists for each run, work and subject.
	Work    Work
	Subject string
	// New is set if no such task can be stored yet, because the event that asks for it creates its run or its step.
	New bool
	// Delay is the time before the first delivery, which never comes earlier.
	Delay time.Duration
	// Deliveries is how many deliveries a task counts from its start, because somebody else has made them.
	Deliveries int
	// Urgent makes stored work due that waits for its backoff after a failure.
	Urgent bool
	// BeginsRun marks the message with which a run begins. Of the messages that wait for a slot, those of runs that have
	// begun come first.
	BeginsRun bool
	// Gated makes the first invocation of a run, or a step with Limits, wait for slots of limits. With [WorkEnd], it
	// makes the messages due that have waited so.
	Gated bool
	// Continues leaves, with [WorkEnd], the orders to cancel the run: it goes on as another one, which is meant.
	Continues bool
	// Limits are those of which each attempt at a step needs a slot; nil for none.
	Limits *Limits
	// Lasts is how long the work may take; 0 if that is unknown.
	Lasts time.Duration
	// Retention is how long the key is remembered after the end of the delay.
	Retention time.Duration
	// Stored, if not nil, receives the ID under which the message is stored: for a duplicate, that of the first one.
	Stored *string
}

// workflowTopics matches the topics of messages that begin or continue runs, and not those of steps.
var workflowTopics = regexp.MustCompile(`^__(?:[A-Za-z0-9-]+_)?wkf_workflow_`)

// Begins reports whether a client's message is the first of its run: only that one has what the run is made of, near
// its beginning (protocol §5.2).
func Begins(topic string, body []byte) bool {
	const near = 4 << 10
	return workflowTopics.MatchString(topic) && bytes.Contains(body[:min(near, len(body))], []byte("runInput"))
}

// Limits are the limits of which work needs slots.
type Limits struct {
	Uses []entities.LimitUse
	// Priority is by how much it goes before what came with it.
	Priority time.Duration
	// Until is when it stops waiting; nil for never.
	Until *time.Time
}

// LimitsOf returns what a step needs, of which it shares no slots with others; nil for nothing.
func LimitsOf(spec entities.StepSpec, uses []entities.LimitUse) *Limits {
	if len(uses) == 0 {
		return nil
	}
	return &Limits{Uses: uses, Priority: time.Duration(spec.PriorityMS) * time.Millisecond, Until: spec.Deadline}
}

// Blocked says why a run does not go on: its function answers invocations with a failure that has a code.
type Blocked struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Since is the time of the first failure since the last invocation that succeeded, and Attempts the number of
	// failures.
	Since    time.Time `json:"-"`
	Attempts int       `json:"-"`
}

// CodeDiverged is the code of a run whose log does not match the code of its workflow.
const CodeDiverged = "diverged"

// The last errors of messages whose delivery was ended by the server: nothing has failed but the server itself.
const (
	ServerDied    = "the server that made the delivery died"
	ServerStopped = "the server was stopped"
	NoMemory      = "timed out waiting for memory for the run's log"
	// ProjectPaused is that of a message that waits because its project is paused.
	ProjectPaused = "the project is paused"
)

// NotReady is the last error of a step whose function has asked to be called later, as the failure in the log.
const NotReady = `{"message":"the function is not ready yet","code":"not_ready"}`

// ServerErrors are these errors.
var ServerErrors = []string{ServerDied, ServerStopped, NoMemory, ProjectPaused}

// AnswerRefused begins the last error of an invocation whose answer the server refused. What a function says never
// begins an error.
const AnswerRefused = "the answer was refused: "

// ConnectionClosed begins the last error of a delivery whose connection was closed before an answer, as when the app
// dies.
const ConnectionClosed = "the connection was closed before an answer"

// ErrStale means that the invocation is over: it can no longer change anything.
var ErrStale = errors.New("stale invocation")

// CodeStale is the code of ErrStale for functions, which answer their call with it then.
const CodeStale = "stale_invocation"

// ErrDeploymentNotFound means that the project has no such deployment.
var ErrDeploymentNotFound = errors.New("deployment not found")

// ErrStepsOnly refuses a new run on a deployment that only executes steps.
var ErrStepsOnly = fmt.Errorf("%w: the deployment executes steps only, and has no workflow: name another one, or none",
	entities.ErrInvalid)

// ErrDeploymentRetired refuses a new run of a version that is retired.
var ErrDeploymentRetired = fmt.Errorf("%w: the version of the flow is retired: start another one", entities.ErrInvalid)

// ErrIsCatalog refuses a new run of a workflow whose runs are planned.
var ErrIsCatalog = fmt.Errorf("%w: the workflow is a catalog: start its runs with catalog and want, or name the "+
	"deployment of a plan", entities.ErrInvalid)

// ErrHasURL refuses an app that asks for its deliveries and is registered at a URL: its messages are delivered there.
var ErrHasURL = errors.New("the deployment is registered at a URL, to which its messages are delivered: remove the " +
	"registration, or do not ask for deliveries")

// ErrLeaseNotFound means that the project has no message under this lease.
var ErrLeaseNotFound = errors.New("lease not found")

// ErrMessageNotFound means that the project has no such message.
var ErrMessageNotFound = errors.New("message not found")

// FirstDue selects the first messages of project $1 that meet the condition, which none that is parked does. The order
// begins with due_at. It merges the two parts of an index: the messages whose runs have begun, and the others.
func FirstDue(columns, condition, order, limit string) string {
	tail := ` ORDER BY ` + order + ` LIMIT ` + limit
	part := func(begins string) string {
		return `(SELECT ` + columns + ` FROM messages WHERE project = $1 AND ` + begins + ` AND ` + condition + tail + `)`
	}
	return part(`NOT begins_run`) + ` UNION ALL ` + part(`begins_run`) + tail
}
