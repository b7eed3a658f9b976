package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
)

// frame says which instance of a body a state is of. It is zero for that of the run.
type frame struct {
	up     *state
	of     int // the step that has the body
	n      int
	single bool
	prefix string // of the IDs of its steps
}

// group is how far the instances of a body are. A decision has a copy, whose changes lie over the group.
type group struct {
	*many

	begun, open, failed int
	// ended has what the instances have come to that have ended.
	ended []progress
	// frames are the instances that are open, or have something that may have to be undone.
	frames map[int]*state
	// why is what ends the step: the first failure that it does not tolerate.
	why *progress
	// touched are the instances that the last events were about.
	touched map[int]bool
	// undone is the first instance of a map that may have to be undone. Undid is set once one has been undone, and faulty
	// once one could not be.
	undone        int
	undid, faulty bool

	items mapItems
	pause bool // whether a loop waits for its next iteration
	// paused is the number of iterations after which the last pause began.
	paused int
	plan   *state // the steps that a planner has returned

	// A copy has what a decision decides: ends and instances, and whether it has gone through the touched instances and
	// has a plan of its own.
	over            map[int]progress
	own             map[int]*state
	driven, entered bool
}

// touched is what the last events were about: the groups with instances that were touched, or all that is open after a
// decision that was too long.
type touched struct {
	groups []*group
	all    bool
}

func (n *touched) forget() {
	for _, g := range n.groups {
		clear(g.touched)
	}
	n.groups, n.all = n.groups[:0], false
}

// touch notes that an event was about an instance.
func (s *state) touch(g *group, n int) {
	if len(g.touched) == 0 {
		s.touched.groups = append(s.touched.groups, g)
	}
	if g.touched == nil {
		g.touched = map[int]bool{}
	}
	g.touched[n] = true
}

// clone returns a copy for a decision.
func (s *state) clone(up *state) *state {
	c := *s
	c.steps, c.undos = slices.Clone(s.steps), slices.Clone(s.undos)
	c.hooks, c.limits = slices.Clone(s.hooks), slices.Clone(s.limits)
	c.groups = slices.Clone(s.groups)
	if up != nil {
		c.up = up
	}
	for i, g := range c.groups {
		if g != nil {
			one := *g
			one.over, one.own = map[int]progress{}, map[int]*state{}
			c.groups[i] = &one
		}
	}
	return &c
}

// result returns what an instance has come to.
func (g *group) result(n int) progress {
	if p, ok := g.over[n]; ok {
		return p
	}
	if n < 0 || n >= len(g.ended) {
		return progress{}
	}
	return g.ended[n]
}

// frame returns an instance that is kept, or nil.
func (g *group) frame(n int) *state {
	if f, ok := g.own[n]; ok {
		return f
	}
	return g.frames[n]
}

// instance returns the state of a new instance.
func (s *state) instance(i, n int) *state {
	g := s.groups[i]
	prefix := s.Program.steps[i].id
	if g.mapping != nil {
		prefix += "[" + g.items.key(n) + "]"
	} else {
		prefix += "#" + strconv.Itoa(n+1)
	}
	f := frame{up: s, of: i, n: n, single: g.single, prefix: prefix}
	return newState(g.at(prefix), s.history, f)
}

// group returns the instances of a step's body, and opens the step if it was not.
func (s *state) group(i int) *group {
	if s.groups[i] == nil {
		s.groups[i] = &group{many: s.Program.steps[i].action.many, frames: map[int]*state{}}
		if s.steps[i].status == statusNone {
			s.steps[i].status = statusOpen
		}
	}
	return s.groups[i]
}

// inBody reports whether an ID is about what lies in the body of a step, and returns the rest of the ID.
func (s *state) inBody(id string) (i int, rest string, ok bool) {
	at := strings.IndexAny(id, "[#.~")
	if at <= 0 || s.single {
		return 0, "", false
	}
	i, ok = s.byID[id[:at]]
	if !ok || s.Program.steps[i].action.many == nil {
		return 0, "", false
	}
	return i, id[at:], true
}

// applyInBody folds an event about an instance, or about what a step has beside its instances.
func (s *state) applyInBody(i int, rest string, e Event) error {
	g := s.group(i)
	switch {
	case s.steps[i].status.ended() && g.plan == nil && len(g.frames) == 0:
		return nil // nothing of it is needed, and its items may be released
	case rest == itemsSuffix:
		before := g.items.size()
		err := g.items.apply(e)
		s.bytes += g.items.size() - before
		return err
	case rest[0] == '.':
		return s.applyPlanned(g, i, rest[1:], e)
	}
	n, rest, err := g.number(rest)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", e.CorrelationID, err)
	case rest == delaySuffix:
		g.pause, g.paused = e.Type == entities.EventWaitCreated, n+1
		return nil
	}
	s.touch(g, n)
	f := g.frames[n]
	if f == nil && n < g.begun {
		return nil // it has ended
	}
	if f == nil && n > g.begun {
		return fmt.Errorf("%s begins before others: %w", e.CorrelationID, ErrLog)
	}
	if f == nil {
		f = s.instance(i, n)
		g.frames[n] = f
		g.begun, g.open = g.begun+1, g.open+1
		g.ended = append(g.ended, progress{})
		s.bytes += frameBytes + endedBytes
	}
	if err := g.applyTo(f, n, rest, e); err != nil {
		return err
	}
	g.settle(f, n)
	if g.frames[n] == nil {
		s.bytes -= frameBytes
	}
	return nil
}

// number returns the number of the instance that follows in an ID, and what follows that.
func (g *group) number(text string) (n int, rest string, err error) {
	if text[0] == '[' && g.mapping != nil {
		key, rest, ok := strings.Cut(text[1:], "]")
		if n, known := g.items.place(key); ok && known {
			return n, rest, nil
		}
		return 0, "", fmt.Errorf("there is no item %q: %w", key, ErrLog)
	}
	end := len(text)
	if at := strings.IndexAny(text[1:], ".~"); at >= 0 {
		end = at + 1
	}
	n, err = strconv.Atoi(text[1:end])
	if err != nil || n < 1 || n > g.begun+1 {
		return 0, "", ErrLog
	}
	return n - 1, text[end:], nil
}

// applyTo folds an event into an instance.
func (g *group) applyTo(f *state, n int, rest string, e Event) error {
	switch {
	case g.single:
		return f.applyAt(rest, e)
	case strings.HasPrefix(rest, "."):
		return f.applyAt(rest[1:], e)
	}
	if g.ended[n].status.ended() {
		return nil
	}
	switch e.Type { // the end of the instance is recorded
	case entities.EventStepCompleted:
		f.bytes += int64(len(e.Payload))
		g.end(n, progress{status: statusCompleted, output: orNull(e.Payload), seq: e.Seq})
	case entities.EventStepFailed:
		failure, err := failureOf(e)
		if err != nil {
			return err
		}
		f.bytes += int64(len(e.Payload))
		g.end(n, progress{status: statusFailed, error: e.Payload, code: failure.Code, seq: e.Seq})
	default:
	}
	return nil
}

// settle notes that an instance has ended.
func (g *group) settle(f *state, n int) {
	if g.single && !g.ended[n].status.ended() {
		if p := f.outcome(0); p.status.ended() && (p.status != statusFailed || f.isUndone()) {
			g.end(n, p)
		}
	}
	if !g.ended[n].status.ended() {
		return
	}
	g.forget(f, n)
}

// forget forgets an instance that has ended, unless it may have to be undone.
func (g *group) forget(f *state, n int) {
	if g.ended[n].status != statusCompleted || f.isUndone() {
		g.noteUndo(f)
		delete(g.frames, n)
	}
	for g.mapping != nil && g.open == 0 && g.undone < g.begun && g.frames[g.inUndo(g.undone)] == nil {
		g.undone++
	}
}

// end notes the end of an instance.
func (g *group) end(n int, p progress) {
	g.open--
	if g.mapping != nil && !g.collect {
		p.output = nil
	}
	if p.status == statusFailed {
		if g.failed++; g.why == nil && g.failed > g.tolerated() {
			g.why = &p
		}
	}
	if g.over != nil {
		g.over[n] = p
		return
	}
	g.ended[n] = p
	if g.looping != nil && n > 0 {
		g.ended[n-1].output = nil // only the last one is read
	}
}

// tolerated is how many instances may fail.
func (g *group) tolerated() int {
	if g.mapping == nil {
		return 0
	}
	return max(g.tolerateCount, len(g.items.list)*g.toleratePercent/100)
}

// release forgets what is not needed of the instances once the step has ended. It returns how many bytes are free.
func (g *group) release() (bytes int64) {
	if g.items.failures == nil {
		g.items.failures = g.failures()
		bytes -= int64(len(g.items.failures))
	}
	for n := range g.ended {
		bytes += int64(len(g.ended[n].output) + len(g.ended[n].error))
		g.ended[n].output, g.ended[n].error = nil, nil
	}
	if len(g.frames) == 0 {
		bytes += g.items.size() + int64(len(g.ended))*endedBytes
		g.ended, g.items.list, g.items.keys, g.items.places, g.items.bytes = nil, nil, nil, nil, 0
	}
	return bytes
}

// The memory of an instance while it is kept, and once only its end is, in bytes, about.
const (
	frameBytes = 2048
	endedBytes = 160
)

// isKept reports whether an instance may have to be undone.
func (g *group) isKept() bool {
	return g.undid || len(g.frames) > 0 || g.plan != nil && !g.plan.isUnneeded()
}

// inUndo returns the number of the instance that is undone as the k-th: the last one first in a loop.
func (g *group) inUndo(k int) int {
	if g.mapping != nil {
		return k
	}
	return g.begun - 1 - k
}

// isUndone reports whether nothing of an instance has to be undone any more.
func (s *state) isUndone() bool {
	for i := range s.Program.steps {
		if !s.needsUndo(i) || s.undos[i].status.ended() {
			continue
		}
		if g := s.groups[i]; g == nil || len(g.frames) > 0 || g.plan != nil && !g.plan.isUndone() {
			return false
		}
	}
	return true
}

// isUnneeded reports whether nothing of an instance had to be undone at all.
func (s *state) isUnneeded() bool {
	for i := range s.Program.steps {
		if s.needsUndo(i) {
			return false
		}
	}
	return true
}

// noteUndo notes what has become of undoing an instance.
func (g *group) noteUndo(f *state) {
	for i := range f.Program.steps {
		switch f.undoOf(i) {
		case statusCompleted:
			g.undid = true
		case statusFailed:
			g.undid, g.faulty = true, true
		default: // there was nothing to undo
		}
	}
}

// undoOf returns what has become of undoing a step. One with a body may have undone what is in it before it failed.
func (s *state) undoOf(i int) status {
	g := s.groups[i]
	if g == nil {
		return s.undos[i].status
	}
	if g.plan != nil {
		one := *g
		one.noteUndo(g.plan)
		g = &one
	}
	switch {
	case g.faulty:
		return statusFailed
	case g.undid:
		return statusCompleted
	default:
		return s.undos[i].status
	}
}

// lookup returns the innermost step with a name that an expression can read, and the state that has it.
func (s *state) lookup(id string) (*state, int) {
	for ; s.up != nil; s = s.up {
		if i, ok := s.byID[id]; ok {
			return s, i
		}
	}
	return s, s.byID[id]
}

// within returns the innermost step of a kind in whose body the state is, and its instance; nil if there is none.
func (s *state) within(is func(*group) bool) (*group, *state) {
	for ; s.up != nil; s = s.up {
		if g := s.up.groups[s.of]; is(g) {
			return g, s
		}
	}
	return nil, nil
}

func isMap(g *group) bool  { return g.mapping != nil }
func isLoop(g *group) bool { return g.looping != nil }

// bodyValue returns a variable of bodies.
func (s *state) bodyValue(name string) json.RawMessage {
	if name == varLoop {
		g, in := s.within(isLoop)
		return g.loopValue(in.n, in.isBeside())
	}
	g, in := s.within(isMap)
	if name == varIndex {
		return strconv.AppendInt(nil, int64(in.n), 10)
	}
	return g.items.list[in.n]
}

// given returns what a step without an input gets: the item in a map, else the run's input.
func (s *state) given() json.RawMessage {
	if g, in := s.within(isMap); g != nil {
		return g.items.list[in.n]
	}
	return s.input
}

// failures returns the instances that have failed, as a list in their order.
func (g *group) failures() json.RawMessage {
	if g.items.failures != nil {
		return g.items.failures
	}
	type failure struct {
		Index int             `json:"index"`
		Key   string          `json:"key"`
		Error json.RawMessage `json:"error"`
	}
	list := []failure{}
	if g.mapping != nil && g.failed > 0 {
		for n := range g.begun {
			if p := g.result(n); p.status == statusFailed {
				list = append(list, failure{n, g.items.key(n), orNull(p.error)})
			}
		}
	}
	return mustJSON(list)
}

// openInstances returns the instances that are open, in their order.
func (g *group) openInstances() (list []int) {
	for n := range g.frames {
		if !g.result(n).status.ended() {
			list = append(list, n)
		}
	}
	for n := range g.own {
		if _, known := g.frames[n]; !known && !g.result(n).status.ended() {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}
