package condition

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/stepwell-dev/stepwell/entities"
)

// places limit the evaluations that run at once: half of the processors work on conditions, and each project has one
// place. Whoever waits gets a place in the order of arrival, so projects take turns.
type places struct {
	processors *semaphore.Weighted

	mu       sync.Mutex
	projects map[entities.Project]*place
}

// place is a project's place. It exists as long as somebody has it or waits for it.
type place struct {
	*semaphore.Weighted

	users int
}

func newPlaces() *places {
	processors := max(1, runtime.GOMAXPROCS(0)/2)
	return &places{processors: semaphore.NewWeighted(int64(processors)), projects: map[entities.Project]*place{}}
}

// acquire waits for the project's place, which release gives back. It fails only if the context ends.
func (p *places) acquire(ctx context.Context, project entities.Project) (release func(), err error) {
	p.mu.Lock()
	mine := p.projects[project]
	if mine == nil {
		mine = &place{Weighted: semaphore.NewWeighted(1)}
		p.projects[project] = mine
	}
	mine.users++
	p.mu.Unlock()
	leave := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(p.projects, project)
		}
	}
	if err := mine.Acquire(ctx, 1); err != nil {
		leave()
		return nil, err
	}
	return func() {
		mine.Release(1)
		leave()
	}, nil
}
