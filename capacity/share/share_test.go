package share

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeyLeavesRoomForOthers checks how many units each key gets if all take as many as they can, one after the other.
func TestKeyLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		units, factor int64
		want          []int64 // of the first key, the second, …
	}{
		{units: 2500, factor: 4, want: []int64{2000, 400, 80, 16, 4, 0}},
		{units: 1000, factor: 3, want: []int64{750, 188, 47, 12, 3, 0}},
		{units: 1000, factor: 1, want: []int64{500, 250, 125, 63, 31, 16}},
		{units: 1000, factor: 7, want: []int64{875, 110, 14, 1, 0}},
		{units: math.MaxInt64, factor: 0, want: []int64{1, 1, 1}},
		{units: 20, factor: 19, want: []int64{19, 1, 0}},
		{units: 4, factor: 3, want: []int64{3, 1, 0}},
		{units: 4, factor: 1, want: []int64{2, 1, 1, 0}},
		{units: 2, factor: 1, want: []int64{1, 1, 0}},
		{units: 1, factor: 4, want: []int64{1, 0}},
		{units: 0, factor: 4, want: []int64{0}},
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
		if most := p.Most(tt.factor); tt.factor > 0 && most != max(1, tt.want[0]) {
			t.Errorf("%d units, factor %d: got %d as the most of a key, want %d", tt.units, tt.factor, most, tt.want[0])
		}
	}
}

// TestBusyKeysConverge checks that keys which come late get their share as the others release units.
func TestBusyKeysConverge(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		units, factor int64
		keys          int
		want          int64 // the least that each gets
	}{
		{units: 700, factor: 3, keys: 2, want: 300},
		{units: 2500, factor: 4, keys: 2, want: 1110},
		{units: 2500, factor: 4, keys: 50, want: 48},
	} {
		p, held := NewPool(tt.units), make([]int64, tt.keys)
		for range 200_000 {
			i := 0 // the key that holds the most
			for k := range held {
				if held[k] > held[i] {
					i = k
				}
			}
			if held[i] > 0 {
				p.Release(fmt.Sprint(i), 1)
				held[i]--
			}
			for k := range held {
				if p.Try(fmt.Sprint(k), 1, tt.factor) {
					held[k]++
				}
			}
			if slices.Min(held) >= tt.want {
				break
			}
		}
		if least := slices.Min(held); least < tt.want {
			t.Errorf("one of %d keys got %d of %d, want at least %d", tt.keys, least, tt.units, tt.want)
		}
		if !p.Try("newcomer", 1, tt.factor) {
			t.Errorf("%d keys left nothing of %d to a newcomer", tt.keys, tt.units)
		}
	}
}

// TestRoomIsWhatCanBeTaken compares the number of units that are offered with what a key then gets.
func TestRoomIsWhatCanBeTaken(t *testing.T) {
	t.Parallel()
	for range 1000 {
		p, factor := NewPool(rand.Int64N(50)), rand.Int64N(5)
		p.Contended = rand.Int64N(5)
		for range rand.IntN(50) {
			p.Try(fmt.Sprint(rand.IntN(4)), 1, factor)
		}
		for i := range 5 {
			key := fmt.Sprint(i)
			want, got := p.Room(key, factor), int64(0)
			for p.Try(key, 1, factor) {
				got++
			}
			if got > 0 {
				p.Release(key, got)
			}
			if got != want {
				t.Fatalf("key %s was offered %d of %d units with factor %d, and got %d", key, want, p.units, factor, got)
			}
		}
	}
}

// TestClaimsOfOneKeyDoNotDelayOthers also checks that the claims of a key are granted in order, and can be withdrawn.
func TestClaimsOfOneKeyDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100)
		if !p.Try("busy", 70, 3) {
			t.Fatal("the first key got nothing")
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- p.Take(ctx, "busy", 20, 3) }()
		synctest.Wait()
		go func() { second <- p.Take(t.Context(), "busy", 1, 3) }()
		synctest.Wait()
		if p.Try("busy", 1, 3) || len(second) > 0 || p.Room("busy", 3) > 0 {
			t.Error("a claim overtook an older one of the same key")
		}
		if err := p.Take(t.Context(), "other", 20, 3); err != nil {
			t.Error(err)
		}
		p.Release("other", 20)
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error", err)
		}
		if err := <-second; err != nil { // although nobody releases anything
			t.Error(err)
		}
		p.Release("busy", 71)
		wantUnused(t, p)
	})
}

// TestWaitingKeysTakeTurns: a key that arrives late waits for few claims of one that arrived early.
func TestWaitingKeysTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(1)
		if !p.Try("holder", 1, 1) {
			t.Fatal("there is no unit")
		}
		var order []string // changed only by the one key that has the unit
		var all sync.WaitGroup
		start := func(key string) {
			all.Go(func() {
				if err := p.Take(t.Context(), key, 1, 1); err != nil {
					t.Error(err)
					return
				}
				order = append(order, key)
				p.Release(key, 1)
			})
			synctest.Wait()
		}
		for range 10 {
			start("early")
		}
		start("late")
		start("later")
		p.Release("holder", 1)
		all.Wait()
		if want := []string{"early", "late", "later", "early"}; !slices.Equal(order[:4], want) {
			t.Errorf("the order is %v, want %v first", order, want)
		}
		wantUnused(t, p)
	})
}

// TestContended: a key is limited further only while another one takes something, and waits no longer than that.
func TestContended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(20)
		p.Contended = 2
		takes := func(key string, want int64) {
			t.Helper()
			got := int64(0)
			for p.Try(key, 1, 4) {
				got++
			}
			if got != want {
				t.Errorf("key %s got %d, want %d", key, got, want)
			}
		}
		takes("a", 16)
		takes("b", 2)
		p.Release("a", 14)
		p.Release("b", 2)
		takes("a", 0)
		time.Sleep(activePeriod + time.Millisecond)
		takes("a", 0) // b has just been active
		start := time.Now()
		if err := p.Take(t.Context(), "a", 1, 4); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited > activePeriod {
			t.Errorf("a key waited for another %s after the last activity of others", waited)
		}
		takes("a", 13)
		p.Release("a", 16)
		time.Sleep(time.Minute)
		wantUnused(t, p)
		if p.aging {
			t.Error("the timer runs on although nobody is active")
		}
	})
}

// TestOwedUnitsAreTakenFromNobody: a key that owes units gets no more before it has paid, and others get theirs.
func TestOwedUnitsAreTakenFromNobody(t *testing.T) {
	t.Parallel()
	p := NewPool(10)
	for range 20 {
		p.Owe("a", 1, 4)
	}
	if p.HeldBy("a") != 20 || p.Free() != 2 {
		t.Errorf("the key uses %d units, %d are free, want 20 and 2", p.HeldBy("a"), p.Free())
	}
	if p.Room("a", 4) != 0 || p.Try("a", 1, 4) {
		t.Error("a key that owes units got another one")
	}
	if p.Room("b", 4) != 2 || !p.Try("b", 2, 4) {
		t.Error("another key has no room")
	}
	p.Owe("c", 1, 4)
	p.Release("c", 1)
	p.Release("b", 2)
	for left := int64(19); left >= 0; left-- {
		p.Release("a", 1)
		if got, want := p.Try("a", 1, 4), left < 8; got != want {
			t.Errorf("the key has %d units, and may take another one: %v", left, got)
		} else if got {
			p.Release("a", 1)
		}
	}
	wantUnused(t, p)
}

// TestRacersShareWithinTheLimit checks that no unit and no wake-up is lost, and that no more units are in use than
// there are. Half of the racers give up waiting; the others wait until they get what they want.
func TestRacersShareWithinTheLimit(t *testing.T) {
	t.Parallel()
	const units, factor, racers, rounds = 20, 4, 64, 200
	for _, tt := range []struct {
		name            string
		most, contended int64
	}{
		{name: "single units", most: 1},
		{name: "amounts", most: units},
		{name: "while others are active", most: 1, contended: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := NewPool(units)
			p.Contended = tt.contended
			var held atomic.Int64
			var all sync.WaitGroup
			for i := range racers {
				all.Go(func() {
					key := fmt.Sprint(i % 5)
					for range rounds {
						n := 1 + rand.Int64N(tt.most)
						ctx, cancel := context.WithCancel(context.Background())
						if i%2 == 0 {
							ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(300))*time.Microsecond)
						}
						if err := p.Take(ctx, key, n, factor); err == nil {
							if got := held.Add(n); got > units {
								t.Errorf("%d are held, want at most %d", got, units)
							}
							held.Add(-n)
							p.Release(key, n)
						} else if !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						cancel()
					}
				})
			}
			all.Wait()
			wantUnused(t, p)
		})
	}
}

// wantUnused checks that all units are free and nothing is remembered.
func wantUnused(t *testing.T, p *Pool) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free != p.units || len(p.accounts) != 0 || len(p.waiting) != 0 {
		t.Errorf("%d of %d units are free; %d accounts and %d waiting are left",
			p.free, p.units, len(p.accounts), len(p.waiting))
	}
}
