package store

import (
	"errors"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// day is the date of the tests.
var day = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// wantInvalid fails the test unless err is nil if valid is true, and [entities.ErrInvalid] if it is false.
func wantInvalid(t *testing.T, err error, valid bool) {
	t.Helper()
	switch {
	case valid && err != nil:
		t.Errorf("got error %v, want none", err)
	case !valid && !errors.Is(err, entities.ErrInvalid):
		t.Errorf("got error %v, want ErrInvalid", err)
	}
}
