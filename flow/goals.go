package flow

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/contract"
)

// codeGoal means that a goal of a flow cannot be reached any more, and codeSchema that a value does not fit.
const (
	codeGoal   = "flow.goal"
	codeSchema = "flow.schema"
)

// consider decides whether a step begins or is skipped. It reports false if that depends on what has not ended.
func (t *decision) consider(i int) bool {
	if len(t.goals) > 0 && !t.Program.steps[i].isLast() && !t.isNeeded(i, make([]bool, len(t.Program.steps))) {
		t.skip(i, "nobody needs it any more")
		return true
	}
	begins, known := t.isWanted(i)
	switch {
	case !known:
		return false
	case begins:
		t.start(i)
	case t.Program.steps[i].join == joinNone:
		t.skip(i, "something that must not has completed")
	default:
		t.skip(i, "nothing that it needs has run")
	}
	return true
}

// isWanted reports whether a step begins as far as those are concerned that it needs, if that is known yet.
func (t *decision) isWanted(i int) (begins, known bool) {
	s := &t.Program.steps[i]
	if s.target != 0 {
		return t.isCaught(i, s.target-1)
	}
	n := t.tally(s.needs)
	switch {
	case len(s.needs) == 0 || s.join == joinAny && n.completed > 0:
		return true, true
	case s.join == joinEvery && n.skipped > 0 || s.join == joinNone && n.completed > 0:
		return false, true
	case n.open > 0:
		return false, false
	case s.join == joinAlways:
		return true, true
	case n.failed > 0 && s.join != joinAny:
		return false, false // the run is failing
	case s.join == joinNone:
		return true, true
	default:
		return n.completed > 0, true
	}
}

// isCaught reports whether a catch leads from a failure to a step, if that is known yet.
func (t *decision) isCaught(i, from int) (begins, known bool) {
	if !t.steps[from].status.ended() {
		return false, false
	}
	c := t.catchOf(from)
	return c != nil && c.to-1 == i, true
}

// tally is how many steps have come to what.
type tally struct{ completed, failed, skipped, open int }

// tally counts what has become of steps. In a flow with goals, a failure is nothing more than the lack of a value.
func (t *decision) tally(steps []int) (n tally) {
	for _, i := range steps {
		switch t.outcome(i).status {
		case statusCompleted:
			n.completed++
		case statusFailed:
			n.failed++
		case statusSkipped:
			n.skipped++
		default:
			n.open++
		}
	}
	if len(t.goals) > 0 {
		n.failed, n.skipped = 0, n.skipped+n.failed
	}
	return n
}

// isNeeded reports whether a goal still needs a step that has not begun. Seen are the steps that have been looked at.
func (t *decision) isNeeded(i int, seen []bool) bool {
	if target := t.Program.steps[i].target; target != 0 {
		i = target - 1
	}
	if slices.Contains(t.goals, i) {
		return true
	}
	for _, j := range t.Program.steps[i].wantedBy {
		if t.steps[j].status != statusNone || seen[j] {
			continue
		}
		if seen[j] = true; t.isNeeded(j, seen) {
			return true
		}
	}
	return false
}

// isReached reports whether the flow has goals and all have completed.
func (t *decision) isReached() bool {
	return len(t.goals) > 0 && !slices.ContainsFunc(t.goals, func(i int) bool {
		return t.outcome(i).status != statusCompleted
	})
}

// finishReached ends a run whose goals are reached, after what is left of it. What can be undone ends by itself, since
// nobody would know what it did. It reports whether it has decided anything.
func (t *decision) finishReached() (moved bool) {
	done, moved := t.wrapUp()
	if done {
		return t.complete(t.output())
	}
	return moved
}

// goalMissed returns the failure of a run of which a goal cannot be reached any more.
func (t *decision) goalMissed() (why progress, missed bool) {
	for _, i := range t.goals {
		if p := t.outcome(i); p.status == statusFailed || p.status == statusSkipped {
			return failedWith(t.missing(i), p.seq), true
		}
	}
	return progress{}, false
}

// maxReasons is how many reasons are given for a goal that cannot be had.
const maxReasons = 10

// reason is one of the reasons why a goal has not completed: the steps that lead from it to the one at which it failed.
type reason struct {
	Chain []string        `json:"chain"`
	Error json.RawMessage `json:"error,omitempty"`
	text  string
}

// missing explains why a goal has not completed. If several steps could have given what it needs, it has all reasons.
func (t *decision) missing(i int) contract.Failure {
	var reasons []reason
	seen := map[int]bool{}
	var visit func(i int, chain []string)
	visit = func(i int, chain []string) {
		if seen[i] {
			return
		}
		seen[i] = true
		chain = append(slices.Clip(chain), t.Program.steps[i].name)
		lacking := t.lacking(i)
		if len(lacking) == 0 && len(reasons) < maxReasons {
			reasons = append(reasons, t.reason(i, chain))
		}
		for _, j := range lacking {
			visit(j, chain)
		}
	}
	visit(i, nil)
	texts := make([]string, len(reasons))
	for n, r := range reasons {
		texts[n] = r.text
	}
	details := map[string]any{"chain": reasons[0].Chain}
	if reasons[0].Error != nil {
		details["error"] = reasons[0].Error
	}
	if len(reasons) > 1 {
		details["reasons"] = reasons
	}
	return contract.Failure{
		Message: t.Program.steps[i].name + " cannot be had: " + strings.Join(texts, "; "),
		Code:    codeGoal, Details: mustJSON(details),
	}
}

// lacking returns the steps because of which another one has not begun: those that it needs, and that have not
// completed. If it has begun, or was skipped for itself, there are none. Of those that it needs all, one is enough: the
// others may have been cancelled because of it.
func (t *decision) lacking(i int) (list []int) {
	if t.steps[i].status == statusFailed || t.Program.steps[i].join == joinNone {
		return nil
	}
	for _, j := range t.Program.steps[i].needs {
		if status := t.outcome(j).status; status == statusFailed || status == statusSkipped {
			if list = append(list, j); t.Program.steps[i].join == joinEvery {
				break
			}
		}
	}
	return list
}

// reason returns why the last step of a chain has not completed.
func (t *decision) reason(i int, chain []string) reason {
	r := reason{Chain: chain}
	because := "was skipped: " + t.steps[i].why
	if p := t.steps[i]; p.status == statusFailed {
		because, r.Error = "failed: "+failureIn(p).Message, p.error
	}
	if r.text = "it "; len(chain) > 1 {
		r.text = "it needs " + strings.Join(chain[1:], ", which needs ") + ", which "
	}
	r.text += because
	return r
}

// checkGoals checks that a flow with goals has no step that none of them needs.
func (r *reader) checkGoals(p *Program) {
	if len(p.goals) == 0 || r.partial {
		return
	}
	needed := map[int]bool{}
	add := func(i int) {
		needed[i] = true
		for _, stands := range p.standing(i) {
			needed[stands] = true
		}
	}
	for _, i := range p.goals {
		add(i)
		for j := range p.ancestors(i) {
			add(j)
		}
	}
	for i := range p.steps {
		if s := &p.steps[i]; !needed[i] && !s.isLast() {
			r.faults.add(s.at, CodeConflict, "no goal needs %s: leave it out, or add it to goals", s.id)
		}
	}
}

var letPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,` + fmt.Sprint(maxName-1) + `}$`)

// readLets reads "let: {NAME: VALUE}". Each value may have the names before it.
func (r *reader) readLets(n *node, u usage) lets {
	if n == nil {
		return nil
	}
	r.object(n)
	known := lets{}
	for i, name := range n.names {
		if !IsName(name) {
			r.faults.add(n.items[i], CodeType, "%q cannot be a name in expressions: want a letter, and letters, digits "+
				"and _, and none that they know already", name)
			continue
		}
		known[name] = r.template(n.items[i], u)
		r.lets = known
	}
	return known
}

// reserved are the words of CEL that are no names.
var reserved = strings.Fields("as break const continue else false for function if import in let loop package " +
	"namespace null return true var void while")

// IsName reports whether a text can be the name of a value in the expressions of a step.
func IsName(s string) bool {
	return letPattern.MatchString(s) && !slices.Contains(variables, s) && !slices.Contains(reserved, s)
}
