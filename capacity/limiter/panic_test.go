package limiter

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
)

// TestPanicInAPassDelaysNoOther: a pass of one project that panics keeps no other project from its slots.
func TestPanicInAPassDelaysNoOther(t *testing.T) {
	t.Parallel()
	_, pool := newLimiter(t, nil)
	const hostile = entities.Project("hostile")
	granted := map[entities.Project]int{}
	l := New(pool, nil, func(_ *pgx.Batch, p entities.Project, list []limit.Granted) func(error) {
		if p == hostile {
			panic("a pass")
		}
		granted[p] += len(list)
		return func(error) {}
	}, func(context.Context) error { return nil })
	for _, p := range []entities.Project{hostile, project} {
		awaitSlot(t, pool, p)
	}
	for range 2 { // the next round repeats the pass
		l.CheckAll()
		if err := roundOf(t.Context(), l); !rescue.IsPanic(err) {
			t.Errorf("got error %v, want that of a panic", err)
		}
	}
	if granted[project] == 0 {
		t.Error("the other project has no slot")
	}
}
