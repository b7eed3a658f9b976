package remote

import (
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// TestRunNamesThoseThatContinueIt, in both directions.
func TestRunNamesThoseThatContinueIt(t *testing.T) {
	t.Parallel()
	s, out, _ := newSession(t, nil)
	if err := s.printRun(api.Run{ID: "wrun_2", ContinuedFrom: "wrun_1", ContinuedAs: "wrun_3"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"continues", "wrun_1", "continued as", "wrun_3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}
