package live

import (
	"context"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
)

// TestPanicEndsTheViewersOfItsProject, and of no other. Those that join later have a new follower.
func TestPanicEndsTheViewersOfItsProject(t *testing.T) {
	t.Parallel()
	f := newFixture(t, minPollInterval)
	blocked := f.options.BlockedRuns
	f.options.BlockedRuns = func(ctx context.Context, p entities.Project) (map[entities.RunID]int, error) {
		if p == "hostile" {
			panic("a read")
		}
		return blocked(ctx, p)
	}
	other := f.join(t, Wants{Runs: all})
	for range 2 {
		v, err := f.Join(t.Context(), "hostile", Wants{Runs: all})
		for err == nil {
			_, _, err = v.Next(t.Context(), t.Context())
		}
		if v != nil {
			v.Close()
		}
		if !rescue.IsPanic(err) {
			t.Fatalf("got error %v, want that of a panic", err)
		}
	}
	until(t, other, f.start(t), 1)
}
