package why

import (
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

// addStep adds the reason that follows from an open step.
func (x *explainer) addStep(s Step) {
	r := x.ofStep(s)
	m, p := s.Message, delayed
	if m != nil && m.isPaused() {
		x.addPauseOf(hold.Subject{Kind: hold.Deployment, Name: m.DeploymentID})
		return
	}
	if m != nil {
		p = m.phase(x.Now, false)
	}
	if m != nil && p != leased && x.waitsNow(m.ID) {
		x.addLimits(m.ID, r)
		return
	}
	// An attempt that failed is the log's business. All else that goes wrong is the message's.
	if p > failed || p == failed && s.RetryAfter == nil {
		x.add(r.trouble(*m, p))
		return
	}
	x.add(x.withKind(r, s, p))
}

// withKind completes the reason that follows from an open step with which nothing is wrong.
func (x *explainer) withKind(r Reason, s Step, p phase) Reason {
	m := s.Message
	switch {
	case s.hasOpenChild():
		r.Attempt, r.MaxAttempts, r.Error, r.Since = 0, 0, nil, &s.CreatedAt
		r.Kind, r.ChildID, r.ChildStatus, r.Remedies = Child, s.childID(), s.ChildStatus, []Remedy{ExplainRun}
	case p == awaiting:
		r = r.awaits(*m)
	case p == leased && s.childID() == "":
		r = r.underWay(*m)
		r.Kind, r.Attempt = StepRunning, max(1, m.DeliveryCount)
	case isAfter(s.RetryAfter, x.Now):
		r = r.backingOff(s)
	case x.runsInCall(s):
		r.Kind, r.Attempt, r.Error = StepRunning, max(1, s.Attempt), nil
	default:
		r.Kind, r.ChildID, r.ChildStatus = StepQueued, s.childID(), s.ChildStatus
		if m != nil {
			r = x.waitsForSlot(r, *m)
		}
	}
	return r
}

// ofStep returns what all reasons about a step say. The attempt is the next one.
func (x *explainer) ofStep(s Step) Reason {
	r := Reason{
		StepID: s.ID, Name: s.Name, Attempt: max(1, s.Attempt), Since: &s.UpdatedAt, DeploymentID: x.Run.DeploymentID,
	}
	if s.ResultSeq > 0 {
		r.Error = &Error{Code: s.ErrorCode, Seq: s.ResultSeq}
	}
	if s.Spec != nil {
		r.MaxAttempts, r.DeploymentID = s.Spec.MaxAttempts, s.Spec.DeploymentID
	}
	if s.isCalled() {
		r.Attempt = s.Message.DeliveryCount + 1
	}
	return r
}

// isCalled reports whether the server calls the step's function, so that its message counts the attempts.
func (s Step) isCalled() bool {
	return s.Spec != nil && s.Message != nil && s.Message.Work == message.WorkStep
}

func (s Step) hasOpenChild() bool {
	return s.childID() != "" && s.ChildStatus != "" && !s.ChildStatus.Ended()
}

// isAfter reports whether a time is later than now; nil is not.
func isAfter(t *time.Time, now time.Time) bool { return t != nil && t.After(now) }

// backingOff completes the reason of a step whose next attempt comes after a pause. One that the server calls can be
// tried now.
func (r Reason) backingOff(s Step) Reason {
	r.Kind, r.At = StepBackoff, s.RetryAfter
	if !s.isCalled() {
		r.Attempt = s.Attempt + 1
	}
	m := s.Message
	if m == nil {
		return r
	}
	if r = r.fill(*m); r.Error != nil {
		r.Error.Seq = s.ResultSeq
	}
	if s.isCalled() && m.hasFailed() {
		r.Remedies = []Remedy{RetryMessage}
	}
	if m.DueAt.After(*r.At) {
		r.At = &m.DueAt
	}
	return r
}

// runsInCall reports whether an attempt at the step is under way that the run's own function makes: that of an app of
// the Workflow SDK, or one that executes the step itself while it is called.
func (x *explainer) runsInCall(s Step) bool {
	if s.Status != entities.StepRunning {
		return false
	}
	if x.Run.Driver != entities.DriverServer {
		return true
	}
	return s.Spec == nil && slices.ContainsFunc(x.Messages, func(m Message) bool {
		return m.Work == message.WorkRun && m.Lease != ""
	})
}
