package share

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestKeyLeavesRoomForOthers checks how many units each key gets if all take as many as they can, one after the other.
func TestKeyLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		units, factor int64
		want          []int64 // of the first key, the second, …
	}{
		{units: 1000, factor: 3, want: []int64{750, 187, 47, 12, 3, 1}},
		{units: 1000, factor: 1, want: []int64{500, 250, 125, 62, 31, 16}},
		{units: 1000, factor: 7, want: []int64{875, 109, 14, 1, 1, 0}},
		{units: 1000, factor: 0, want: []int64{1, 1, 1}},
		{units: 4, factor: 3, want: []int64{3, 1, 0}},
		{units: 1, factor: 3, want: []int64{1, 0}},
	} {
		p := NewPool(tt.units)
		for i, want := range tt.want {
			got := int64(0)
			for p.Try(fmt.Sprint(i), 1, tt.factor) {
				got++
			}
			if got != want {
				t.Errorf("%d units, factor %d: key %d got %d, want %d", tt.units, tt.factor, i, got, want)
			}
		}
	}
}

// TestBusyKeysConverge checks that a key that comes late gets its share as the others give units back.
func TestBusyKeysConverge(t *testing.T) {
	t.Parallel()
	p := NewPool(700)
	for p.Try("first", 1, 3) {
	}
	for range 2000 {
		p.Give("first", 1)
		for p.Try("late", 1, 3) {
		}
		p.Try("first", 1, 3)
		if !p.Try("first", 1, 3) && p.accounts["first"].held == p.accounts["late"].held {
			break
		}
	}
	if first, late := p.accounts["first"].held, p.accounts["late"].held; first != 300 || late != 300 {
		t.Errorf("the keys hold %d and %d, want three sevenths each", first, late)
	}
}

func TestClaimsOfOneKeyDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	p := NewPool(100)
	if !p.Try("greedy", 70, 3) {
		t.Fatal("the first key got nothing")
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() { waited <- p.Take(ctx, "greedy", 20, 3) }()
	for {
		p.mu.Lock()
		n := len(p.waiting)
		p.mu.Unlock()
		if n == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if p.Try("greedy", 1, 3) {
		t.Error("a claim overtook an older one of the same key")
	}
	if err := p.Take(t.Context(), "other", 20, 3); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	p.Give("greedy", 70)
	p.Give("other", 20)
	if len(p.accounts) != 0 || len(p.waiting) != 0 || p.free != 100 {
		t.Errorf("%d accounts, %d waiting and %d free units are left", len(p.accounts), len(p.waiting), p.free)
	}
}

// TestNothingIsLostUnderContention checks that all units are free again, that every claim ends, and that there never are
// more units in use than there are.
func TestNothingIsLostUnderContention(t *testing.T) {
	t.Parallel()
	const units = 50
	p := NewPool(units)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			key := fmt.Sprint(i % 5)
			for range 500 {
				n := 1 + random.Int64N(units)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(300))*time.Microsecond)
				if p.Take(ctx, key, n, 3) == nil {
					p.mu.Lock()
					if p.free < 0 {
						t.Errorf("%d units are free", p.free)
					}
					p.mu.Unlock()
					p.Give(key, n)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if p.free != units || len(p.accounts) != 0 || len(p.waiting) != 0 {
		t.Errorf("%d free units, %d accounts, %d waiting; want %d, 0, 0", p.free, len(p.accounts), len(p.waiting), units)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	type read struct {
		after time.Duration
		bytes int
	}
	for _, tt := range []struct {
		name  string
		reads []read
		want  time.Duration
	}{
		{"nothing sent", []read{{10 * time.Second, 0}}, 0},
		{"a byte a second", []read{{5 * time.Second, 5}, {5 * time.Second, 5}}, 10 * time.Millisecond},
		{"exactly the rate", []read{{9 * time.Second, 9000}, {9 * time.Second, 9000}}, 10 * time.Second},
		{"much at once", []read{{0, 100 << 20}, {29 * time.Second, 0}}, time.Second},
	} {
		p := Pace{Credit: 10 * time.Second, Most: 30 * time.Second, Rate: 1000}
		for _, r := range tt.reads {
			p.Received(r.after, r.bytes)
		}
		if p.Credit != tt.want {
			t.Errorf("%s: %s of credit are left, want %s", tt.name, p.Credit, tt.want)
		}
	}
}
