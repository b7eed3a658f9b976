package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

func TestFits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		own, free, n int64
		want         bool
	}{
		{own: 0, free: 0, n: 1, want: false},
		{own: 0, free: 1, n: 1, want: true}, // a newcomer gets the last one
		{own: 3, free: 1, n: 1, want: true},
		{own: 4, free: 1, n: 1, want: false},
		{own: 79, free: 21, n: 1, want: true},
		{own: 80, free: 20, n: 1, want: false}, // alone: four fifths
		{own: 44, free: 12, n: 1, want: true},  // beside an equal: four ninths
		{own: 45, free: 11, n: 1, want: false},
		{own: 0, free: 100, n: 80, want: true},
		{own: 0, free: 100, n: 81, want: false},
		{own: 40, free: 60, n: 41, want: false},
	} {
		if got := fits(tt.own, tt.free, tt.n); got != tt.want {
			t.Errorf("a project that holds %d takes %d of %d free: got %v, want %v", tt.own, tt.n, tt.free, got, tt.want)
		}
	}
}

// TestSharesOfGreedyProjects lets projects take as much as they can.
func TestSharesOfGreedyProjects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit    int64
		projects int
		want     int64 // the least that each gets
	}{
		{limit: 1, projects: 1, want: 1},
		{limit: 2, projects: 1, want: 2},
		{limit: 2500, projects: 1, want: 2000},
		{limit: 2500, projects: 2, want: 1110},
		{limit: 2500, projects: 50, want: 49},
	} {
		s := newFairPool(tt.limit)
		for more := true; more; {
			more = false
			for i := range tt.projects {
				more = s.try(entities.Project(fmt.Sprint(i)), 1) || more
			}
		}
		for i := range tt.projects {
			if got := s.projects[entities.Project(fmt.Sprint(i))].taken; got < tt.want {
				t.Errorf("one of %d projects got %d of %d, want at least %d", tt.projects, got, tt.limit, tt.want)
			}
		}
		if tt.limit > 4 && !s.try("newcomer", 1) {
			t.Errorf("%d projects left nothing of %d to a newcomer", tt.projects, tt.limit)
		}
	}
}

// TestRoomIsWhatCanBeTaken compares the number of places that are offered with what a project then gets.
func TestRoomIsWhatCanBeTaken(t *testing.T) {
	t.Parallel()
	for range 1000 {
		s := newFairPool(rand.Int64N(50))
		for range rand.IntN(50) {
			s.try(entities.Project(fmt.Sprint(rand.IntN(4))), 1)
		}
		for i := range 5 {
			p := entities.Project(fmt.Sprint(i))
			want, got := s.room(p), 0
			for s.try(p, 1) {
				got++
			}
			s.release(p, int64(got))
			if got != want {
				t.Fatalf("project %s was offered %d of %d places, and got %d", p, want, s.limit, got)
			}
		}
	}
}

// TestRacersShareWithinTheLimit: tasks of several projects take and release, and some give up waiting.
func TestRacersShareWithinTheLimit(t *testing.T) {
	t.Parallel()
	const limit, racers, rounds = 20, 64, 200
	s := newFairPool(limit)
	var held atomic.Int64
	var all sync.WaitGroup
	for i := range racers {
		all.Go(func() {
			p := entities.Project(fmt.Sprint(i % 3))
			for range rounds {
				n := 1 + rand.Int64N(s.most())
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(2000))*time.Microsecond)
				if s.take(ctx, p, n) == nil {
					if got := held.Add(n); got > limit {
						t.Errorf("%d are held, want at most %d", got, limit)
					}
					held.Add(-n)
					s.release(p, n)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if s.taken != 0 || len(s.projects) != 0 {
		t.Errorf("%d are taken by %d projects after all were released", s.taken, len(s.projects))
	}
}

// TestFewWhileOthersAreActive: a project is limited further only while another one takes something.
func TestFewWhileOthersAreActive(t *testing.T) {
	t.Parallel()
	s := newFairPool(20)
	s.few, s.period = 2, time.Hour
	for range 16 {
		if !s.try("a", 1) {
			t.Fatal("a project alone got less than four fifths")
		}
	}
	if !s.try("b", 1) || !s.try("b", 1) || s.try("b", 1) {
		t.Error("a project beside an active one did not get two")
	}
	s.release("a", 14)
	if s.try("a", 1) {
		t.Error("a project got more than two beside an active one")
	}
	s.release("b", 2)
	s.age()
	if s.try("a", 1) {
		t.Error("a project got more than two when another one had just been active")
	}
	s.age()
	for range 14 {
		if !s.try("a", 1) {
			t.Fatal("a project got less than four fifths after the other one was active")
		}
	}
}

// TestWaitingProjectsDoNotBlockOthers: a project that has its share waits, and others do not wait behind it.
func TestWaitingProjectsDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	s := newFairPool(10)
	if !s.try("greedy", 8) {
		t.Fatal("a project alone does not get four fifths")
	}
	granted := make(chan error, 1)
	go func() { granted <- s.take(t.Context(), "greedy", 1) }()
	eventually(t, "the greedy project waits", func() bool { return s.room("greedy") == 0 })
	if err := s.take(t.Context(), "other", 1); err != nil {
		t.Fatal(err)
	}
	s.release("other", 1)
	select {
	case <-granted:
		t.Error("the greedy project got more than its share")
	default:
	}
	s.release("greedy", 1)
	if err := receive(t, "the share", granted); err != nil {
		t.Error(err)
	}
}
