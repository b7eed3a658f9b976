package entities

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// stored returns the statuses that a row may have: all but the first, "none".
func stored[S ~string](statuses []S) []string {
	var list []string
	for _, s := range statuses[1:] {
		list = append(list, string(s))
	}
	return list
}

func TestEnumsEqualTheChecksOfTheSchema(t *testing.T) {
	t.Parallel()
	var events []string
	for _, event := range slices.Concat(runEvents, stepEvents, hookEvents, waitEvents) {
		events = append(events, string(event))
	}
	var types []string
	for _, event := range EventTypes {
		types = append(types, string(event))
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(events)), slices.Sorted(slices.Values(types))); diff != "" {
		t.Errorf("EventTypes differ from the transition tables (-tables +types):\n%s", diff)
	}
	var ended []string
	for _, s := range runStatuses {
		if s.Ended() {
			ended = append(ended, string(s))
		}
	}
	tests := map[string][]string{
		"runs_status_check":        stored(runStatuses),
		"runs_driver_check":        {string(DriverClient), string(DriverServer)},
		"runs_completed_at_check":  ended,
		"steps_status_check":       stored(stepStatuses),
		"steps_completed_at_check": {string(StepCompleted), string(StepFailed)},
		"waits_status_check":       stored(waitStatuses),
		"waits_completed_at_check": {string(WaitCompleted), string(WaitCancelled)},
		"events_type_check":        events,
	}
	pool := testdb.Pool(t)
	literal := regexp.MustCompile(`'([^']*)'::text`)
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var definition string
			err := pool.QueryRow(t.Context(), `
				SELECT pg_get_constraintdef(oid) FROM pg_constraint
				WHERE conname = $1 AND contype = 'c' AND connamespace = $2::text::regnamespace`,
				name, migrations.DefaultSchema).Scan(&definition)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, match := range literal.FindAllStringSubmatch(definition, -1) {
				got = append(got, strings.Split(strings.Trim(match[1], "{}"), ",")...) // a word, or an array of them
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s is %s\nits words differ (-want +got):\n%s", name, definition, diff)
			}
		})
	}
}
