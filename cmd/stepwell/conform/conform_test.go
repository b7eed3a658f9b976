package conform

import "testing"

func TestResultsOfStepsMayBeWrittenBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	first := []string{"complete", "recordStep a"}
	for _, c := range []struct {
		other []string
		same  bool
	}{
		{first, true},
		{[]string{"complete"}, true},
		{[]string{"complete", "recordStep a", "recordStep b"}, true},
		{[]string{"recordStep a"}, false},
		{[]string{"complete", "recordStep a", "runStep b"}, false},
		{nil, false},
	} {
		if sameCommands(first, c.other) != c.same || sameCommands(c.other, first) != c.same {
			t.Errorf("%q and %q: got %v, want %v", first, c.other, !c.same, c.same)
		}
	}
}
