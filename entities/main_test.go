package entities

import (
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// update rewrites the golden files: go test ./entities -update.
var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func TestMain(m *testing.M) { testdb.Main(m) }

// day is the date of the tests.
var day = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// ptr returns a pointer to a copy of v.
func ptr[T any](v T) *T { return &v }

// wantInvalid fails the test unless err is nil if valid is true, and [ErrInvalid] if it is false.
func wantInvalid(t *testing.T, err error, valid bool) {
	t.Helper()
	switch {
	case valid && err != nil:
		t.Errorf("got error %v, want none", err)
	case !valid && !errors.Is(err, ErrInvalid):
		t.Errorf("got error %v, want ErrInvalid", err)
	}
}
