package flow

// Start says of which workflow a step starts a child or a run, and on which deployment; without one, on the newest.
type Start struct {
	At                   *Node
	Workflow, Deployment string
}

// Starts returns what the steps start, also those in bodies and what undoes others.
func (p *Program) Starts() (list []Start) {
	for i := range p.steps {
		s := &p.steps[i]
		for _, a := range []*action{&s.action, s.undo} {
			if a != nil && (a.kind == kindFlow || a.kind == kindStart) {
				list = append(list, Start{s.at, a.name, a.deployment})
			}
		}
		if m := s.action.many; m != nil && m.body != nil {
			list = append(list, m.Starts()...)
		}
	}
	return list
}
