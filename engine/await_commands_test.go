package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"
)

// commands returns random commands, with the waits among them that are over, and says whether they have results or are
// in conflict with another hook.
func (s *awaitScenario) commands(rt *rapid.T) (list []object, over []string, results, conflict bool) {
	add := func(kind string, fields ...any) string {
		s.made++
		c := object{"type": kind, "id": fmt.Sprint(s.made)}
		for i := 0; i < len(fields); i += 2 {
			c[fields[i].(string)] = fields[i+1]
		}
		list = append(list, c)
		return fmt.Sprint(s.made)
	}
	for range rapid.IntRange(0, 4).Draw(rt, "commands") {
		kinds := []string{"run", "run", "run", "record", "retry", "over", "wait", "conflict"}
		if len(s.steps) > 0 {
			kinds = append(kinds, "cancel step")
		}
		if len(s.waits) > 0 {
			kinds = append(kinds, "cancel wait")
		}
		if len(s.own) > 0 {
			kinds = append(kinds, "end own")
		}
		switch rapid.SampledFrom(kinds).Draw(rt, "command") {
		case "run":
			s.steps["step:"+add("runStep")] = true
		case "record":
			add("recordStep")
			results = true
		case "retry":
			ref := "step:" + add("recordStep", "error", object{"message": "m"}, "retryAfter", "0s")
			s.steps[ref], s.own[ref] = true, true
		case "over":
			over = append(over, "wait:"+add("wait", "for", "0s"))
		case "wait":
			s.waits["wait:"+add("wait", "for", "1h")] = true
		case "conflict":
			add("openHook", "token", "T")
			conflict = true
		case "cancel step":
			ref := rapid.SampledFrom(slices.Sorted(maps.Keys(s.steps))).Draw(rt, "cancelled step")
			list = append(list, object{"type": "cancelStep", "id": ref[len("step:"):]})
			delete(s.steps, ref)
			delete(s.own, ref)
		case "cancel wait":
			ref := rapid.SampledFrom(slices.Sorted(maps.Keys(s.waits))).Draw(rt, "cancelled wait")
			list = append(list, object{"type": "cancelWait", "id": ref[len("wait:"):]})
			delete(s.waits, ref)
		case "end own":
			ref := rapid.SampledFrom(slices.Sorted(maps.Keys(s.own))).Draw(rt, "ended step")
			list, results = append(list, object{"type": "recordStep", "id": ref[len("step:"):]}), true
			delete(s.steps, ref)
			delete(s.own, ref)
		}
	}
	s.fresh = s.fresh || len(over) > 0
	return list, over, results, conflict
}

// command sends random commands during the call. The function may read their events from the response.
func (s *awaitScenario) command(rt *rapid.T, on *server) {
	list, _, results, conflict := s.commands(rt) // the end of a wait wakes the run in any case
	text, err := json.Marshal(object{"commands": list})
	if err != nil {
		rt.Fatal(err)
	}
	follows := rapid.Bool().Draw(rt, "follows")
	if follows {
		_, err = on.runs.Exchange(s.t.Context(), callOf(s.run.ID, s.invocation.Lease), s.length, text)
	} else {
		_, err = on.runs.Command(s.t.Context(), callOf(s.run.ID, s.invocation.Lease), text)
	}
	if err != nil {
		rt.Fatalf("commands %s: %v", text, err)
	}
	s.measure()
	if follows {
		s.followed = s.length
	}
	if conflict {
		s.must = s.last("hook_conflict")
	}
	s.fresh = s.fresh || !follows && (results || conflict)
}
