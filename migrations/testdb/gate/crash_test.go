package gate

import (
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestSessionsGoOnAfterACrash: a statement that is repeated on a new connection succeeds, unless the database stays
// away.
func TestSessionsGoOnAfterACrash(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	observer := testdb.Connect(t, dsn)
	testdb.Exec(t, observer, `CREATE TABLE visits ()`)
	s := Open(t, dsn, observer, nil)
	for _, tt := range []struct {
		crash    Crash
		repeated bool // the second attempt succeeds
		visits   int
	}{
		{Terminated, true, 1}, {Cut, true, 1}, {AnswerLost, true, 2}, {Away, false, 0}, {None, true, 2},
	} {
		testdb.Exec(t, observer, `TRUNCATE visits`)
		var first, second error
		s.Run(t, 0, tt.crash, func() {
			_, first = s.Pool.Exec(t.Context(), `INSERT INTO visits DEFAULT VALUES`)
			_, second = s.Pool.Exec(t.Context(), `INSERT INTO visits DEFAULT VALUES`)
		})
		var visits int
		if err := observer.QueryRow(t.Context(), `SELECT count(*) FROM visits`).Scan(&visits); err != nil {
			t.Fatal(err)
		}
		if (first == nil) != (tt.crash == None) || (second == nil) != tt.repeated || visits != tt.visits {
			t.Errorf("%s: got errors %v and %v, and %d visits; want %d", tt.crash, first, second, visits, tt.visits)
		}
	}
}
