package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// MaxItems limits the items of a map.
	MaxItems = 10_000
	// defaultConcurrency is how many items of a map are open at once unless it says otherwise, and maxConcurrency how many
	// it may say.
	defaultConcurrency = 100
	maxConcurrency     = 1000
)

// itemsSuffix follows the ID of a map in the ID of the step that records the items.
const itemsSuffix = "~items"

// The codes of the failures of maps.
const (
	codeNotAList     = "flow.not_a_list"
	codeTooManyItems = "flow.too_many_items"
	codeKey          = "flow.key"
	codeDuplicateKey = "flow.duplicate_key"
)

// mapping is what a map does.
type mapping struct {
	list *expression
	// axes are lists of which the items are all combinations, if there is no list.
	axes   []axis
	key    *expression
	window int
	// collect is set if the outputs of the items are the map's output.
	collect                        bool
	tolerateCount, toleratePercent int
}

// axis is one of several lists of which a map has all combinations. The items have its values under its name.
type axis struct {
	name string
	list *expression
}

// maxAxes limits the lists of which a map has all combinations.
const maxAxes = 8

// readMap reads "map: EXPRESSION" or "map: {NAME: EXPRESSION}", and what is done for each item.
func (r *reader) readMap(o *object, u usage) *many {
	m := &mapping{}
	switch n := o.get(string(kindMap)); {
	case n.kind == kindObject && len(n.names) > 0 && len(n.names) <= maxAxes:
		in := r.object(n)
		for _, name := range n.names {
			m.axes = append(m.axes, axis{name, in.expression(name, u)})
		}
	case n.kind != kindText || n.text == "":
		r.faults.add(n, CodeMissing,
			"want an expression whose value is a list, such as input.rows, or an object of 1 to %d of them", maxAxes)
	default:
		m.list = o.expression(string(kindMap), u)
	}
	m.key = o.expression("key", usage{step: u.step, place: placeKey})
	m.window = o.count("concurrency", defaultConcurrency, 1, maxConcurrency)
	m.collect = o.choice("collect", "outputs", "none") == "outputs"
	if n := o.get("tolerate"); n != nil {
		if n.kind == kindNumber {
			n = &node{
				kind: kindObject, line: n.line, column: n.column, path: n.path, names: []string{"count"}, items: []*node{n},
			}
		}
		t := r.object(n)
		m.tolerateCount = t.count("count", 0, 0, MaxItems)
		m.toleratePercent = t.count("percent", 0, 0, 100)
		t.end()
	}
	return &many{mapping: m, body: r.readBody(o.get("do"), o.node, u, kindMap)}
}

// mapItems are the items of a map, as they were recorded.
type mapItems struct {
	list []json.RawMessage
	// keys are in the IDs of the items; nil for their places in the list. Places are those of the keys.
	keys   []string
	places map[string]int
	// failures is set once the map has ended.
	failures json.RawMessage
	bytes    int64 // that the list and the keys take, about
}

// recordedItems is the form in which they are in the log.
type recordedItems struct {
	Items []json.RawMessage `json:"items"`
	Keys  []string          `json:"keys,omitempty"`
}

// apply folds an event of the step that records the items.
func (m *mapItems) apply(e Event) error {
	if e.Type != entities.EventStepCompleted {
		return nil
	}
	var recorded recordedItems
	if err := json.Unmarshal(e.Payload, &recorded); err != nil {
		return fmt.Errorf("the items: %w", err)
	}
	m.set(recorded)
	m.bytes += int64(len(recorded.Keys)) * 100
	return nil
}

func (m *mapItems) set(recorded recordedItems) {
	m.list, m.keys, m.bytes = recorded.Items, recorded.Keys, 0
	for _, item := range m.list {
		m.bytes += int64(len(item)) + 24
	}
	if m.keys != nil {
		m.places = make(map[string]int, len(m.keys))
		for n, key := range m.keys {
			m.places[key] = n
		}
	}
}

// size returns how many bytes the items have.
func (m *mapItems) size() int64 { return m.bytes }

// key returns the key of an item.
func (m *mapItems) key(n int) string {
	if m.keys != nil {
		return m.keys[n]
	}
	return strconv.Itoa(n)
}

// place returns the number of the item with a key.
func (m *mapItems) place(key string) (n int, ok bool) {
	if m.keys != nil {
		n, ok = m.places[key]
		return n, ok
	}
	n, err := strconv.Atoi(key)
	return n, err == nil && n >= 0 && n < len(m.list)
}

// beginMap decides and records the items.
func (t *decision) beginMap(i int) {
	s := &t.Program.steps[i]
	g := t.groups[i]
	recorded, text, f := t.itemsOf(i)
	if f != nil {
		t.groups[i] = nil
		t.record(i, *f)
		return
	}
	g.items.set(recorded)
	if len(recorded.Items) == 0 {
		return // nothing to record: the map ends in this decision
	}
	text = slices.Concat([]byte(`{"items":`), text)
	if recorded.Keys != nil {
		text = slices.Concat(text, []byte(`,"keys":`), mustJSON(recorded.Keys))
	}
	t.send(recordStep{Type: "recordStep", ID: s.id + itemsSuffix, Name: s.name + itemsSuffix, Output: append(text, '}')})
}

// itemsOf evaluates the list, of which it returns the text too, and the keys.
func (t *decision) itemsOf(i int) (recorded recordedItems, text json.RawMessage, f *contract.Failure) {
	m := t.Program.steps[i].action.many
	if m.list != nil {
		recorded.Items, text, f = t.listOf(i, m.list)
	} else {
		recorded.Items, text, f = t.combine(i, m.axes)
	}
	if f == nil && m.key != nil {
		f = t.keysOf(i, &recorded)
	}
	return recorded, text, f
}

// listOf evaluates a list of items.
func (t *decision) listOf(i int, e *expression) (items []json.RawMessage, text json.RawMessage, f *contract.Failure) {
	text, err := e.json(t.scope(i, placeStep))
	if err != nil {
		return nil, nil, failedAs(codeExpression, "map: %v", err)
	}
	if json.Unmarshal(text, &items) != nil || items == nil {
		return nil, nil, failedAs(codeNotAList, "%s is not a list; a map needs one", e.text)
	}
	if n := len(items); n > MaxItems {
		return nil, nil, failedAs(codeTooManyItems, "%s has %d items; the limit is %d: divide them between runs",
			e.text, n, MaxItems)
	}
	return items, text, nil
}

// combine returns all combinations of the values in several lists: objects that have one of each. Those of the last
// list vary first.
func (t *decision) combine(i int, axes []axis) (items []json.RawMessage, text json.RawMessage, f *contract.Failure) {
	items = []json.RawMessage{nil}
	for _, a := range axes {
		values, _, f := t.listOf(i, a.list)
		if f != nil {
			return nil, nil, f
		}
		if n := len(items) * len(values); n > MaxItems {
			return nil, nil, failedAs(codeTooManyItems, "%d combinations, with those of %s; the limit is %d",
				n, a.name, MaxItems)
		}
		next := make([]json.RawMessage, 0, len(items)*len(values))
		for _, item := range items {
			for _, value := range values {
				if err := t.spend(len(item) + len(value)); err != nil {
					return nil, nil, failedAs(codeExpression, "map: %v", err)
				}
				next = append(next, slices.Concat(item, []byte{','}, appendText(nil, a.name), []byte{':'}, value))
			}
		}
		items = next
	}
	for n, item := range items {
		items[n] = slices.Concat([]byte{'{'}, item[1:], []byte{'}'})
	}
	return items, slices.Concat([]byte{'['}, bytes.Join(asBytes(items), []byte{','}), []byte{']'}), nil
}

// asBytes returns JSON values as what [bytes.Join] takes.
func asBytes(items []json.RawMessage) [][]byte {
	list := make([][]byte, len(items))
	for n, item := range items {
		list[n] = item
	}
	return list
}

func failedAs(code, format string, args ...any) *contract.Failure {
	return &contract.Failure{Message: fmt.Sprintf(format, args...), Code: code}
}

// keyPattern is what keys may be: they are in the IDs of steps.
var keyPattern = regexp.MustCompile(`^[A-Za-z0-9_.:@+=-]{1,100}$`)

// keysOf evaluates the keys of the items.
func (t *decision) keysOf(i int, recorded *recordedItems) *contract.Failure {
	m := t.Program.steps[i].action.many
	t.groups[i].items.list = recorded.Items
	most := min(100, maxCorrelation-len(t.Program.steps[i].id)-len("[]")-m.longest())
	seen := make(map[string]int, len(recorded.Items))
	for n := range recorded.Items {
		at := t.beside(i, n)
		text, err := m.key.json(at.scope(i, placeKey))
		key := plain(text)
		first, twice := seen[key]
		switch {
		case err != nil:
			return failedAs(codeExpression, "key: %v", err)
		case !keyPattern.MatchString(key) || len(key) > most:
			return failedAs(codeKey, "the key %.120q of item %d cannot be used: want 1 to %d letters, digits or _.:@+=-",
				key, n, most)
		case twice:
			return failedAs(codeDuplicateKey, "items %d and %d have the same key %q", first, n, key)
		}
		seen[key] = n
		recorded.Keys = append(recorded.Keys, key)
	}
	return nil
}

// driveMap begins as many items as may be open, and ends the map after the last one.
func (t *decision) driveMap(i int) (moved bool) {
	g := t.groups[i]
	for g.open < g.window && g.begun < len(g.items.list) {
		if t.isFull() || t.postpones() {
			return moved
		}
		t.beginInstance(i)
		moved = true
		if g.why != nil {
			return true
		}
	}
	if g.open > 0 || g.begun < len(g.items.list) {
		return moved
	}
	return t.completeMap(i) || moved
}

// postpones reports whether the values of this decision are so large that the next item had better begin in the next
// decision.
func (t *decision) postpones() bool {
	large := t.made > maxMade/2
	t.more = t.more || large
	return large
}

// completeMap ends a map whose items have ended.
func (t *decision) completeMap(i int) bool {
	g := t.groups[i]
	output := orNull(nil)
	if g.collect {
		output = []byte{'['}
		for n := range g.begun {
			if n > 0 {
				output = append(output, ',')
			}
			output = append(output, orNull(g.result(n).output)...)
			if len(output) > maxMade {
				break
			}
		}
		output = append(output, ']')
	}
	if err := t.spend(len(output)); err != nil {
		if t.made > 0 {
			t.more = true // the next decision has space for it
			return false
		}
		f := expressionFailed("map", errors.Join(err, errors.New(`or collect: none`)))
		g.why = &progress{status: statusFailed, error: f.Text(), code: f.Code}
		return t.stop(i, *g.why)
	}
	t.completeStep(i, output)
	return true
}

// spend takes some of the bytes that a decision may make, or fails with [errTooMuch].
func (t *decision) spend(bytes int) error { return t.scope(0, placeStep).spend(bytes) }

// completeStep ends a step with a body with an output.
func (t *decision) completeStep(i int, output json.RawMessage) {
	s := &t.Program.steps[i]
	t.send(recordStep{Type: "recordStep", ID: s.id, Name: s.name, Output: output})
	t.steps[i] = progress{status: statusCompleted, output: output, seq: t.next()}
}

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
		while: in.condition("while", where), until: in.condition("until", where),
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
func (t *decision) driveLoop(i int) (moved bool) {
	g := t.groups[i]
	for g.open == 0 && !g.pause && g.why == nil && t.steps[i].status == statusOpen && !t.isFull() && !t.postpones() {
		t.iterate(i)
		moved = true
	}
	return moved
}

// iterate decides what follows an iteration.
func (t *decision) iterate(i int) {
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
func (t *decision) goesOn(i int) (bool, error) {
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
func (t *decision) stopWith(i int, why progress) {
	t.groups[i].why = &why
	t.stop(i, why)
}
