// Package progress tells how far the steps of a flow's run are. It reads no more of the log than the events of the
// flow's own steps: what their bodies do is counted in the tables of steps, hooks and waits.
package progress

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/flow"
)

// Read returns how far the steps of a run are, in the order of its program. The caller must have checked that it may
// see the run. Read fails with [flow.ErrLog] if the run is not one of the program.
func Read(ctx context.Context, log *read.Log, run entities.Run, p *flow.Program) ([]flow.StepStage, error) {
	first := read.Position{RunID: run.ID, Seq: 1}
	created, err := log.EventsAt(ctx, []read.Position{first}, read.WithoutPayloads)
	if err != nil {
		return nil, err
	}
	if build := created[first].Data.Build; build != "" && build != flow.Build(p.Digest()) {
		return nil, fmt.Errorf("stages of %s: %w", run.ID, flow.ErrOtherBuild)
	}
	ids, approvals, bodies := p.Parts()
	stored, err := log.EventsOf(ctx, run.ID, ids, approvals)
	if err != nil {
		return nil, err
	}
	events := make([]flow.Event, len(stored))
	for i, e := range stored {
		events[i] = eventOf(e)
	}
	counts, err := log.CountBodies(ctx, run.ID, bodies)
	if err != nil {
		return nil, err
	}
	instances := map[string][]flow.Instances{}
	for _, c := range counts {
		instances[c.Of] = append(instances[c.Of], instancesOf(c))
	}
	stages, err := p.Stages(run.Status, events, instances)
	if err != nil {
		return nil, fmt.Errorf("stages of %s: %w", run.ID, err)
	}
	return stages, addTotals(ctx, log, run, p, stages)
}

// eventOf returns what a program reads of an event: of a failure, only its code.
func eventOf(e entities.Event) flow.Event {
	v := flow.Event{Seq: e.Seq, Type: e.Type, CorrelationID: e.CorrelationID, CreatedAt: e.CreatedAt}
	v.Data.Skipped = e.Data.Skipped
	switch {
	case e.Type == entities.EventStepFailed || e.Type == entities.EventStepRetrying:
		v.Payload = contract.Failure{Code: e.Data.ErrorCode}.Text()
	case e.Payload != nil:
		v.Payload = view.Of(&e).Payload
	}
	return v
}

func instancesOf(c read.BodyCount) flow.Instances {
	v := flow.Instances{
		Stage: flow.StageRunning, Code: c.ErrorCode, Undone: c.Undone, Iteration: c.Mark == "#", Count: c.Count,
	}
	switch entities.StepStatus(c.Status) {
	case entities.StepCompleted:
		v.Stage = flow.StageCompleted
	case entities.StepFailed:
		v.Stage = flow.StageFailed
	default: // it is open
	}
	return v
}

// addTotals adds how many items the maps have that go on. Those that have ended have begun as many as they ever will.
func addTotals(
	ctx context.Context, log *read.Log, run entities.Run, p *flow.Program, stages []flow.StepStage,
) error {
	for i, s := range p.Graph().Steps {
		items := stages[i].Items
		if items == nil || s.Kind != "map" || stages[i].Stage != flow.StageRunning {
			continue
		}
		total, err := totalOf(ctx, log, run, flow.ItemsID(s.ID))
		if err != nil {
			return err
		}
		items.Total = total
	}
	return nil
}

// totalOf returns how many items a step has recorded.
func totalOf(ctx context.Context, log *read.Log, run entities.Run, step string) (int, error) {
	state, err := log.Step(ctx, run.Project, run.ID, entities.StepID(step))
	if err != nil {
		return 0, err
	}
	at := read.Position{RunID: run.ID, Seq: state.ResultSeq}
	events, err := log.EventsAt(ctx, []read.Position{at}, read.WithPayloads)
	if err != nil {
		return 0, err
	}
	var recorded struct {
		Items []json.RawMessage `json:"items"`
	}
	event := events[at]
	err = json.Unmarshal(view.Of(&event).Payload, &recorded)
	return len(recorded.Items), err
}
