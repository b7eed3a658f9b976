// Package fair shares a scarce resource between projects, so that one that wants all of it delays the others little. It
// imports package entities.
package fair

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/stepwell-dev/stepwell/entities"
)

// Share is a resource with a number of places. A project can occupy only some of them. It is safe for concurrent use.
//
// Operations that wait get a place in the order of their arrival. A project waits with as many as it may have places,
// and with the rest of its operations behind its own: another project comes after few of them, however many there are.
type Share struct {
	// Idle is how long a project's place stays empty after an operation, as a multiple of the time that the operation
	// took. With 1, a project has half of the time of its places. The default is 0.
	Idle float64

	places *semaphore.Weighted
	each   int64
	now    func() time.Time

	mu       sync.Mutex
	projects map[entities.Project]*part
}

// part is what one project may occupy. It exists while operations of the project run or wait.
type part struct {
	places     *semaphore.Weighted
	operations int
}

// New returns a share with the given number of places in all, and for each project. Now is its clock.
func New(places, each int, now func() time.Time) *Share {
	return &Share{
		places: semaphore.NewWeighted(int64(places)), each: int64(each), now: now,
		projects: map[entities.Project]*part{},
	}
}

// Do waits for a place, runs the operation, and returns its error. It fails with the error of the context if that ends
// while it waits.
func (s *Share) Do(ctx context.Context, project entities.Project, operation func() error) error {
	own := s.enter(project)
	if err := own.places.Acquire(ctx, 1); err != nil {
		s.leave(project, own)
		return err
	}
	var idle time.Duration
	defer func() {
		if idle == 0 {
			s.release(project, own)
		} else {
			time.AfterFunc(idle, func() { s.release(project, own) })
		}
	}()
	if err := s.places.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.places.Release(1)
	start := s.now()
	defer func() { idle = time.Duration(s.Idle * float64(s.now().Sub(start))) }()
	return operation()
}

// release gives the project's place to its next operation.
func (s *Share) release(project entities.Project, own *part) {
	own.places.Release(1)
	s.leave(project, own)
}

func (s *Share) enter(project entities.Project) *part {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.projects[project]
	if own == nil {
		own = &part{places: semaphore.NewWeighted(s.each)}
		s.projects[project] = own
	}
	own.operations++
	return own
}

func (s *Share) leave(project entities.Project, own *part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.operations--; own.operations == 0 {
		delete(s.projects, project)
	}
}
