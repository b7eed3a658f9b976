package overview

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// shareFor is how long an answer of [Reader.Attention] is shared: each open page asks for it every 15 s.
const shareFor = 5 * time.Second

// shared has the last answers by project. A project is read for one caller at a time; those who wait share its answer.
type shared struct {
	mu       sync.Mutex
	projects map[entities.Project]*answer
}

// answer is what wanted a person in a project.
type answer struct {
	turn  chan struct{} // has room for the caller that may use the other fields
	items []Item
	at    time.Time // by the database
	read  time.Time // by this process
}

// of returns the answer of the project, which may be empty, for the caller alone until it calls done.
func (s *shared) of(ctx context.Context, project entities.Project) (a *answer, done func(), err error) {
	s.mu.Lock()
	if s.projects == nil {
		s.projects = map[entities.Project]*answer{}
	}
	a, ok := s.projects[project]
	if !ok {
		a = &answer{turn: make(chan struct{}, 1)}
		s.projects[project] = a
	}
	s.mu.Unlock()
	select {
	case a.turn <- struct{}{}:
		return a, func() { <-a.turn }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// Attention returns what wants a person in the project, and the time at which that was read, up to 5 s ago. The caller
// must not change the items.
func (r *Reader) Attention(ctx context.Context, project entities.Project) ([]Item, time.Time, error) {
	a, done, err := r.shared.of(ctx, project)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read what wants a person: %w", err)
	}
	defer done()
	began := r.now()
	if age := began.Sub(a.read); age < 0 || age >= r.shareFor {
		f, err := r.facts(ctx, project)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("read what wants a person: %w", err)
		}
		a.items, a.at, a.read = Decide(f), f.Now, began
	}
	return a.items, a.at, nil
}
