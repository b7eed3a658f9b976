package eventlog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestLongAppendsLeaveRoomForOthers: a project has few appends of many events under way. Another one, and its own short
// ones, wait for none of them.
func TestLongAppendsLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	busy, quiet := f.run(t), f.run(t)
	const other entities.Project = "other"
	theirs := runCreated(newRunID())
	if _, err := f.Append(t.Context(), other, theirs); err != nil {
		t.Fatal(err)
	}
	for f.long.Try(string(home), 1, longFactor) {
		defer f.long.Release(string(home), 1)
	}
	many := make([]Request, longCall)
	for i := range many {
		many[i] = on("", entities.EventStepCreated, fmt.Sprint("step_", i))
	}
	appendAll := func(ctx context.Context, p entities.Project, id entities.RunID, requests []Request) error {
		_, err := f.AppendAll(ctx, p, id, requests, AppendOptions{})
		return err
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := appendAll(short, home, busy, many); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more long append of the project: %v", err)
	}
	if err := appendAll(t.Context(), home, quiet, many[1:]); err != nil {
		t.Errorf("a short append of the project: %v", err)
	}
	if err := appendAll(t.Context(), other, theirs.RunID, many); err != nil {
		t.Errorf("another project: %v", err)
	}
}
