package why

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/await"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

// Explain explains why the run is not done. Each run that has not ended gets at least one reason. The verdict is
// stranded if and only if the sweeper would find the run.
func Explain(f Facts) Explanation {
	e := Explanation{Run: f.Run, At: f.Now, Verdict: VerdictEnded, Open: f.Open}
	if f.Run.Status.Ended() {
		return e
	}
	x := explainer{Facts: f}
	x.addWatch()
	x.addPause()
	for _, s := range []hold.Subject{
		{Kind: hold.Run, Name: string(f.Run.ID)}, {Kind: hold.Workflow, Name: f.Run.WorkflowName},
		{Kind: hold.Deployment, Name: f.Run.DeploymentID},
	} {
		x.addPauseOf(s)
	}
	x.addCancellation()
	x.addLimits("", Reason{})
	for _, m := range f.Messages {
		x.addMessage(m)
	}
	for _, s := range f.Steps {
		x.addStep(s)
	}
	x.addWaits()
	x.addHooks()
	if len(x.reasons) == 0 {
		x.add(Reason{Kind: Unscheduled, Since: &f.Run.UpdatedAt, Until: &f.Watch.QuietUntil})
	}
	slices.SortStableFunc(x.reasons, func(a, b Reason) int { return a.Kind.rank() - b.Kind.rank() })
	e.Reasons, e.Next = x.reasons, next(x.reasons, f.Now)
	e.Verdict = verdicts[x.reasons[0].Kind.rank()].verdict
	return e
}

// next returns the reason that ends first by itself after now, or nil.
func next(reasons []Reason, now time.Time) *Reason {
	var first *Reason
	for i, r := range reasons {
		if isAfter(r.At, now) && (first == nil || r.At.Before(*first.At)) {
			first = &reasons[i]
		}
	}
	return first
}

// explainer collects the reasons of a run that has not ended.
type explainer struct {
	Facts

	reasons []Reason
}

func (x *explainer) add(r Reason) { x.reasons = append(x.reasons, r) }

// awaits returns what the run's function awaits; nil if it has not said so, or if that does not count.
func (f Facts) awaits() *await.Pending {
	if a := f.Run.Await; a != nil && a.Seq == f.Run.LastSeq {
		return a
	}
	return nil
}

// awaitedSteps returns the open steps that the run's function awaits; nil if all steps count.
func (f Facts) awaitedSteps() []string {
	a := f.awaits()
	if a == nil {
		return nil
	}
	steps := slices.Concat([]string{}, a.Any)
	for _, list := range a.All {
		steps = append(steps, list.Steps...)
	}
	return steps
}

// isAwaited reports whether the end of a wait at the given time matters to the run.
func (f Facts) isAwaited(at time.Time) bool {
	a := f.awaits()
	if a == nil || a.At != nil && a.At.Equal(at) {
		return true
	}
	return slices.ContainsFunc(a.All, func(l await.List) bool { return l.At != nil && !at.After(*l.At) })
}

func (x *explainer) addWatch() {
	w := x.Watch
	if w.Reason == "" {
		return
	}
	x.add(Reason{
		Kind: Stranded, Detail: w.Reason, Since: cmp.Or(w.FoundAt, &x.Run.UpdatedAt), At: w.WakeAt, Failures: w.Wakes,
		Remedies: []Remedy{CancelRun},
	})
}

func (x *explainer) addPause() {
	if x.PausedAt != nil {
		x.add(Reason{
			Kind: ProjectPaused, Name: string(x.Run.Project), Since: x.PausedAt, Remedies: []Remedy{PutProject, CancelRun},
		})
	}
}

// addPauseOf adds that something is paused, once.
func (x *explainer) addPauseOf(s hold.Subject) {
	p, ok := x.Pauses[s]
	if !ok || slices.ContainsFunc(x.reasons, func(r Reason) bool { return r.Pause != nil && r.Pause.Subject == s }) {
		return
	}
	x.add(Reason{Kind: Paused, Pause: &p, Since: &p.PausedAt, Remedies: []Remedy{RemovePause, CancelRun}})
}

func (x *explainer) addCancellation() {
	if x.Run.ForcedAt == nil {
		return
	}
	r := Reason{Kind: Cancelling, Until: x.Run.ForcedAt, Remedies: []Remedy{CancelRun}}
	for _, m := range x.Messages {
		if m.Work == message.WorkCancel && m.Subject == "" {
			r.Since = &m.CreatedAt
		}
	}
	x.add(r)
}

// phase is what becomes of a message next.
type phase int

const (
	delayed  phase = iota // it is not due for the first time
	queued                // it is due, and no server has taken it
	awaiting              // its deployment has as many calls as it may have
	leased                // a server or its function has it
	failed                // it failed, and is tried again
	missing               // its deployment is not registered
	parked                // somebody must retry it
)

// phase returns the message's phase. Scheduled says that the message's time is that of something the run waits for.
func (m Message) phase(now time.Time, scheduled bool) phase {
	switch {
	case m.ParkedAt != nil:
		return parked
	case m.Lease != "" && m.DueAt.After(now):
		return leased
	case !m.hasFailed() && m.DueAt.After(now) && (scheduled || !m.Ticketed):
		return delayed
	case m.callsFunction() && !m.Registered:
		return missing
	case m.hasFailed() && m.AwaitsSince == nil:
		return failed
	case m.awaitsDeployment():
		return awaiting
	default:
		return queued
	}
}

// awaitsDeployment reports whether the deployment of the message has no room for its call.
func (m Message) awaitsDeployment() bool {
	return m.AwaitsSince != nil && m.MaxCalls > 0 && m.UnderWay >= m.MaxCalls
}

// awaits completes a reason about a message that waits until its deployment may be called.
func (r Reason) awaits(m Message) Reason {
	r = r.fill(m)
	r.Kind, r.Since, r.Held, r.Slots, r.Ahead = DeploymentFull, m.AwaitsSince, m.UnderWay, m.MaxCalls, m.Ahead
	r.Remedies = []Remedy{PutDeployment}
	return r
}

// callsFunction reports whether the message is delivered by a call of a function.
func (m Message) callsFunction() bool {
	return m.Work == message.WorkNone || m.Work == message.WorkRun || m.Work == message.WorkStep
}

// hasFailed reports whether the last delivery failed, for a reason that is not the server's own.
func (m Message) hasFailed() bool {
	return m.LastError != "" && !slices.Contains(message.ServerErrors, m.LastError)
}

// isPaused reports whether the message waits because its project, its run, its workflow or its deployment is paused,
// which is a reason of its own.
func (m Message) isPaused() bool {
	return m.LastError == message.ProjectPaused || m.HeldBy != nil && m.Lease == ""
}

// error returns the last failure; nil if there is none. The failure of a step is JSON.
func (m Message) error() *Error {
	var step struct{ Code, Message string }
	switch {
	case m.Blocked != nil:
		return &Error{Code: m.Blocked.Code, Message: m.Blocked.Message}
	case !m.hasFailed():
		return nil
	case m.Work == message.WorkStep && json.Unmarshal([]byte(m.LastError), &step) == nil && step.Message != "":
		return &Error{Code: step.Code, Message: step.Message}
	default:
		return &Error{Message: m.LastError}
	}
}

// fill adds what the reason says about a message.
func (r Reason) fill(m Message) Reason {
	r.MessageID, r.DeploymentID = m.ID, cmp.Or(r.DeploymentID, m.DeploymentID)
	r.Error = cmp.Or(m.error(), r.Error)
	return r
}

// trouble completes a reason about a message that is parked, has failed or lacks its deployment.
func (r Reason) trouble(m Message, p phase) Reason {
	r = r.fill(m)
	r.Since, r.Failures, r.At = m.FirstFailedAt, max(1, m.DeliveryCount-m.DisconnectCount-m.ExcusedCount), &m.DueAt
	switch {
	case p == parked:
		r.Kind, r.Since, r.At, r.Remedies = Parked, m.ParkedAt, nil, []Remedy{RetryMessage, DiscardMessage}
	case p == missing:
		r.Kind, r.Failures, r.Remedies = DeploymentMissing, m.UnreachedCount, []Remedy{PutDeployment}
	case m.UnreachedCount > 0 && m.UnhealthySince != nil:
		r.Kind, r.Since, r.Failures, r.Remedies = Unhealthy, m.UnhealthySince, m.UnreachedCount, []Remedy{PutDeployment}
	case strings.HasPrefix(m.LastError, message.ConnectionClosed):
		r.Kind, r.Failures, r.Remedies = ConnectionClosed, m.DisconnectCount, []Remedy{RetryMessage}
	case m.UnreachedCount > 0:
		r.Kind, r.Failures, r.Remedies = Unreachable, m.UnreachedCount, []Remedy{RetryMessage, PutDeployment}
	case m.Blocked != nil && m.Blocked.Code == message.CodeDiverged:
		r.Kind, r.Remedies = Diverged, []Remedy{PutDeployment, RetryMessage}
	case m.Blocked != nil:
		r.Kind, r.Remedies = FunctionRefuses, []Remedy{PutDeployment, RetryMessage}
	case strings.HasPrefix(m.LastError, message.AnswerRefused):
		r.Kind, r.Remedies = AnswerRefused, []Remedy{RetryMessage}
	case m.callsFunction():
		r.Kind, r.Remedies = FunctionFails, []Remedy{RetryMessage}
	default:
		r.Kind, r.Remedies = TaskFails, []Remedy{RetryMessage}
	}
	return r
}

// underWay completes a reason about a message that a server or its function has.
func (r Reason) underWay(m Message) Reason {
	r = r.fill(m)
	r.Server, r.Host, r.Until, r.Error = m.Holder, m.Host, &m.DueAt, nil
	r.Since = cmp.Or(claimedAt(m.Lease), r.Since)
	return r
}

// claimedAt returns when a lease began, which is in its handle; nil if it is not.
func claimedAt(lease string) *time.Time {
	_, text, _ := strings.Cut(lease, "_")
	id, err := ulid.ParseStrict(text)
	if err != nil {
		return nil
	}
	at := id.Timestamp()
	return &at
}

// waitsForSlot completes a reason about a message that is due.
func (x *explainer) waitsForSlot(r Reason, m Message) Reason {
	r = r.fill(m)
	r.Error, r.Backlog = nil, x.Backlog
	if !m.DueAt.After(x.Now) {
		r.Since = &m.DueAt
	}
	return r
}

// addMessage adds the reason that follows from a message about the run itself.
func (x *explainer) addMessage(m Message) {
	if m.isPaused() {
		x.addPauseOf(hold.Subject{Kind: hold.Deployment, Name: m.DeploymentID})
		return
	}
	calls := m.Work == message.WorkNone || m.Work == message.WorkRun
	switch p := m.phase(x.Now, x.isScheduled(m)); {
	case p == queued && x.waitsNow(m.ID): // the step of an app of the Workflow SDK
		x.addLimits(m.ID, Reason{DeploymentID: m.DeploymentID})
	case p >= failed:
		x.add(Reason{}.trouble(m, p))
	case !calls: // the server's own tasks keep nobody waiting unless they fail
	case p == leased:
		x.add(Reason{Kind: Called}.underWay(m))
	case p == awaiting:
		x.add(Reason{}.awaits(m))
	case x.waits(""): // its limits are the reason
	case p == queued && m.Work == message.WorkNone:
		x.add(x.waitsForSlot(Reason{Kind: Client}, m))
	case p == queued:
		x.add(x.waitsForSlot(Reason{Kind: Queued}, m))
	case x.Run.Status == entities.RunPending:
		x.add(Reason{Kind: StartDelay, Since: &x.Run.CreatedAt, At: &m.DueAt, MessageID: m.ID, DeploymentID: m.DeploymentID})
	}
}

// isScheduled reports whether a message is the work of a run that is due when a wait is over. Such work may have had
// tickets for earlier invocations.
func (x *explainer) isScheduled(m Message) bool {
	if m.Work != message.WorkRun {
		return false
	}
	isTime := func(at *time.Time) bool { return at != nil && at.Sub(m.DueAt).Abs() < time.Second }
	if a := x.awaits(); a != nil {
		return isTime(a.At)
	}
	return len(x.Waits) > 0 && isTime(x.Waits[0].ResumeAt) // the first one that is over
}

// addWaits adds the reasons of the waits that are not over. If the function awaits a time that is none of a wait's, it
// is a reason of its own.
func (x *explainer) addWaits() {
	var at *time.Time
	if a := x.awaits(); a != nil {
		at = a.At
	}
	for _, w := range x.Waits {
		if !isAfter(w.ResumeAt, x.Now) || !x.isAwaited(*w.ResumeAt) {
			continue
		}
		x.add(Reason{Kind: Wait, WaitID: w.ID, Since: &w.CreatedAt, At: w.ResumeAt})
		if at != nil && w.ResumeAt.Equal(*at) {
			at = nil
		}
	}
	if isAfter(at, x.Now) {
		x.add(Reason{Kind: Wait, Since: &x.Run.UpdatedAt, At: at})
	}
}

// addHooks adds the reasons of the open hooks. Those that the Workflow SDK opened for itself are a reason only if there
// is no other.
func (x *explainer) addHooks() {
	for _, system := range []bool{false, true} {
		if system && len(x.reasons) > 0 {
			return
		}
		for _, h := range x.Hooks {
			if h.IsSystem == system {
				x.add(h.reason())
			}
		}
	}
}

func (h HookFact) reason() Reason {
	r := Reason{HookID: h.ID, Since: &h.CreatedAt}
	name, isInbox := inbox.Name(h.ID)
	switch {
	case isInbox:
		r.Kind, r.Name, r.Remedies = Inbox, name, []Remedy{SendMessage}
	case h.Signal != "":
		r.Kind, r.Name, r.Condition, r.Remedies = Signal, h.Signal, h.Condition, []Remedy{PostSignal, ResumeHook}
	case h.IsApproval:
		r.Kind, r.Votes, r.Remedies = Approval, h.Votes, []Remedy{ResumeHook}
	case h.IsWebhook:
		r.Kind, r.Remedies = Webhook, []Remedy{ResumeHook}
	default:
		r.Kind, r.Remedies = Hook, []Remedy{ResumeHook}
		if entities.IsSDKID(h.ID) {
			r.Name = h.Token
		}
	}
	return r
}
