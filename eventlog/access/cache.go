package access

import (
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities/admin"
)

const (
	// CacheTime is for how long a server believes what the database said of a key: a revocation acts everywhere
	// within that time.
	CacheTime = 5 * time.Second
	// That a well-formed text is no key is believed for a shorter time and of few, so that whoever makes them up
	// has no use of our memory. It cannot become wrong: a key's text is made when the key is.
	strangerTime = time.Second
	maxStrangers = 1000
)

// cache is what the database said of keys.
type cache struct {
	mu        sync.Mutex
	known     map[hash]answer
	strangers map[hash]time.Time
}

// answer is what the database said, and when it was asked.
type answer struct {
	key admin.Key
	at  time.Time
}

func newCache() *cache { return &cache{known: map[hash]answer{}, strangers: map[hash]time.Time{}} }

// fresh reports whether what was asked at the time holds now. A clock that was put back makes it old.
func fresh(at, now time.Time, last time.Duration) bool {
	age := now.Sub(at)
	return age >= 0 && age < last
}

// find is what is known of a text, if anything: its key, or that it is [entities.ErrKeyNotFound].
func (c *cache) find(h hash, now time.Time) (key admin.Key, known bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.known[h]; ok && fresh(a.at, now, CacheTime) {
		return a.key, true, nil
	}
	if at, ok := c.strangers[h]; ok && fresh(at, now, strangerTime) {
		return admin.Key{}, true, admin.ErrKeyNotFound
	}
	return admin.Key{}, false, nil
}

// last is the key that was last known of a text.
func (c *cache) last(h hash) (admin.Key, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.known[h]
	return a.key, ok
}

// keep remembers a key as it was, or was yet to be, at the time. There are no more of them than keys.
func (c *cache) keep(h hash, k admin.Key, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[h] = answer{k, at}
}

// keepStranger remembers that a text was no key at the time.
func (c *cache) keepStranger(h hash, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.strangers) >= maxStrangers {
		clear(c.strangers)
	}
	c.strangers[h] = at
}
