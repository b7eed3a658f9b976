package pull_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/queue/pull"
)

func TestReserveNeedsAPollOfTheAppWithASlot(t *testing.T) {
	t.Parallel()
	d := pull.NewPolls[string, int]()
	if d.Reserve("a") != nil {
		t.Error("a slot without a poll")
	}
	p := d.Join("a", 1)
	if d.Reserve("b") != nil {
		t.Error("a slot in the poll of another app")
	}
	give := d.Reserve("a")
	if give == nil || d.Reserve("a") != nil {
		t.Fatal("want one slot")
	}
	give(nil)
	give = d.Reserve("a")
	if give == nil {
		t.Fatal("no slot after one that nothing came for")
	}
	one := 1
	give(&one)
	<-p.Filled()
	if got := p.Leave(); !slices.Equal(got, []int{1}) {
		t.Errorf("got %v, want 1", got)
	}
	if d.Reserve("a") != nil {
		t.Error("a slot in a poll that has left")
	}
}

// TestEveryDeliveryIsInOnePoll lets polls come and go while deliveries arrive: each is in exactly one, also if its poll
// leaves while the delivery is on its way.
func TestEveryDeliveryIsInOnePoll(t *testing.T) {
	t.Parallel()
	const deliveries, polls = 2000, 4
	d := pull.NewPolls[string, int]()
	var pollers, givers sync.WaitGroup
	var mu sync.Mutex
	var got []int
	done := make(chan struct{})
	for range polls {
		pollers.Go(func() {
			for {
				p := d.Join("a", 3)
				select {
				case <-p.Filled():
				case <-done:
				}
				list := p.Leave()
				if len(list) > 3 {
					t.Errorf("%d deliveries for 3 slots", len(list))
				}
				mu.Lock()
				got = append(got, list...)
				all := len(list) > 0 && len(got) == deliveries
				mu.Unlock()
				if all {
					close(done)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	reserve := func() func(*int) {
		for {
			if give := d.Reserve("a"); give != nil {
				return give
			}
			runtime.Gosched()
		}
	}
	for g := range 2 {
		givers.Go(func() {
			for i := g; i < deliveries; i += 2 {
				if i%3 == 0 {
					reserve()(nil) // one that did not come after all
				}
				reserve()(&i)
			}
		})
	}
	givers.Wait()
	pollers.Wait()
	slices.Sort(got)
	for i, n := range got {
		if i != n {
			t.Fatalf("delivery %d: got %d", i, n)
		}
	}
}
