package goal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
)

const (
	// goalID and haveID stand for the goals, and for what there is, among the steps of a plan.
	goalID = "goal"
	haveID = "have"
	// maxLooks limits how often planning looks at what a step takes. All looks take well below a second.
	maxLooks = 5_000_000
)

// ErrTooLarge refuses what takes too long to plan.
var ErrTooLarge = errors.New("the plan is too large")

// Budget limits what planning costs. A plan and those of its children share one.
type Budget struct{ looks int }

// NewBudget returns what a request may cost.
func NewBudget() *Budget { return &Budget{maxLooks} }

// Ask says what a plan is for.
type Ask struct {
	// Want are attributes, or steps that are to complete.
	Want []string
	// Have are the attributes that there are, and HaveAll those of which there are lists of values.
	Have, HaveAll []string
}

// Plan is the steps of a catalog that lead from what there is to what is wanted, and how they hang together.
type Plan struct {
	*Catalog
	Ask

	have map[string]bool // whether there is a list of values
	all  []step          // those of the catalog, and the goals as one that takes them
	must []int           // the steps that are wanted themselves
	// steps are those of the plan in their order, sources from where they take what, and wave how many come before.
	steps   []int
	sources sources
	wave    map[int]int
	// spare are the steps that begin only if others have failed.
	spare map[int]bool
	// deployments execute the plans of children.
	deployments map[int]string
	// usable says which steps can be executed at all.
	usable []int
	*Budget
}

// port is an attribute that a step takes.
type port struct{ step, take int }

// sources are the steps from which ports have their attributes, the first choice first.
type sources map[port][]int

// Plan plans. It fails with [entities.ErrInvalid] on names that the catalog does not have, and with [ErrTooLarge] when
// the budget is spent. If a goal cannot be reached, the plan has no steps, and [Preview] says what is missing.
func (c *Catalog) Plan(a Ask, b *Budget) (*Plan, error) {
	if err := c.checkAsk(a); err != nil {
		return nil, err
	}
	p := c.newPlan(a, b)
	everything := make([]bool, len(p.all))
	for i := range everything {
		everything[i] = true
	}
	p.usable = p.reach(everything, nil)
	if p.usable[p.goal()] >= 0 {
		p.choose(everything)
		p.addSpares()
	}
	if p.looks < 0 {
		return nil, fmt.Errorf("%w: the catalog %s offers too many ways to %q: want less, or divide the catalog",
			ErrTooLarge, c.Name, a.Want)
	}
	p.sort()
	return p, nil
}

// IsReached reports whether the plan leads to its goals.
func (p *Plan) IsReached() bool { return p.usable[p.goal()] >= 0 }

// alone returns the plan for a single step, which has what it takes, and no spares.
func (c *Catalog) alone(i int, b *Budget) *Plan {
	a := Ask{Want: []string{c.steps[i].id}}
	for _, t := range c.steps[i].takes {
		if !t.fixed && t.collect != collectNone {
			a.Have = append(a.Have, t.name)
		}
	}
	for _, g := range c.steps[i].gives {
		a.Want = append(a.Want, g.name)
	}
	p := c.newPlan(a, b)
	only := make([]bool, len(p.all))
	only[i], only[p.goal()] = true, true
	p.choose(only)
	return p
}

func (c *Catalog) newPlan(a Ask, b *Budget) *Plan {
	p := &Plan{
		Catalog: c, Ask: a, have: map[string]bool{}, all: slices.Clone(c.steps), sources: sources{}, wave: map[int]int{},
		spare: map[int]bool{}, deployments: map[int]string{}, Budget: b,
	}
	for _, name := range a.Have {
		p.have[name] = false
	}
	for _, name := range a.HaveAll {
		p.have[name] = true
	}
	goals := step{id: goalID, node: c.root}
	for _, name := range a.Want {
		if i, ok := c.byID[name]; ok {
			p.must = append(p.must, i)
		} else {
			goals.takes = append(goals.takes, take{name: name, at: c.root, collect: collectFirst})
		}
	}
	p.all = append(p.all, goals)
	return p
}

func (c *Catalog) checkAsk(a Ask) error {
	known := map[string]bool{}
	for name := range c.attributes {
		known[name] = true
	}
	for name := range c.providers {
		known[name] = true
	}
	for _, s := range c.steps {
		for _, t := range s.takes {
			known[t.name] = true
		}
	}
	there := map[string]bool{}
	for _, name := range slices.Concat(a.Have, a.HaveAll) {
		switch {
		case !known[name]:
			return entities.Invalid("have: the catalog %s has no attribute %q%s", c.Name, name, flow.Nearest(name, known))
		case there[name]:
			return entities.Invalid("have: %s is there twice", name)
		}
		there[name] = true
	}
	for id := range c.byID {
		known[id] = true
	}
	if n := len(a.Want); n == 0 || n > MaxWant {
		return entities.Invalid("want: %d goals; want 1 to %d", n, MaxWant)
	}
	for i, name := range a.Want {
		switch {
		case !known[name]:
			return entities.Invalid("want: the catalog %s has no attribute or step %q%s", c.Name, name,
				flow.Nearest(name, known))
		case slices.Contains(a.Want[:i], name):
			return entities.Invalid("want: %s is there twice", name)
		}
	}
	return nil
}

// goal is the place of the goals among all steps.
func (p *Plan) goal() int { return len(p.all) - 1 }

// takesHave reports whether a port has all it needs from what there is.
func (p *Plan) takesHave(t *take) bool {
	_, given := p.have[t.name]
	return given && t.collect == collectFirst
}

// reach returns after how many others each step among those can be executed, or -1: the least fixpoint. Of a port that
// has sources, all of them are needed, otherwise any.
func (p *Plan) reach(among []bool, required sources) (rank []int) {
	rank = make([]int, len(p.all))
	for i := range rank {
		rank[i] = -1
	}
	for round := 0; ; round++ {
		var reached []int
		for i := range p.all {
			if among[i] && rank[i] < 0 && p.isSatisfied(i, among, rank, required) {
				reached = append(reached, i)
			}
		}
		if len(reached) == 0 {
			return rank
		}
		for _, i := range reached {
			rank[i] = round
		}
	}
}

func (p *Plan) isSatisfied(i int, among []bool, rank []int, required sources) bool {
	isReached := func(q int) bool { return among[q] && rank[q] >= 0 }
	lacks := func(q int) bool { return !isReached(q) }
	if i == p.goal() && slices.ContainsFunc(p.must, lacks) {
		return false
	}
	for k := range p.all[i].takes {
		t := &p.all[i].takes[k]
		_, given := p.have[t.name]
		needed := required[port{i, k}]
		p.looks -= 1 + len(needed)
		switch {
		case t.collect == collectNone && given || slices.ContainsFunc(needed, lacks):
			return false
		case len(needed) > 0 || given || !t.isNeeded():
		case !slices.ContainsFunc(p.providers[t.name], isReached):
			return false
		}
	}
	return true
}

// holds reports whether the goals are reached with those steps.
func (p *Plan) holds(among []bool, required sources) bool {
	return p.looks >= 0 && p.reach(among, required)[p.goal()] >= 0
}

// choose makes the plan: it goes back from the goals, and then removes each step without which they are still reached.
func (p *Plan) choose(among []bool) {
	order, chosen := p.back(among, sources{})
	for removed := true; removed; {
		removed = false
		for _, i := range slices.Backward(order) {
			rest := make([]bool, len(p.all))
			for _, other := range order {
				rest[other] = other != i
			}
			if fixed := p.unchosen(chosen); i != p.goal() && p.holds(rest, fixed) {
				order, chosen = p.back(rest, fixed)
				removed = true
				break
			}
		}
	}
	p.sources = chosen
	planned := make([]bool, len(p.all))
	for _, i := range order {
		planned[i] = true
	}
	maps.DeleteFunc(p.sources, func(at port, _ []int) bool { return !planned[at.step] })
	rank := p.reach(planned, chosen)
	for _, i := range order {
		if i != p.goal() {
			p.steps, p.wave[i] = append(p.steps, i), rank[i]
		}
	}
}

// sort puts the steps of the plan in their order.
func (p *Plan) sort() {
	slices.SortFunc(p.steps, func(a, b int) int { return cmp.Or(cmp.Compare(p.wave[a], p.wave[b]), cmp.Compare(a, b)) })
}

// unchosen returns the sources that are no choice between several: a port takes all of them, or could do without.
func (p *Plan) unchosen(from sources) sources {
	kept := maps.Clone(from)
	maps.DeleteFunc(kept, func(at port, _ []int) bool {
		t := &p.all[at.step].takes[at.take]
		return t.isChoice() && !t.optional
	})
	return kept
}

// back goes from the goals to the steps that they need, nearest first, and finds the sources of each port.
func (p *Plan) back(among []bool, fixed sources) (order []int, chosen sources) {
	chosen = maps.Clone(fixed)
	order = []int{p.goal()}
	for n := 0; n < len(order); n++ {
		i := order[n]
		var next []int
		if i == p.goal() {
			next = p.must
		}
		for k := range p.all[i].takes {
			at := port{i, k}
			if _, known := fixed[at]; !known {
				p.chooseAt(at, among, chosen)
			}
			next = slices.Concat(next, chosen[at])
		}
		for _, q := range next {
			if !slices.Contains(order, q) {
				order = append(order, q)
			}
		}
	}
	return order, chosen
}

// chooseAt finds the sources of a port: the first provider with which the goals are still reached, or all of them.
func (p *Plan) chooseAt(at port, among []bool, chosen sources) {
	t := &p.all[at.step].takes[at.take]
	if t.fixed || p.takesHave(t) {
		return
	}
	for _, q := range p.providers[t.name] {
		before := chosen[at]
		if q == at.step || !among[q] {
			continue
		}
		if chosen[at] = append(slices.Clone(before), q); !p.holds(among, chosen) {
			chosen[at] = before
			continue
		}
		if t.isChoice() {
			return
		}
	}
}

// addSpares adds the providers that a port turns to if the chosen one has failed or given nothing: those that are in
// the plan in any case, and those that need nothing which the plan does not have.
func (p *Plan) addSpares() {
	for _, i := range append([]int{p.goal()}, p.steps...) {
		for k := range p.all[i].takes {
			at := port{i, k}
			t := &p.all[i].takes[k]
			if !t.isChoice() || len(p.sources[at]) == 0 {
				continue
			}
			for _, q := range p.providers[t.name] {
				if q == i || slices.Contains(p.sources[at], q) || p.comesBefore(i, q) {
					continue
				}
				waits := func(before int) bool { return p.comesBefore(q, before) }
				if p.spare[q] && slices.ContainsFunc(p.sources[at], waits) {
					continue // it would begin after those that wait for it
				}
				if slices.Contains(p.steps, q) || p.addSpare(q, i) {
					p.sources[at] = append(p.sources[at], q)
				}
			}
		}
	}
}

// comesBefore reports whether a step waits for another one, directly or not. Once the budget is spent, all do.
func (p *Plan) comesBefore(first, then int) bool {
	seen := map[int]bool{}
	var visit func(int) bool
	visit = func(i int) bool {
		p.looks--
		if i == first || p.looks < 0 {
			return true
		}
		if seen[i] {
			return false
		}
		seen[i] = true
		p.looks -= len(p.all[i].takes)
		for k := range p.all[i].takes {
			if slices.ContainsFunc(p.sources[port{i, k}], visit) {
				return true
			}
		}
		return p.spare[i] && slices.ContainsFunc(p.spareStarts(i), func(t spareStart) bool {
			return slices.ContainsFunc(t.after, visit)
		})
	}
	return visit(then)
}

// spareStart is when a spare step begins for a port: after the steps that would have given the same.
type spareStart struct {
	port

	after []int
}

// turns returns when a spare step begins: after any of those.
func (p *Plan) spareStarts(i int) (list []spareStart) {
	for _, user := range append([]int{p.goal()}, p.steps...) {
		p.looks -= len(p.all[user].takes)
		for k := range p.all[user].takes {
			at := port{user, k}
			if place := slices.Index(p.sources[at], i); place > 0 {
				list = append(list, spareStart{at, p.sources[at][:place]})
			}
		}
	}
	return list
}

// addSpare adds a step that begins only for another one, if the steps of the plan that do not need that one give what
// it takes.
func (p *Plan) addSpare(q, user int) bool {
	wave, found := 0, sources{}
	for k := range p.all[q].takes {
		t := &p.all[q].takes[k]
		_, given := p.have[t.name]
		if t.fixed || p.takesHave(t) {
			continue
		}
		for _, source := range p.providers[t.name] {
			if !slices.Contains(p.steps, source) || p.spare[source] || p.comesBefore(user, source) {
				continue
			}
			found[port{q, k}] = append(found[port{q, k}], source)
			wave = max(wave, p.wave[source]+1)
			if t.isChoice() {
				break
			}
		}
		if t.collect == collectNone && given || t.isNeeded() && !given && len(found[port{q, k}]) == 0 {
			return false
		}
	}
	maps.Copy(p.sources, found)
	p.steps, p.spare[q], p.wave[q] = append(p.steps, q), true, wave
	return true
}

// Child is a step of a plan that is planned again, in another catalog.
type Child struct {
	Step    string
	Catalog string
	Ask     Ask

	step int
}

// Children returns the steps that are planned again. What they take is there for them.
func (p *Plan) Children() (list []Child) {
	for _, i := range p.steps {
		s := &p.all[i]
		if s.child == "" {
			continue
		}
		c := Child{Step: s.id, Catalog: s.child, Ask: Ask{Want: s.want}, step: i}
		for _, t := range s.takes {
			if t.collect != collectNone {
				c.Ask.Have = append(c.Ask.Have, t.name)
			}
		}
		list = append(list, c)
	}
	return list
}

// Execute has a child executed by a deployment, which is that of its plan.
func (p *Plan) Execute(c Child, deployment string) { p.deployments[c.step] = deployment }

// Unreached is the error of a plan whose goals cannot be reached.
type Unreached struct {
	Want    []string
	Missing []Missing
}

// ErrUnreached is what all [Unreached] match.
var ErrUnreached = errors.New("the goals cannot be reached")

// Is implements the matching of [errors.Is].
func (u *Unreached) Is(target error) bool { return target == ErrUnreached }

// Details returns what is missing, for machines.
func (u *Unreached) Details() map[string]any { return map[string]any{"missing": u.Missing} }

// Error names what would have to be there.
func (u *Unreached) Error() string {
	lines := make([]string, len(u.Missing))
	for i, m := range u.Missing {
		lines[i] = fmt.Sprintf("%s (%s)", m.Name, strings.Join(m.Chain, " needs "))
	}
	if len(lines) == 0 {
		return fmt.Sprintf("%s cannot be had from what is there", strings.Join(u.Want, ", "))
	}
	return fmt.Sprintf("%s cannot be had: what is missing is %s", strings.Join(u.Want, ", "), strings.Join(lines, "; "))
}

// Check fails with an [Unreached] if a goal of the plan cannot be reached.
func (p *Plan) Check() error {
	if p.IsReached() {
		return nil
	}
	return &Unreached{p.Want, p.missing()}
}
