package pg

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// faulty is a statement that cannot be queued.
type faulty struct{ *probe }

func (faulty) Queue(*pgx.Batch) { panic("in a statement") }

// TestPanicInATransactionFailsNoOther: the statements of other projects, which would have shared the transaction with
// one that panics, are executed alone, and so is that one: its own caller sees the panic.
func TestPanicInATransactionFailsNoOther(t *testing.T) {
	t.Parallel()
	f := fixture{testdb.Pool(t)}
	f.probes(t)
	good, bad := insertStrictly(LockRun, "a"), insertStrictly(LockRun, "b")
	statements := []Statement{good, faulty{bad}}
	g := NewGroupCommit(f.pool)
	for i, err := range meet(t, g, len(statements), func(ctx context.Context, i int) error {
		return g.Do(share.For(ctx, []string{"victim", "hostile"}[i]), statements[i])
	}) {
		if err != nil {
			t.Errorf("statement %d: %v", i, err)
		}
	}
	if good.alone != 1 || bad.alone != 1 {
		t.Errorf("executed %d and %d times alone, want once", good.alone, bad.alone)
	}
	if names, transactions := f.written(t); len(names) != 2 || transactions != 2 {
		t.Errorf("%d transactions wrote %q, want 2", transactions, names)
	}
}
