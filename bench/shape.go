package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// workflowPrefix is the prefix of workflow names, before the name of the shape.
const workflowPrefix = "workflow//./bench//"

const (
	// signalShape is the shape of a run that receives a message in its inbox, and then sleeps for a nap.
	signalShape = "signal"
	signalInbox = "signals"
	nap         = 50 * time.Millisecond
)

// shape is the structure of a workflow: sequential or parallel steps, which do nothing, or a signal.
type shape struct {
	steps        int
	wide, signal bool
}

// shapeOf parses the name of a workflow: seq-3, wide-50, signal.
func shapeOf(workflow string) (shape, error) {
	name := strings.TrimPrefix(workflow, workflowPrefix)
	if name == signalShape {
		return shape{signal: true}, nil
	}
	kind, number, _ := strings.Cut(name, "-")
	n, err := strconv.Atoi(number)
	if err != nil || n <= 0 || kind != "seq" && kind != "wide" {
		return shape{}, fmt.Errorf("unknown workflow %q", workflow)
	}
	return shape{steps: n, wide: kind == "wide"}, nil
}

// decision is the result of a replay: what the workflow needs next.
type decision struct {
	create   []int // steps to create
	pending  []int // created steps without a result
	complete bool
}

// next replays the workflow with the events of the log.
func (s shape) next(created, completed func(step int) bool) decision {
	var d decision
	done := 0
	for n := range s.steps {
		switch {
		case completed(n):
			done++
			continue
		case created(n):
			d.pending = append(d.pending, n)
		default:
			d.create = append(d.create, n)
		}
		if !s.wide {
			break
		}
	}
	d.complete = done == s.steps
	return d
}
