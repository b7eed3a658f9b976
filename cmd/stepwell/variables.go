package main

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/flow"
)

// variablePrefix begins the name of each setting of ours.
const variablePrefix = "STEPWELL_"

// otherVariables are the settings of ours that are not in [config]: those of flags, and those of apps and scripts,
// which may be in the same environment.
var otherVariables = []string{
	"STEPWELL_ROLE", "STEPWELL_OPEN_BROWSER", "STEPWELL_URL",
	"STEPWELL_DEPLOYMENT_ID", "STEPWELL_APP_URL", "STEPWELL_PULL", "STEPWELL_SIGNING_KEYS",
	"STEPWELL_CLIENT", "STEPWELL_BIN",
}

// serviceLink matches the variables that Kubernetes sets for a service whose name begins with stepwell, and those of
// tests.
var serviceLink = regexp.MustCompile(
	`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$|^STEPWELL_TEST_`)

// checkVariables fails if a variable has the prefix of settings and is none: a setting whose name is misspelled would
// have no effect, silently.
func checkVariables(environ []string) error {
	known := map[string]bool{}
	for _, name := range slices.Concat(otherVariables, settingsOf(reflect.TypeFor[config]())) {
		known[name] = true
	}
	var errs []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, variablePrefix) && !known[name] && !serviceLink.MatchString(name) {
			errs = append(errs, fmt.Errorf("%s is no setting%s", name, flow.Nearest(name, known)))
		}
	}
	return errors.Join(errs...)
}

// settingsOf returns the names of the settings in a struct.
func settingsOf(t reflect.Type) (names []string) {
	for field := range t.Fields() {
		if name := field.Tag.Get("env"); name != "" {
			names = append(names, name)
		} else if field.Type.Kind() == reflect.Struct {
			names = append(names, settingsOf(field.Type)...)
		}
	}
	return names
}
