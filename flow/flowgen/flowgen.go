// Package flowgen makes random flows for tests: documents, and what their planners return.
//
// In a document, "f" is a function without effects and "p" a planner. "e" has an effect that "u" undoes, and so has an
// HTTP request to a path that begins with /e. "other" is another flow.
package flowgen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Draw returns a number below n. The label says what for.
type Draw func(label string, n int) int

// Seeded returns a draw whose numbers depend on the seed alone.
func Seeded(seed uint64) Draw {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // tests repeat what a seed has found
	return func(_ string, n int) int { return r.IntN(n) }
}

// Pick returns one of the values.
func Pick[T any](d Draw, label string, of ...T) T { return of[d(label, len(of))] }

// Planned is what a planner returns.
const Planned = `{"steps":{"a":{"call":"e","undo":{"call":"u"}},` +
	`"b":{"needs":"a","map":"[1,2]","do":{"call":"e","undo":{"call":"u"}}}}}`

// post is a request with a body: the connection may send others twice, which no log shows.
const post = "http: {url: 'https://example.com/${run.id}', body: 1}"

// kinds are what the steps of documents do. Those that come twice are drawn twice as often. No two steps wait for the
// same signal, since a signal reaches those that do in any order.
var kinds = []string{
	"call: f", "call: f", "call: f", "wait: 1h", "wait: {until: '${now + duration(\"90m\")}'}", "set: 1",
	"let: {at: '${string(now)}'}, set: '${at}'",
	"signal: {name: s%d, condition: 'data.by == \"us\"', within: 1h}",
	"signal: {name: s%d, lookBack: 1h, within: 1h}", "fail: {message: no}",
	post, post, "hook: {within: 1h}", "emit: s1",
	"hook: {webhook: {respond: 10s}, within: 1h}",
	"emit: {signal: s2, data: '${run.workflow}'}", "call: f, async: true, timeout: 3h", "flow: other", "complete: early",
	"approval: {title: t, quorum: 2, distinctKeys: true, deadline: 1h, onTimeout: approve}", "start: other",
	"approval: {title: t, by: [anna, bob, carl], deadline: 1h, onTimeout: reject}",
	"map: {x: '[1,2]', y: '[3]'}, collect: none, do: {call: f}",
	"map: '[1,2,3]', concurrency: 2, do: {call: e, undo: {call: u}}, tolerate: 1",
	"map: '[1,2,3]', key: \"'k' + string(item)\", do: {call: f}",
	"map: '[1,2,3]', do: {steps: {a: {call: e, undo: {call: u}}, " +
		"b: {needs: a, call: f, catch: [{codes: [y]}]}}}, tolerate: {percent: 40}",
	"map: '[1,2]', do: {steps: {a: {map: '[1,2]', do: {call: e, undo: {call: u}}}, " +
		"c: {join: always, needs: a, call: f}}}",
	"loop: {do: {call: e, undo: {call: u}}, until: iteration.index == 3, max: 3, delay: 1m}",
	"loop: {do: {steps: {a: {call: e, undo: {call: u}}, " +
		"b: {signal: {name: s%d, within: 1h}, catch: [{}]}}}, while: iteration.index < 4, max: 3}",
	"plan: p, repairs: 1, allow: {calls: [e, u]}",
}

// Document returns a document whose steps stand in any order.
func Document(d Draw) string {
	n := 1 + d("steps", 12)
	lines := make([]string, n)
	needed := map[string]bool{}
	for i := range n {
		lines[i] = step(d, i, needed)
	}
	var goals []string // the steps that no other one needs
	for i := range n {
		if id := fmt.Sprintf("s%d", i); !needed[id] {
			goals = append(goals, id)
		}
		if strings.Contains(lines[i], "respond: {to") {
			goals = append(goals, fmt.Sprintf("r%d", i))
		}
	}
	if d("crowded", 20) == 0 {
		lines = append(lines, Crowd(60+d("items", 41), 1+d("signals", 4)))
		goals = append(goals, "crowd", "after")
	}
	for i := len(lines) - 1; i > 0; i-- {
		j := d("order", i+1)
		lines[i], lines[j] = lines[j], lines[i]
	}
	head := "flow: random\ndeployment: d\ndefaults: {retry: {maxAttempts: 2, backoff: 10ms}}\n"
	head += Pick(d, "on failure", "", "", "onFailure: drain\n")
	if d("goals", 3) == 0 {
		head += "goals: [" + strings.Join(goals, ", ") + "]\n"
	}
	return head + "steps:\n" + strings.Join(lines, "")
}

// step returns the lines of a step, of the step that a catch of it leads to, and of those that answer the request of
// its webhook. It adds to what is needed.
func step(d Draw, i int, needed map[string]bool) string {
	kind := strings.ReplaceAll(Pick(d, "kind", kinds...), "%d", strconv.Itoa(i))
	isCall := kind == "call: f" || strings.HasPrefix(kind, "http")
	fields := needs(d, i, kind, needed)
	if isCall && d("undo", 2) == 0 {
		kind = strings.NewReplacer("call: f", "call: e", "example.com/", "example.com/e/").Replace(kind)
		fields = append(fields, Pick(d, "input of the undo",
			"undo: {call: u}", "undo: {http: {url: 'https://example.com/u', body: '${undo}'}}", "undo: {flow: other}",
			"undo: {call: u, input: '${undo.output.missing}'}"))
	}
	more := ""
	switch d("catch", 6) {
	case 0:
		fields = append(fields, "catch: [{codes: [x, flow.expression]}]")
	case 1:
		fields = append(fields, fmt.Sprintf("catch: [{codes: [x, wait_timeout], to: h%d, then: %s}]", i,
			Pick(d, "then", "continue", "continue", "complete", "fail")))
		more = fmt.Sprintf("  h%d: {call: f}\n", i)
	}
	if strings.Contains(kind, "webhook") {
		more += fmt.Sprintf("  q%d: {needs: s%d, call: f, catch: [{}]}\n", i, i)
		more += fmt.Sprintf("  r%d: {needs: q%d, respond: {to: s%d, body: {n: 1}}, catch: [{codes: [no_request]}]}\n",
			i, i, i)
	}
	return fmt.Sprintf("  s%d: {%s}\n", i, strings.Join(append([]string{kind}, fields...), ", ")) + more
}

// needs returns what a step needs of those before it, and adds it to what is needed.
func needs(d Draw, i int, kind string, needed map[string]bool) (fields []string) {
	var ids []string
	for range d("needs", min(i, 3)+1) {
		if id := fmt.Sprintf("s%d", d("needed", i)); !slices.Contains(ids, id) {
			ids, needed[id] = append(ids, id), true
		}
	}
	if len(ids) == 0 {
		return nil
	}
	join := Pick(d, "join", "all", "all", "any", "every", "none", "always")
	if join == "always" && kind == "complete: early" {
		join = "all" // a run that has failed cannot complete
	}
	fields = append(fields, "needs: ["+strings.Join(ids, ", ")+"]", "join: "+join)
	if (join != "any" || len(ids) == 1) && d("conditional", 2) == 0 {
		when := Pick(d, "when", "failed", "skipped", `status == "completed"`, "output.missing")
		fields = append(fields, fmt.Sprintf("when: 'steps.%s.%s'", ids[0], when))
	}
	return fields
}

// Crowd returns a map whose items wait for signals and a call each, and which fails with the first item: so more has to
// be closed than a decision may have commands. A step waits for two hours beside it.
func Crowd(items, signals int) string {
	list, steps := make([]string, items), make([]string, signals)
	for n := range items {
		list[n] = strconv.Itoa(n)
	}
	for n := range signals {
		steps[n] = fmt.Sprintf("h%d: {signal: {name: never, within: 1h}}", n)
	}
	return fmt.Sprintf("  crowd: {map: '[%s]', do: {steps: {%s, a: {call: f}}}, catch: [{}]}\n  after: {wait: 2h}\n",
		strings.Join(list, ","), strings.Join(steps, ", "))
}
