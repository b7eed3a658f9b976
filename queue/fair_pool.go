package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// greed bounds what one project may hold: so many times as much as is still free. This is the dynamic threshold of
// network switches that share a buffer. A project alone gets four fifths of everything, two that want all get four
// ninths each, and a newcomer always finds something free.
const greed = 4

// fits reports whether a project that holds own of a resource may take n more of it while so much is free.
func fits(own, free, n int64) bool { return n <= free && own+n <= greed*(free-n+1) }

// fairPool divides a resource between projects, so that none of them can take all of it: places for deliveries, memory
// for bodies, or turns to start a delivery. Nothing is reserved for a project that does not need it.
type fairPool struct {
	mu       sync.Mutex
	limit    int64
	taken    int64
	projects map[entities.Project]*grant

	// few, if not 0, is what a project gets at most while others are active.
	few int64
	// active has the projects that took something since the last call of age, before those of the period before it.
	active, before map[entities.Project]struct{}
	aging          bool          // age will be called
	period         time.Duration // after which age is called
}

// activePeriod is how long a project counts as active after it took something; up to twice as long.
const activePeriod = 100 * time.Millisecond

// grant is what a project holds, and what it waits for in order.
type grant struct {
	taken   int64
	waiting []*claimant
}

type claimant struct {
	n       int64
	granted chan struct{}
}

func newFairPool(limit int64) *fairPool {
	return &fairPool{limit: limit, projects: map[entities.Project]*grant{}, period: activePeriod}
}

// most returns how much a project gets that is alone.
func (s *fairPool) most() int64 { return max(1, greed*(s.limit+1)/(greed+1)) }

// room returns how many units the project may take now, one by one.
func (s *fairPool) room(p entities.Project) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ok := s.projects[p]
	if !ok {
		own = &grant{}
	}
	if len(own.waiting) > 0 {
		return 0
	}
	free := s.limit - s.taken
	return int(max(0, min(free, (greed*(free+1)-own.taken)/(greed+1))))
}

// try takes n for the project if it may take that now, and reports whether it did.
func (s *fairPool) try(p entities.Project, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of(p)
	defer s.forget(p, own)
	if len(own.waiting) > 0 || !s.fits(p, own, n) {
		return false
	}
	s.grant(p, own, n)
	return true
}

// take waits until the project may take n, after those of the project that wait already. It fails with the context's
// error. N must not exceed [fairPool.most].
func (s *fairPool) take(ctx context.Context, p entities.Project, n int64) error {
	if s.try(p, n) {
		return nil
	}
	s.mu.Lock()
	own, c := s.of(p), &claimant{n, make(chan struct{})}
	own.waiting = append(own.waiting, c)
	s.serve() // something may have been released since the attempt
	s.mu.Unlock()
	select {
	case <-c.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(own.waiting, c); i >= 0 {
		own.waiting = slices.Delete(own.waiting, i, i+1)
	} else {
		own.taken, s.taken = own.taken-n, s.taken-n // it was granted meanwhile
	}
	s.serve()
	s.forget(p, own)
	return ctx.Err()
}

// release returns n that the project has taken.
func (s *fairPool) release(p entities.Project, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of(p)
	own.taken, s.taken = own.taken-n, s.taken-n
	s.serve()
	s.forget(p, own)
}

// serve grants what projects wait for, beginning with those that hold the least. The caller holds the lock.
func (s *fairPool) serve() {
	var waiting []entities.Project
	for p, own := range s.projects {
		if len(own.waiting) > 0 {
			waiting = append(waiting, p)
		}
	}
	for len(waiting) > 0 {
		i := 0
		for k, p := range waiting {
			if s.projects[p].taken < s.projects[waiting[i]].taken {
				i = k
			}
		}
		p, own := waiting[i], s.projects[waiting[i]]
		if first := own.waiting[0]; s.fits(p, own, first.n) {
			own.waiting = own.waiting[1:]
			s.grant(p, own, first.n)
			close(first.granted)
			if len(own.waiting) > 0 {
				continue
			}
		}
		waiting = slices.Delete(waiting, i, i+1)
	}
}

func (s *fairPool) grant(p entities.Project, own *grant, n int64) {
	own.taken, s.taken = own.taken+n, s.taken+n
	if s.few == 0 {
		return
	}
	if s.active == nil {
		s.active = map[entities.Project]struct{}{}
	}
	s.active[p] = struct{}{}
	if !s.aging {
		s.aging = true
		time.AfterFunc(s.period, s.age)
	}
}

// age ends a period of activity.
func (s *fairPool) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.active = s.active, nil
	if s.aging = len(s.before) > 0; s.aging {
		time.AfterFunc(s.period, s.age)
	}
	s.serve()
}

// fits reports whether the project may take n now. The caller holds the lock.
func (s *fairPool) fits(p entities.Project, own *grant, n int64) bool {
	if s.few > 0 && own.taken+n > s.few && (hasOther(s.active, p) || hasOther(s.before, p)) {
		return false
	}
	return fits(own.taken, s.limit-s.taken, n)
}

// hasOther reports whether the set has a project other than p.
func hasOther(set map[entities.Project]struct{}, p entities.Project) bool {
	_, ok := set[p]
	return len(set) > 1 || len(set) == 1 && !ok
}

// of returns the share of a project. The caller holds the lock.
func (s *fairPool) of(p entities.Project) *grant {
	own := s.projects[p]
	if own == nil {
		own = &grant{}
		s.projects[p] = own
	}
	return own
}

// forget drops the share of a project that neither holds nor waits for anything. The caller holds the lock.
func (s *fairPool) forget(p entities.Project, own *grant) {
	if own.taken == 0 && len(own.waiting) == 0 {
		delete(s.projects, p)
	}
}
