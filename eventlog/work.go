package eventlog

import (
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// nextWork returns the messages to enqueue after an event, if the server continues the run: after every event that lets
// the run make progress, the run is invoked. Run is the run after the event.
func nextWork(run *entities.Run, e *entities.Event) []message.Message {
	if run.Driver != entities.DriverServer {
		return nil
	}
	switch e.Type {
	case entities.EventRunCreated:
		return firstWork(run, e)
	case entities.EventStepCreated:
		return stepWork(run, e)
	case entities.EventStepCompleted, entities.EventStepFailed, entities.EventHookReceived, entities.EventHookConflict:
		// The function knows what it has cancelled. The first invocation of a pending run is still to come, perhaps at a
		// later time that its start chose. It sees the messages that were sent to the run's inboxes before.
		if run.Status.Ended() || e.Data.Cancelled || run.Status == entities.RunPending {
			return nil
		}
		return []message.Message{invocation(run, 0)}
	case entities.EventCancelRequested:
		end := work(run, message.WorkCancel, "")
		end.Delay = e.Data.ForcedAt.Sub(e.CreatedAt)
		now := invocation(run, 0)
		now.Urgent = true // a backoff may be longer than the grace
		return []message.Message{now, end}
	case entities.EventWaitCreated:
		return []message.Message{invocation(run, max(0, e.Data.ResumeAt.Sub(e.CreatedAt)))}
	case entities.EventHookCreated:
		if e.Data.Signal != "" {
			return []message.Message{work(run, message.WorkLookBack, e.CorrelationID)}
		}
		return nil
	case entities.EventRunCompleted, entities.EventRunFailed, entities.EventRunCancelled:
		return lastWork(run, e)
	default:
		return nil
	}
}

// work returns a message about the run, due at once.
func work(run *entities.Run, w message.Work, subject string) message.Message {
	return message.Message{
		Project: run.Project, DeploymentID: run.DeploymentID, RunID: run.ID, Topic: run.WorkflowName,
		Work: w, Subject: subject,
	}
}

// invocation returns the message that has the run invoked after the delay.
func invocation(run *entities.Run, delay time.Duration) message.Message {
	m := work(run, message.WorkRun, "")
	m.Delay = delay
	return m
}

// firstWork returns the messages of a new run: its first invocation, and its deadline if it has one. A child that its
// parent waits for does not count as one that begins: behind a backlog of new runs, its parent would never end.
func firstWork(run *entities.Run, e *entities.Event) []message.Message {
	first := invocation(run, 0)
	first.New = true
	first.BeginsRun = run.ParentID == "" || run.Detached
	if e.Data.StartAt != nil {
		first.Delay = max(0, e.Data.StartAt.Sub(e.CreatedAt))
	}
	if run.Deadline == nil {
		return []message.Message{first}
	}
	deadline := work(run, message.WorkDeadline, "")
	deadline.New = true
	deadline.Delay = max(0, run.Deadline.Sub(e.CreatedAt))
	return []message.Message{first, deadline}
}

// stepWork returns the message that has a step executed. A step that its function executes itself, or that is a child
// run, has none.
func stepWork(run *entities.Run, e *entities.Event) []message.Message {
	if e.Data.Step == nil || e.Data.Step.DeploymentID == "" {
		return nil
	}
	m := work(run, message.WorkStep, e.CorrelationID)
	m.New = true
	m.DeploymentID, m.Topic = e.Data.Step.DeploymentID, e.Data.StepName
	m.Lasts = e.Data.Step.AttemptTimeout(e.CreatedAt)
	m.Limits = message.LimitsOf(*e.Data.Step, e.Data.Step.Limits)
	m.Gated = m.Limits != nil
	return []message.Message{m}
}

// lastWork returns the messages of a run that has just ended: to cancel its other work and its children, and to
// report the end to its parent. The parent of a run that continues as another one waits for that.
func lastWork(run *entities.Run, e *entities.Event) []message.Message {
	if run.EndSeq != e.Seq {
		return nil // the run had already ended
	}
	end := work(run, message.WorkEnd, "")
	end.Continues = run.ContinuedAs != ""
	list := []message.Message{end}
	if run.ParentStep != "" && run.ContinuedAs == "" {
		report := work(run, message.WorkReport, string(run.ParentStep))
		report.RunID = run.ParentID
		list = append(list, report)
	}
	return list
}

// triggered returns the messages for the triggers that wait for the event: the one that has ended the run, unless it
// continues as another one.
func (f facts) triggered(run *entities.Run, e *entities.Event) []message.Message {
	var list []message.Message
	if run.ContinuedAs != "" {
		return nil
	}
	for _, t := range f.onEnd {
		if run.EndSeq == e.Seq && slices.Contains(t.Statuses, run.Status) {
			list = append(list, message.Message{
				Project: run.Project, Topic: t.Name, Work: message.WorkTrigger, Subject: trigger.Subject(t.ID, string(run.ID)),
			})
		}
	}
	return list
}
