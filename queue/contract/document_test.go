package contract

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestDocumentNamesAllCommands: docs/function-contract.md has a row for each command, with all of its fields.
func TestDocumentNamesAllCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/function-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind, empty := range commands {
		_, behind, ok := strings.Cut(string(text), "\n| `"+kind+"` |")
		if !ok {
			t.Errorf("there is no row about %s", kind)
			continue
		}
		row, _, _ := strings.Cut(behind, "\n")
		for _, field := range fields(reflect.TypeOf(empty()).Elem()) {
			if !strings.Contains(row, "`"+field) && !strings.Contains(row, field+" =") {
				t.Errorf("the row about %s does not name %q", kind, field)
			}
		}
	}
}

// TestDocumentHasTheDefaults, and the limits.
func TestDocumentHasTheDefaults(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/function-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	if DefaultAttempts != 5 || DefaultBackoff.String() != "1s" || DefaultFactor != 2 ||
		DefaultMaxBackoff.String() != "5m0s" || DefaultAttemptTimeout.String() != "5m0s" ||
		MaxAttemptTimeout.String() != "12h0m0s" || MaxCommands != 1000 || MaxAnswer != 16<<20 {
		t.Error("they have changed: say so in the document, and here")
	}
	for _, said := range []string{
		`maxAttempts = 5, backoff = "1s", factor = 2 (1 to 100), maxBackoff = "5m"`, "`attemptTimeout` = `\"5m\"`, 1s to 12h",
		"At most 1,000 commands and 16 MiB", "`" + HeaderInvocation + "`", "`" + HeaderRun + "`", "`" + HeaderIdempotencyKey + "`",
	} {
		if !strings.Contains(string(text), said) {
			t.Errorf("the document does not say %q", said)
		}
	}
}

// fields are the names that JSON has for the fields of a struct, and of those in it but for webhooks and signals, which
// have documents of their own.
func fields(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "type" {
			names = append(names, name)
		}
		if f.Type.Kind() == reflect.Struct && name == "retry" {
			names = append(names, fields(f.Type)...)
		}
	}
	return names
}
