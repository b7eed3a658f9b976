package contract

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestDocumentNamesAllCommands: docs/function-contract.md has a table row for each command with all of its fields.
func TestDocumentNamesAllCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/function-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind, empty := range commands {
		_, behind, ok := strings.Cut(string(text), "\n| `"+kind+"` |")
		if !ok {
			t.Errorf("the document has no row for %s", kind)
			continue
		}
		row, _, _ := strings.Cut(behind, "\n")
		for _, field := range fields(reflect.TypeOf(empty()).Elem()) {
			if !strings.Contains(row, "`"+field) && !strings.Contains(row, field+" =") {
				t.Errorf("the row for %s does not name %q", kind, field)
			}
		}
	}
}

// TestDocumentStatesDefaultsAndLimits compares the document with the constants.
func TestDocumentStatesDefaultsAndLimits(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/function-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	if DefaultAttempts != 5 || DefaultBackoff.String() != "1s" || DefaultFactor != 2 ||
		DefaultMaxBackoff.String() != "5m0s" || DefaultAttemptTimeout.String() != "5m0s" ||
		MaxAttemptTimeout.String() != "12h0m0s" || MaxCommands != 1000 || MaxAnswer != 16<<20 {
		t.Error("the constants have changed: update the document and this test")
	}
	for _, said := range []string{
		`maxAttempts = 5, backoff = "1s", factor = 2 (1 to 100), maxBackoff = "5m"`, "`attemptTimeout` = `\"5m\"`, 1s to 12h",
		"At most 1,000 commands and 16 MiB", "`" + HeaderInvocation + "`", "`" + HeaderRun + "`", "`" + HeaderIdempotencyKey + "`",
	} {
		if !strings.Contains(string(text), said) {
			t.Errorf("the document does not contain %q", said)
		}
	}
}

// fields returns the JSON names of the fields of a struct and of nested structs, except webhooks and signals, which
// have documents of their own.
func fields(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "type" {
			names = append(names, name)
		}
		if f.Type.Kind() == reflect.Struct && (name == "retry" || f.Anonymous) {
			names = append(names, fields(f.Type)...)
		}
	}
	return names
}
