package server

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
)

// TestArchiveFailuresAreCounted: but not that another process has archived the run, nor that the server stops.
func TestArchiveFailuresAreCounted(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		want int64
	}{
		{"archived", t.Context(), nil, 0},
		{"it is down", t.Context(), errors.New("no answer"), 1},
		{"the run is damaged", t.Context(), upkeep.ErrUnreadable, 1},
		{"by another process", t.Context(), fmt.Errorf("put: %w", entities.ErrConflict), 0},
		{"stopped", stopped, context.Canceled, 0},
	} {
		s := &Server{}
		store := s.counted(func(context.Context, entities.Project, entities.RunID) (upkeep.RunSize, error) {
			return upkeep.RunSize{}, tt.err
		})
		if _, err := store(tt.ctx, "default", "wrun_1"); !errors.Is(err, tt.err) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.err)
		}
		if got := s.archiveFailures.Load(); got != tt.want {
			t.Errorf("%s: %d failures are counted, want %d", tt.name, got, tt.want)
		}
	}
}
