package ui

import (
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

func TestOnlyAPIPathsAreRewritten(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]struct {
		project entities.Project
		rest    string
	}{
		"/ui/shop/v1/runs":                {"shop", "/v1/runs"},
		"/ui/a%2Fb/v1/hooks/x%2Fy/resume": {"a/b", "/v1/hooks/x%2Fy/resume"},
		"/ui/shop/v1/../sdk/v4/runs":      {"shop", "/v1/../sdk/v4/runs"}, // no route: the router resolves nothing
		"/ui/shop/sdk/v4/runs":            {},
		"/ui/shop/runs":                   {},
		"/ui/shop/v1":                     {},
		"/ui/-/session":                   {},
		"/ui/v1/runs":                     {},
		"/v1/runs":                        {},
		"/uix/shop/v1/runs":               {},
	} {
		project, rest, ok := cutAPIPath(path)
		if project != want.project || rest != want.rest || ok != (want.rest != "") {
			t.Errorf("%s: got %q, %q, %t, want %+v", path, project, rest, ok, want)
		}
	}
}
