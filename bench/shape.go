package main

import (
	"fmt"
	"strconv"
	"strings"
)

// workflowPrefix is before the name of a shape in the names of workflows.
const workflowPrefix = "workflow//./bench//"

// shape is what a workflow does: its steps one after the other, or all at once. Steps do nothing.
type shape struct {
	steps int
	wide  bool
	hook  bool // it waits for a payload instead
	sink  bool // it is no workflow: messages to it are acknowledged, and that is all
}

// shapeOf reads the name of a workflow: seq-3, wide-50, hook, sink.
func shapeOf(workflow string) (shape, error) {
	name := strings.TrimPrefix(workflow, workflowPrefix)
	kind, number, _ := strings.Cut(name, "-")
	switch n, err := strconv.Atoi(number); {
	case name == "hook":
		return shape{hook: true}, nil
	case name == "sink":
		return shape{sink: true}, nil
	case err == nil && n > 0 && (kind == "seq" || kind == "wide"):
		return shape{steps: n, wide: kind == "wide"}, nil
	}
	return shape{}, fmt.Errorf("there is no workflow %q", workflow)
}

// turn is what a workflow wants next.
type turn struct {
	create   []int // steps that it has not asked for yet
	pending  []int // steps that it has asked for and waits for
	complete bool
}

// next replays the workflow over the log.
func (s shape) next(created, completed func(step int) bool) turn {
	var t turn
	done := 0
	for n := range s.steps {
		switch {
		case completed(n):
			done++
			continue
		case created(n):
			t.pending = append(t.pending, n)
		default:
			t.create = append(t.create, n)
		}
		if !s.wide {
			break
		}
	}
	t.complete = done == s.steps
	return t
}
