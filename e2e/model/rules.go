package model

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	minute = 60_000
	day    = 24 * 60 * minute
)

// valid checks the required fields of each type of event.
func valid(e Event, now int64) bool {
	_, ok := merge(nil, e.Changes)
	for key, value := range e.Attributes {
		ok = ok && validChange(Change{Key: key, Value: value})
	}
	switch e.Type {
	case "run_created", "run_started", "run_completed", "run_failed", "run_cancelled":
		return ok && len(e.Attributes) <= 64
	case "attr_set":
		return ok && len(e.Changes) > 0
	case "step_created":
		return e.ID != "" && e.Name != ""
	case "hook_created":
		return e.ID != "" && e.Token != "" && e.Retain <= now+30*day
	case "wait_created":
		return e.ID != "" && e.Due != 0
	case "step_started", "step_completed", "step_failed", "step_retrying",
		"hook_received", "hook_disposed", "wait_completed":
		return e.ID != ""
	default: // hook_conflict, noop: not for clients
		return false
	}
}

// merge applies changes to attributes, and reports whether they are valid (§3.9).
func merge(have map[string]string, changes []Change) (map[string]string, bool) {
	merged := map[string]string{}
	maps.Copy(merged, have)
	for i, c := range changes {
		if !validChange(c) || slices.ContainsFunc(changes[:i], func(b Change) bool { return b.Key == c.Key }) {
			return nil, false
		}
		merged[c.Key] = c.Value
		if c.Delete {
			delete(merged, c.Key)
		}
	}
	return merged, len(merged) <= 64
}

func validChange(c Change) bool {
	n := utf8.RuneCountInString(c.Key)
	return n >= 1 && n <= 256 && len(c.Value) <= 256 && c.Key[0] != '$'
}

// madeNear reports whether a run ID's time is within the last day, or the next five minutes because of clock skew. The
// first ten digits after the prefix are a tag bit, which is ignored, and 47 bits of time (§2.6).
func madeNear(id string, now int64) bool {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	made := int64(0)
	for i, c := range strings.TrimPrefix(id, "wrun_") {
		d := strings.IndexRune(digits, c)
		if d < 0 || i == 0 && d > 7 {
			return false
		}
		if i < 10 {
			made = made<<5 | int64(d)
		}
	}
	made &= 1<<47 - 1
	return len(id) == len("wrun_")+26 && strings.HasPrefix(id, "wrun_") && now-day <= made && made <= now+5*minute
}
