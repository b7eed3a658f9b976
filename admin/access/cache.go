package access

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/stepwell-dev/stepwell/admin"
)

const (
	// CacheTime limits how long a cached key is used without asking the database: a revocation takes effect everywhere
	// within that time.
	CacheTime = 5 * time.Second
	// unknownTime and maxUnknown limit the cache of well-formed texts that are not keys, so that a caller who invents
	// texts cannot use up memory. An entry cannot become wrong, because each new key gets a new random text.
	unknownTime = time.Second
	maxUnknown  = 1000
)

// cache holds the answers of the database about keys. Its times come from the injected clock, so it cannot be an
// expirable LRU; and known keys are never evicted, because [Keys.Last] needs them while the database is unreachable.
type cache struct {
	mu      sync.Mutex
	known   map[hash]answer // at most one for each key that exists
	unknown *lru.Cache[hash, time.Time]
}

// answer is a key as the database returned it, and when.
type answer struct {
	key admin.Key
	at  time.Time
}

func newCache() *cache {
	return &cache{known: map[hash]answer{}, unknown: newLRU[hash, time.Time](maxUnknown)}
}

func newLRU[K comparable, V any](size int) *lru.Cache[K, V] {
	cache, err := lru.New[K, V](size)
	if err != nil {
		panic(err) // only a size below 1 fails
	}
	return cache
}

// fresh reports whether an entry written at the given time is still valid. A clock that was set back makes it stale.
func fresh(at, now time.Time, lifetime time.Duration) bool {
	age := now.Sub(at)
	return age >= 0 && age < lifetime
}

// find returns the cached answer for a text: its key, or [admin.ErrKeyNotFound]. Without a fresh answer, cached is
// false.
func (c *cache) find(h hash, now time.Time) (key admin.Key, cached bool, err error) {
	c.mu.Lock()
	a, ok := c.known[h]
	c.mu.Unlock()
	if ok && fresh(a.at, now, CacheTime) {
		return a.key, true, nil
	}
	if at, ok := c.unknown.Get(h); ok && fresh(at, now, unknownTime) {
		return admin.Key{}, true, admin.ErrKeyNotFound
	}
	return admin.Key{}, false, nil
}

// last returns the key that a text had when it was last read, however long ago.
func (c *cache) last(h hash) (admin.Key, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.known[h]
	return a.key, ok
}

// add caches a key. The time is that before it was read, so that a concurrent change makes it stale, never fresher.
func (c *cache) add(h hash, k admin.Key, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[h] = answer{k, at}
}
