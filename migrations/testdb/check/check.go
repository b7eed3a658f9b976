// Package check has the checks that most tests make.
package check

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// NoError ends the test if there is an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Value takes the results of a function. What it returns ends the test if there was an error, and returns the value:
//
//	file := check.Value(os.Open(name))(t)
func Value[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		NoError(t, err)
		return v
	}
}

// Equal fails the test if the values differ, and says what they are and how they differ.
func Equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	unexported := cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(want, got, unexported); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
