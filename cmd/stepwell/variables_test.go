package main

import (
	"reflect"
	"regexp"
	"slices"
	"testing"
)

func TestUnknownVariablesAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ variable, want string }{
		"a setting":            {"STEPWELL_LISTEN=:0", ""},
		"an app's":             {"STEPWELL_DEPLOYMENT_ID=shop", ""},
		"somebody else's":      {"STEPWELLING=1", ""},
		"misspelled":           {"STEPWELL_LISTENS=:0", `STEPWELL_LISTENS is no setting; do you mean "STEPWELL_LISTEN"?`},
		"like nothing":         {"STEPWELL_COLOUR_OF_MAGIC=8", "STEPWELL_COLOUR_OF_MAGIC is no setting"},
		"a service's host":     {"STEPWELL_SERVICE_HOST=10.0.0.1", ""},
		"a service's port":     {"STEPWELL_SERVICE_PORT_HTTP=8788", ""},
		"a service's link":     {"STEPWELL_PORT=tcp://10.0.0.1:8788", ""},
		"a service's protocol": {"STEPWELL_PORT_8788_TCP_PROTO=tcp", ""},
		"another service's":    {"STEPWELL_API_SERVICE_HOST=10.0.0.1", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if _, err := readConfig([]string{test.variable}); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestSettingsAreDocumented compares the settings that are known with those of docs/configuration.md.
func TestSettingsAreDocumented(t *testing.T) {
	t.Parallel()
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(STEPWELL_[A-Z0-9_]+)`").FindAllStringSubmatch(
		mustRead(t, "../../docs/configuration.md"), -1) {
		documented = append(documented, row[1])
	}
	var known []string
	for _, name := range slices.Concat(otherVariables, settingsOf(reflect.TypeFor[config]())) {
		if regexp.MustCompile("^" + variablePrefix).MatchString(name) {
			known = append(known, name)
		}
	}
	slices.Sort(documented)
	slices.Sort(known)
	if documented = slices.Compact(documented); !slices.Equal(known, documented) {
		t.Errorf("known are\n%q\ndocumented are\n%q", known, documented)
	}
}
