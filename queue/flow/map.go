package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/contract"
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
	list   *expression
	key    *expression
	window int
	// collect is set if the outputs of the items are the map's output.
	collect                        bool
	tolerateCount, toleratePercent int
}

// readMap reads "map: EXPRESSION", and what is done for each item.
func (r *reader) readMap(o *object, u usage) *many {
	m := &mapping{list: o.expression(string(kindMap), u)}
	if o.node.get(string(kindMap)).text == "" {
		r.faults.add(o.node.get(string(kindMap)), CodeMissing, "want an expression whose value is a list, such as input.rows")
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

// count returns a whole number between two others.
func (o *object) count(name string, otherwise, least, most int) int {
	n := o.get(name)
	if n == nil {
		return otherwise
	}
	value, err := strconv.Atoi(n.text)
	if n.kind != kindNumber || err != nil || value < least || value > most {
		o.r.faults.add(n, CodeType, "want a whole number from %d to %d", least, most)
		return otherwise
	}
	return value
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
func (t *turn) beginMap(i int) {
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
		return // nothing to record: the map ends in this turn
	}
	text = slices.Concat([]byte(`{"items":`), text)
	if recorded.Keys != nil {
		text = slices.Concat(text, []byte(`,"keys":`), mustJSON(recorded.Keys))
	}
	t.send(recordStep{Type: "recordStep", ID: s.id + itemsSuffix, Name: s.name + itemsSuffix, Output: append(text, '}')})
}

// itemsOf evaluates the list, of which it returns the text too, and the keys.
func (t *turn) itemsOf(i int) (recorded recordedItems, text json.RawMessage, f *contract.Failure) {
	m := t.Program.steps[i].action.many
	text, err := m.list.json(t.scope(i, placeStep))
	if err != nil {
		return recorded, nil, failedAs(codeExpression, "map: %v", err)
	}
	if json.Unmarshal(text, &recorded.Items) != nil || recorded.Items == nil {
		return recorded, nil, failedAs(codeNotAList, "%s is not a list; a map needs one", m.list.text)
	}
	if n := len(recorded.Items); n > MaxItems {
		return recorded, nil, failedAs(codeTooManyItems, "%s has %d items; the limit is %d: divide them between runs",
			m.list.text, n, MaxItems)
	}
	if m.key != nil {
		f = t.keysOf(i, &recorded)
	}
	return recorded, text, f
}

func failedAs(code, format string, args ...any) *contract.Failure {
	return &contract.Failure{Message: fmt.Sprintf(format, args...), Code: code}
}

// keyPattern is what keys may be: they are in the IDs of steps.
var keyPattern = regexp.MustCompile(`^[A-Za-z0-9_.:@+=-]{1,100}$`)

// keysOf evaluates the keys of the items.
func (t *turn) keysOf(i int, recorded *recordedItems) *contract.Failure {
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
func (t *turn) driveMap(i int) (moved bool) {
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

// postpones reports whether the values of this turn are so large that the next item had better begin in the next turn.
func (t *turn) postpones() bool {
	large := t.made > maxMade/2
	t.more = t.more || large
	return large
}

// completeMap ends a map whose items have ended.
func (t *turn) completeMap(i int) bool {
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
			t.more = true // the next turn has space for it
			return false
		}
		f := expressionFailed("map", errors.Join(err, errors.New(`or collect: none`)))
		g.why = &progress{status: statusFailed, error: f.Text(), code: f.Code}
		return t.stop(i, *g.why)
	}
	t.completeStep(i, output)
	return true
}

// spend takes some of the bytes that a turn may make, or fails with [errTooMuch].
func (t *turn) spend(bytes int) error { return t.scope(0, placeStep).spend(bytes) }

// completeStep ends a step with a body with an output.
func (t *turn) completeStep(i int, output json.RawMessage) {
	s := &t.Program.steps[i]
	t.send(recordStep{Type: "recordStep", ID: s.id, Name: s.name, Output: output})
	t.steps[i] = progress{status: statusCompleted, output: output, seq: t.next()}
}
