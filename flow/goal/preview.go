package goal

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Preview is what a plan does, and why, for those who look at it before they start it.
type Preview struct {
	Catalog string   `json:"catalog"`
	Digest  string   `json:"digest"`
	Want    []string `json:"want"`
	Have    []string `json:"have"`
	// Waves are the steps in the order in which they can begin at the earliest.
	Waves [][]string    `json:"waves"`
	Steps []PreviewStep `json:"steps"`
	// Missing are names that would have to be there. The plan has no steps then.
	Missing  []Missing  `json:"missing"`
	Excluded []Excluded `json:"excluded"`
	// Mermaid is a flowchart.
	Mermaid string `json:"mermaid"`
}

// PreviewStep is a step of a plan.
type PreviewStep struct {
	ID   string `json:"id"`
	Wave int    `json:"wave"`
	// Spare is set if the step begins only when those before it have failed, or given nothing.
	Spare bool          `json:"spare,omitempty"`
	Takes []PreviewTake `json:"takes"`
	Gives []PreviewGive `json:"gives"`
}

// PreviewTake is an attribute that a step takes.
type PreviewTake struct {
	Name string `json:"name"`
	// From are the steps that give it, the first choice first; "have" is what there is. It is empty for values that the
	// step has in any case.
	From     []string `json:"from"`
	Collect  string   `json:"collect,omitempty"`
	Optional bool     `json:"optional,omitempty"`
	// Together is set if all of the steps begin, and the first value counts.
	Together bool `json:"together,omitempty"`
}

// PreviewGive is an attribute that a step gives, and the steps that take it; "goal" is the goals.
type PreviewGive struct {
	Name string   `json:"name"`
	To   []string `json:"to"`
}

// Missing is a name that would have to be there, and the chain of those that want it, from a goal on.
type Missing struct {
	Name  string   `json:"name"`
	Chain []string `json:"chain"`
}

// Excluded is a step that is not in a plan.
type Excluded struct {
	Step string `json:"step"`
	// Code is unreachable, blocked, there or not_needed.
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// Preview says what the plan does.
func (p *Plan) Preview() Preview {
	v := Preview{
		Catalog: p.Name, Digest: hex.EncodeToString(p.digest[:]), Want: p.Want, Waves: [][]string{},
		Have: slices.Concat([]string{}, p.Have, p.HaveAll), Steps: []PreviewStep{}, Missing: p.missing(),
		Excluded: p.excluded(),
	}
	for _, i := range p.steps {
		s := PreviewStep{ID: p.all[i].id, Wave: p.wave[i], Spare: p.spare[i], Takes: []PreviewTake{}, Gives: []PreviewGive{}}
		for k := range p.all[i].takes {
			s.Takes = append(s.Takes, p.previewTake(port{i, k}))
		}
		for _, g := range p.all[i].gives {
			s.Gives = append(s.Gives, PreviewGive{g.name, p.takers(i, g.name)})
		}
		v.Steps = append(v.Steps, s)
		for len(v.Waves) <= s.Wave {
			v.Waves = append(v.Waves, []string{})
		}
		v.Waves[s.Wave] = append(v.Waves[s.Wave], s.ID)
	}
	v.Mermaid = p.mermaid()
	return v
}

func (p *Plan) previewTake(at port) PreviewTake {
	t := &p.all[at.step].takes[at.take]
	v := PreviewTake{Name: t.name, From: []string{}, Optional: t.optional, Together: t.together}
	if t.fixed {
		return v
	}
	if t.collect != collectFirst {
		v.Collect = string(t.collect)
	}
	if _, given := p.have[t.name]; given {
		v.From = append(v.From, haveID)
	}
	for _, q := range p.sources[at] {
		v.From = append(v.From, p.all[q].id)
	}
	return v
}

// takers returns the steps that take an attribute from a step.
func (p *Plan) takers(i int, name string) []string {
	list := []string{}
	for _, user := range append(slices.Clone(p.steps), p.goal()) {
		for k, t := range p.all[user].takes {
			if t.name == name && slices.Contains(p.sources[port{user, k}], i) {
				list = append(list, p.all[user].id)
			}
		}
	}
	return list
}

// missing returns the names that would have to be there.
func (p *Plan) missing() []Missing {
	m := missing{Plan: p, list: []Missing{}, seen: map[int]bool{}}
	if !p.IsReached() {
		for _, i := range append(slices.Clone(p.must), p.goal()) {
			m.visit(i, nil)
		}
	}
	return m.list
}

// missing looks for what is missing, from the goals on.
type missing struct {
	*Plan

	list []Missing
	seen map[int]bool
}

// visit looks for what a step lacks, and reports whether anything has been found.
func (m *missing) visit(i int, chain []string) (found bool) {
	if m.seen[i] || m.usable[i] >= 0 {
		return m.seen[i]
	}
	m.seen[i] = true
	if i != m.goal() {
		chain = append(slices.Clip(chain), m.all[i].id)
	}
	for _, t := range m.all[i].takes {
		if _, given := m.have[t.name]; !given && t.isNeeded() && !m.isUsable(t.name) {
			m.attribute(t.name, chain)
			found = true
		}
	}
	return found
}

// attribute looks for what the providers of an attribute lack. If they lack nothing else, it is missing itself.
func (m *missing) attribute(name string, chain []string) {
	chain, found := append(slices.Clip(chain), name), false
	for _, q := range m.providers[name] {
		found = m.visit(q, chain) || found
	}
	if !found && !slices.ContainsFunc(m.list, func(one Missing) bool { return one.Name == name }) {
		m.list = append(m.list, Missing{name, chain})
	}
}

// isUsable reports whether a step that can be executed gives the attribute.
func (p *Plan) isUsable(name string) bool {
	return slices.ContainsFunc(p.providers[name], func(q int) bool { return p.usable[q] >= 0 })
}

// excluded says why the other steps are not in the plan.
func (p *Plan) excluded() []Excluded {
	list := []Excluded{}
	for i := range p.Catalog.steps {
		if !slices.Contains(p.steps, i) {
			list = append(list, p.exclude(i))
		}
	}
	return list
}

func (p *Plan) exclude(i int) Excluded {
	s := &p.all[i]
	there := func(name string) bool { _, given := p.have[name]; return given }
	for _, t := range s.takes {
		if t.collect == collectNone && there(t.name) {
			return Excluded{s.id, "blocked", "it must not have " + t.name + ", which is there"}
		}
	}
	for _, t := range s.takes {
		if t.isNeeded() && !there(t.name) && !p.isUsable(t.name) {
			return Excluded{s.id, "unreachable", "nothing gives " + t.name}
		}
	}
	if len(s.gives) > 0 && !slices.ContainsFunc(s.gives, func(g give) bool { return !there(g.name) }) {
		return Excluded{s.id, "there", "all that it gives is there"}
	}
	if !p.IsReached() {
		return Excluded{s.id, "not_needed", "the goals cannot be reached"}
	}
	return Excluded{s.id, "not_needed", "the goals are reached without it"}
}

// mermaid returns the plan as a flowchart for Mermaid: solid arrows are what steps take, dotted ones what they take if
// something else has failed.
func (p *Plan) mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	number := func(i int) string {
		if i == p.goal() {
			return goalID
		}
		return fmt.Sprintf("s%d", i)
	}
	used := map[string]bool{}
	for _, i := range p.steps {
		fmt.Fprintf(&b, "  %s[\"%s\"]\n", number(i), p.all[i].id)
	}
	fmt.Fprintf(&b, "  %s([\"%s\"])\n", goalID, strings.Join(p.Want, ", "))
	for _, i := range p.must {
		fmt.Fprintf(&b, "  %s --> %s\n", number(i), goalID)
	}
	for _, i := range append(slices.Clone(p.steps), p.goal()) {
		for k, t := range p.all[i].takes {
			if _, given := p.have[t.name]; given && !t.fixed {
				if !used[t.name] {
					fmt.Fprintf(&b, "  have-%s[/\"%s\"/]\n", t.name, t.name)
				}
				used[t.name] = true
				fmt.Fprintf(&b, "  have-%s --> %s\n", t.name, number(i))
			}
			for _, q := range p.sources[port{i, k}] {
				arrow := "--"
				if p.spare[q] {
					arrow = "-."
				}
				fmt.Fprintf(&b, "  %s %s \"%s\" %s> %s\n", number(q), arrow, t.name, reversed(arrow), number(i))
			}
		}
	}
	return b.String()
}

// reversed returns how an arrow goes on after its text.
func reversed(arrow string) string {
	if arrow == "-." {
		return ".-"
	}
	return "--"
}
