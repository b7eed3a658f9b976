package why

import (
	"slices"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// TestADeploymentIsAReasonAsLongAsItHasNoRoom: with room, what waits for it is called at once.
func TestADeploymentIsAReasonAsLongAsItHasNoRoom(t *testing.T) {
	t.Parallel()
	awaits := func(underWay, most int) func(*Message) {
		return func(m *Message) {
			m.AwaitsSince, m.UnderWay, m.MaxCalls, m.DueAt = at(-time.Minute), underWay, most, *at(100 * time.Hour)
			m.Ticketed, m.Registered = true, true
		}
	}
	for name, tt := range map[string]struct {
		facts Facts
		want  Kind
	}{
		"run":                    {run(with(message.WorkRun, fresh, awaits(5, 5))), DeploymentFull},
		"app of the SDK":         {run(with(message.WorkNone, fresh, awaits(5, 5))), DeploymentFull},
		"fewer slots":            {run(with(message.WorkRun, fresh, awaits(5, 3))), DeploymentFull},
		"room":                   {run(with(message.WorkRun, fresh, awaits(4, 5))), Queued},
		"no bound any more":      {run(with(message.WorkRun, fresh, awaits(9, 0))), Queued},
		"step":                   {run(step(Step{Spec: called()}, awaits(5, 5))), DeploymentFull},
		"after a failure":        {run(with(message.WorkRun, fails("busy"), awaits(5, 5))), DeploymentFull},
		"during its pause":       {run(with(message.WorkRun, fails("busy"))), FunctionFails},
		"a step that failed":     {run(step(Step{Spec: called(), Status: entities.StepPending}, fails("busy"), awaits(1, 1))), DeploymentFull},
		"parked in the meantime": {run(with(message.WorkRun, awaits(5, 5), func(m *Message) { m.ParkedAt = at(0) })), Parked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := kinds(Explain(tt.facts)); !slices.Equal(got, []Kind{tt.want}) {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}
