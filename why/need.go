package why

import "slices"

// Need says in one word what keeps a run that has not ended. It follows from the verdict, so that a list by need and an
// explanation never contradict each other.
type Need string

// The needs, ordered by how much they need a person.
const (
	// Stuck runs are blocked or stranded: they do not go on by themselves.
	Stuck Need = "stuck"
	// Retrying runs have a part that failed and is tried again.
	Retrying Need = "retrying"
	// Waiting runs wait for time, for other runs, for a slot, or for the world.
	Waiting Need = "waiting"
)

// Needs returns all needs, in their order.
func Needs() []Need { return []Need{Stuck, Retrying, Waiting} }

var needs = map[Verdict]Need{
	VerdictStranded: Stuck, VerdictBlocked: Stuck, VerdictRetrying: Retrying, VerdictWaiting: Waiting,
}

// Need returns what the run needs; empty if that is nothing, or only time for what is under way.
func (e Explanation) Need() Need { return needs[e.Verdict] }

// needsPerson reports whether the run waits for somebody who votes or resumes a hook.
func (e Explanation) needsPerson() bool {
	return e.Need() == Waiting && slices.ContainsFunc(e.Reasons, func(r Reason) bool {
		return r.Kind == Approval || r.Kind == Hook
	})
}
