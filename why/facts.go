package why

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

const (
	// MaxParts is how many open steps, hooks and waits of a run are read, each.
	MaxParts = 50
	// MaxBacklog limits [Reason.Backlog]: at the limit, there are that many or more.
	MaxBacklog = 1000
)

// Facts are what an explanation follows from.
type Facts struct {
	Run entities.Run
	// Now is the time of the snapshot.
	Now   time.Time
	Watch cluster.Watch
	// Messages are those of the run itself; those of its steps are with the steps.
	Messages []Message
	Steps    []Step
	Hooks    []HookFact
	Waits    []WaitFact
	// Limits are the slots that the run and its steps wait for.
	Limits []LimitFact
	// Open counts the steps, hooks and waits that are open, whether or not they are in the lists. If the run's function
	// has said which steps it awaits, the others do not count.
	Open Parts
	// Backlog is as in [Reason].
	Backlog int
	// PausedAt is set while the project is paused.
	PausedAt *time.Time
	// Pauses are those of the project.
	Pauses map[hold.Subject]hold.Pause
}

// Message is a message of the queue.
type Message struct {
	RunID           entities.RunID
	ID              string
	DeploymentID    string
	Work            message.Work
	Subject         string
	Lease           string
	Holder, Host    string
	Ticketed        bool // it ever had a ticket, so its first delay is over
	DeliveryCount   int
	DisconnectCount int
	ExcusedCount    int
	UnreachedCount  int
	LastError       string
	Blocked         *message.Blocked
	FirstFailedAt   *time.Time
	CreatedAt       time.Time
	DueAt           time.Time
	ParkedAt        *time.Time
	// HeldBy is the pause that holds the message; nil for none.
	HeldBy *int64
	// Registered says that the deployment is, and UnhealthySince since when its probes fail; nil if they do not.
	Registered     bool
	UnhealthySince *time.Time
	// AwaitsSince is set if the message waits until its deployment may be called. Of MaxCalls, UnderWay are under way, and
	// Ahead messages are before it.
	AwaitsSince               *time.Time
	MaxCalls, UnderWay, Ahead int
}

// Step is an open step.
type Step struct {
	RunID      entities.RunID
	ID         entities.StepID
	Name       string
	Status     entities.StepStatus
	Attempt    int
	ResultSeq  int64
	CreatedAt  time.Time
	UpdatedAt  time.Time
	RetryAfter *time.Time
	// Spec is set if the server executes the step.
	Spec *entities.StepSpec
	// ErrorCode is that of the last attempt.
	ErrorCode string
	Total     int

	// Message is the step's message, and ChildStatus the status of the child run that it stands for.
	Message     *Message           `db:"-"`
	ChildStatus entities.RunStatus `db:"-"`
}

// HookFact is an open hook.
type HookFact struct {
	RunID               entities.RunID
	ID                  entities.HookID
	Token               string
	IsWebhook, IsSystem bool
	Signal, Condition   string
	// IsApproval reports whether it accepts only votes. Votes is how many it has.
	IsApproval bool
	Votes      int
	CreatedAt  time.Time
	Total      int
}

// WaitFact is an open wait.
type WaitFact struct {
	RunID     entities.RunID
	ID        entities.WaitID
	ResumeAt  *time.Time
	CreatedAt time.Time
	Total     int
}

// childID returns the child run that the step stands for; empty if it is none.
func (s Step) childID() entities.RunID {
	if s.Spec == nil {
		return ""
	}
	return s.Spec.ChildID
}
