package stats

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestClassesOfDurations compares the classes that Postgres computes with their bounds.
func TestClassesOfDurations(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	class := func(d time.Duration) (class int16) {
		t.Helper()
		sql := `SELECT (` + classOf(`$1::bigint * interval '1 microsecond'`) + `)::smallint`
		if err := pool.QueryRow(t.Context(), sql, d.Microseconds()).Scan(&class); err != nil {
			t.Fatal(err)
		}
		return class
	}
	if got := class(-time.Second); got != 1 {
		t.Errorf("a clock that was set back: got class %d, want 1", got)
	}
	for want := int16(1); want < 63; want++ {
		bound := upperBound(want).Truncate(time.Microsecond)
		if got := class(bound); got != want {
			t.Errorf("%s: got class %d, want %d", bound, got, want)
		}
		// From here on a microsecond is less than what the logarithm tells apart.
		if want < 40 {
			if got := class(bound + time.Microsecond); got != want+1 {
				t.Errorf("1 µs more than %s: got class %d, want %d", bound, got, want+1)
			}
		}
	}
	if got := class(upperBound(70)); got != 63 {
		t.Errorf("beyond the last class: got %d, want 63", got)
	}
}
