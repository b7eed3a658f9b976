package flow

import (
	"encoding/json"
	"strconv"
	"time"
)

const (
	// MaxIterations limits the iterations of a loop, and defaultIterations is how many it has at most unless it says
	// otherwise.
	MaxIterations     = 10_000
	defaultIterations = 25
)

// delaySuffix follows the ID of an iteration in the ID of the wait after it.
const delaySuffix = "~delay"

// codeExhausted means that a loop has not come to its end within its iterations.
const codeExhausted = "flow.loop_exhausted"

// looping is what a loop does.
type looping struct {
	while, until *expression
	max          int
	delay        time.Duration
}

// readLoop reads "loop: {do, while, until, max, delay}".
func (r *reader) readLoop(o *object, u usage) *many {
	n := o.get(string(kindLoop))
	in := r.object(n)
	where := usage{step: u.step, place: placeLoop}
	l := &looping{
		while: in.expression("while", where), until: in.expression("until", where),
		max: in.count("max", defaultIterations, 1, MaxIterations), delay: in.duration("delay"),
	}
	if n.get("while") == nil && n.get("until") == nil {
		r.faults.add(n, CodeMissing, `want "while" or "until", with the condition that ends the loop`)
	}
	m := &many{looping: l, body: r.readBody(in.get("do"), n, u, kindLoop)}
	in.end()
	return m
}

// loopValue returns the variable iteration in the iteration after n others, or in the conditions between them.
func (g *group) loopValue(n int, between bool) json.RawMessage {
	index := n
	if !between {
		index++
	}
	text := append([]byte(`{"index":`), strconv.Itoa(index)...)
	text = append(append(text, `,"last":`...), orNull(g.result(n-1).output)...)
	return append(text, '}')
}

// driveLoop begins the next iteration, or ends the loop.
func (t *turn) driveLoop(i int) (moved bool) {
	g := t.groups[i]
	for g.open == 0 && !g.pause && g.why == nil && t.steps[i].status == statusOpen && !t.isFull() && !t.postpones() {
		t.iterate(i)
		moved = true
	}
	return moved
}

// iterate decides what follows an iteration.
func (t *turn) iterate(i int) {
	g := t.groups[i]
	begins, err := t.goesOn(i)
	switch {
	case err != nil:
		t.stopWith(i, progressOf(expressionFailed("loop", err)))
	case !begins:
		output := orNull(g.result(g.begun - 1).output)
		if err := t.spend(len(output)); err != nil {
			t.stopWith(i, progressOf(expressionFailed("loop", err)))
			return
		}
		t.completeStep(i, output)
	case g.begun == g.max:
		t.stopWith(i, progressOf(*failedAs(codeExhausted,
			"the loop has not ended after %d iterations, which is its max", g.max)))
	case g.begun > 0 && g.delay > 0 && g.paused < g.begun:
		g.pause, g.paused = true, g.begun
		id := t.Program.steps[i].id + "#" + strconv.Itoa(g.begun) + delaySuffix
		t.send(wait{Type: "wait", ID: id, For: duration(g.delay)})
	default:
		t.beginInstance(i)
	}
}

// goesOn reports whether another iteration follows. After a pause that is decided already.
func (t *turn) goesOn(i int) (bool, error) {
	g := t.groups[i]
	if g.begun > 0 && g.paused == g.begun {
		return true, nil
	}
	where := t.beside(i, g.begun).scope(i, placeLoop)
	if g.until != nil && g.begun > 0 {
		if ends, err := g.until.isTrue(where); err != nil || ends {
			return false, err
		}
	}
	if g.while == nil {
		return true, nil
	}
	return g.while.isTrue(where)
}

// stopWith ends a step with a body because of a failure of its own.
func (t *turn) stopWith(i int, why progress) {
	t.groups[i].why = &why
	t.stop(i, why)
}
