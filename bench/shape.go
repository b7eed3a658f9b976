package main

import (
	"fmt"
	"strconv"
	"strings"
)

// workflowPrefix is the prefix of workflow names, before the name of the shape.
const workflowPrefix = "workflow//./bench//"

// shape is the structure of a workflow: sequential or parallel steps, which do nothing.
type shape struct {
	steps int
	wide  bool
}

// shapeOf parses the name of a workflow: seq-3, wide-50.
func shapeOf(workflow string) (shape, error) {
	name := strings.TrimPrefix(workflow, workflowPrefix)
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
