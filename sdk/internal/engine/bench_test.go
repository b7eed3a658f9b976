package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
)

// stepLog returns the log of n steps: three events for each. One step follows the other, or all were started at once.
func stepLog(n int, atOnce bool) []Event {
	log := []Event{{Type: "run_created"}}
	var results []Event
	for i := range n {
		id := fmt.Sprint("step-", i)
		log = append(log,
			Event{Type: "step_created", ID: id, Data: Data{StepName: "step"}, Payload: json.RawMessage(`{"n":1}`)},
			Event{Type: "step_started", ID: id})
		result := Event{Type: "step_completed", ID: id, Payload: json.RawMessage(`{"n":2}`)}
		if atOnce {
			results = append(results, result)
		} else {
			log = append(log, result)
		}
	}
	log = append(log, results...)
	for i := range log {
		log[i].Seq = int64(i) + 1
	}
	return log
}

// replaySteps replays a log of n steps, as Step.Run and Map ask for them.
func replaySteps(ctx context.Context, log []Event, n int, atOnce bool) error {
	e := New(log, Config{})
	step := func(c *Coroutine, i int) {
		op := &Operation{
			Kind: KindStep, ID: fmt.Sprint("step-", i), Name: "step", Place: Caller(), Input: json.RawMessage(`{"n":1}`),
		}
		e.Ask(c, op)
		c.RestOn(op, op.Done)
	}
	_, err := runOnce(ctx, e, "test", func(c *Coroutine) {
		for i := range n {
			if atOnce {
				c.Go("go", "test", func(c *Coroutine) { step(c, i) })
			} else {
				step(c, i)
			}
		}
	})
	return err
}

// BenchmarkReplay replays logs of a thousand events and more. Their cost must be linear.
func BenchmarkReplay(b *testing.B) {
	for _, atOnce := range []bool{false, true} {
		for _, steps := range []int{333, 3333} {
			b.Run(fmt.Sprintf("atOnce=%t/events=%d", atOnce, 3*steps), func(b *testing.B) {
				log := stepLog(steps, atOnce)
				b.ReportAllocs()
				for b.Loop() {
					if err := replaySteps(b.Context(), log, steps, atOnce); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func TestReplayAllocatesLittle(t *testing.T) { //nolint:paralleltest // it counts the allocations of the process
	const steps = 333
	log := stepLog(steps, false)
	per := testing.AllocsPerRun(5, func() {
		if err := replaySteps(t.Context(), log, steps, false); err != nil {
			t.Error(err)
		}
	}) / float64(len(log))
	if per > 3 {
		t.Errorf("%.2f allocations for each event, want at most 3", per)
	}
}

// runOnce runs one invocation of a workflow, and ends its coroutines.
func runOnce(ctx context.Context, e *Engine, place string, main func(*Coroutine)) (Answer, error) {
	defer e.Close()
	e.Begin(place, main)
	a, _, err := e.Advance(ctx)
	return a, err
}
