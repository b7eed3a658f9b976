package eventlog

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// TestNewWork: only work of a run or a step that the same event creates cannot be there already.
func TestNewWork(t *testing.T) {
	t.Parallel()
	now := time.Now()
	run := entities.Run{ID: "wrun_1", Driver: entities.DriverServer, Status: entities.RunRunning, Deadline: &now, EndSeq: 9}
	for typ, want := range map[entities.EventType]bool{
		entities.EventRunCreated: true, entities.EventStepCreated: true, entities.EventStepCompleted: false,
		entities.EventHookReceived: false, entities.EventWaitCreated: false, entities.EventCancelRequested: false,
		entities.EventRunCompleted: false,
	} {
		list := nextWork(&run, &entities.Event{Type: typ, Seq: 9, CorrelationID: "a", CreatedAt: now, Data: entities.EventData{
			Step: &entities.StepSpec{DeploymentID: "shop"}, ForcedAt: &now, ResumeAt: &now,
		}})
		if len(list) == 0 {
			t.Errorf("%s has no work", typ)
		}
		for _, m := range list {
			if m.Work == message.WorkNone || m.New != want {
				t.Errorf("%s: got work %q, new %v, want %v", typ, m.Work, m.New, want)
			}
		}
	}
}
