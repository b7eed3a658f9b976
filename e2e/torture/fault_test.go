package torture

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fault is one kind of fault. do injects it, for the given time if it has a duration, and returns when the victim may
// recover.
type fault struct {
	kind string
	// from and to limit its duration.
	from, to time.Duration
	do       func(ctx context.Context, lasting time.Duration) error
}

// injector injects faults into one victim, one after the other. It draws them from a deck that it reshuffles when all
// faults have been drawn, so that every kind occurs soon and the seed determines the order.
type injector struct {
	victim string
	deck   []fault
	// calm is the average time between two faults.
	calm time.Duration
	rng  *rand.Rand
}

// injectors returns an injector for Postgres and for each server and app.
func (s *cluster) injectors(seed uint64, calm time.Duration) (all []*injector) {
	add := func(victim string, deck ...fault) {
		rng := rand.New(rand.NewPCG(seed, 1_000_000+uint64(len(all))))
		all = append(all, &injector{victim, deck, calm, rng})
	}
	add("postgres",
		fault{"postgres restarted, immediate", 0, 2 * time.Second, s.postgres.immediate},
		fault{"postgres restarted, fast", 0, 2 * time.Second, s.postgres.fast},
		fault{"all connections to postgres cut", 0, 0, s.postgres.cut})
	for _, v := range s.servers {
		add(v.title,
			fault{"server killed (SIGKILL)", 0, 0, v.kill},
			fault{"server stopped (SIGTERM)", 0, 0, v.stop},
			fault{"server frozen (SIGSTOP, SIGCONT)", time.Second, 6 * time.Second, v.freeze})
	}
	for _, v := range s.apps {
		add(v.title,
			fault{"app killed (SIGKILL)", 0, 0, v.kill},
			fault{"app stopped (SIGTERM)", 0, 0, v.stop},
			fault{"app frozen (SIGSTOP, SIGCONT)", time.Second, 6 * time.Second, v.freeze})
	}
	return all
}

// longFreeze is a freeze that is long enough for other servers to take over the frozen server's work.
func (s *cluster) longFreeze() fault {
	return fault{"server frozen for over 30 s", 32 * time.Second, 40 * time.Second, s.servers[1].freeze}
}

// next returns the nth fault, its duration, and the pause before it.
func (m *injector) next(n int) (f fault, lasting, calm time.Duration) {
	i := n % len(m.deck)
	if i == 0 {
		m.rng.Shuffle(len(m.deck), func(i, j int) { m.deck[i], m.deck[j] = m.deck[j], m.deck[i] })
	}
	f = m.deck[i]
	if f.to > f.from {
		f.from += time.Duration(m.rng.Int64N(int64(f.to - f.from)))
	}
	return f, f.from, m.calm/2 + time.Duration(m.rng.Int64N(int64(m.calm)))
}

// run injects faults until the given time, and until each kind has occurred at least once.
func (m *injector) run(ctx context.Context, t *testing.T, until time.Time, count *counter) {
	for n := 0; n < len(m.deck) || time.Now().Before(until); n++ {
		f, lasting, calm := m.next(n)
		if !pause(ctx, calm) {
			return
		}
		t.Logf("%s: %s %s %s", time.Now().Format("15:04:05.000"), m.victim, f.kind, lasting.Round(time.Millisecond))
		if err := f.do(ctx, lasting); err != nil {
			t.Errorf("%s, %s: %v", m.victim, f.kind, err)
		}
		count.add(f.kind)
	}
}

// counter counts things by name.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

// lines formats the counts, one per line.
func (c *counter) lines() (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.n)) {
		lines = append(lines, fmt.Sprintf("%s: %d", name, c.n[name]))
	}
	return lines
}

func (c *counter) String() string { return strings.Join(c.lines(), ", ") }

// TestSeedDeterminesFaults checks that the faults, their durations and pauses depend only on the seed, and that every
// kind occurs once in each pass through the deck.
func TestSeedDeterminesFaults(t *testing.T) {
	t.Parallel()
	schedule := func(seed uint64) (all []string) {
		s := &cluster{postgres: &postgres{}, servers: [2]*server{{supervised: &supervised{}}, {supervised: &supervised{}}}, apps: []*app{{supervised: &supervised{}}}}
		for _, m := range s.injectors(seed, time.Second) {
			kinds := map[string]bool{}
			for n := range 2 * len(m.deck) {
				f, lasting, calm := m.next(n)
				kinds[f.kind] = true
				all = append(all, fmt.Sprint(f.kind, lasting, calm))
				if n%len(m.deck) == len(m.deck)-1 && len(kinds) != len(m.deck) {
					t.Errorf("after %d faults, their kinds are %v", n+1, kinds)
				}
			}
		}
		return all
	}
	if one, again := schedule(1), schedule(1); !slices.Equal(one, again) {
		t.Errorf("the same seed yields %q and %q", one, again)
	}
	if one, two := schedule(1), schedule(2); slices.Equal(one, two) {
		t.Errorf("two seeds yield the same: %q", one)
	}
}
