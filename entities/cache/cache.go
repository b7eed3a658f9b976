// Package cache keeps what was used last within a limit of memory.
package cache

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache keeps values by their keys: the most recently used ones within the limits. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	size func(K, V) int
	most int

	mu    sync.Mutex
	lru   *simplelru.LRU[K, entry[V]]
	bytes int
}

// entry is a value with what it counts for the limit, and when it was put.
type entry[V any] struct {
	value V
	size  int
	at    time.Time
}

// New returns an empty cache of at most so many values and bytes. Size estimates the memory of a value with its key
// when it is put.
func New[K comparable, V any](values, bytes int, size func(K, V) int) *Cache[K, V] {
	c := &Cache[K, V]{size: size, most: bytes}
	var err error
	c.lru, err = simplelru.NewLRU(values, func(_ K, gone entry[V]) { c.bytes -= gone.size })
	if err != nil {
		panic(err) // only a size below 1 fails
	}
	return c
}

// Get returns the value of a key, if it is kept. It counts as a use of the value.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.lru.Get(key)
	return e.value, ok
}

// Peek is [Cache.Get] that does not count as a use.
func (c *Cache[K, V]) Peek(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.lru.Peek(key)
	return e.value, ok
}

// With calls a function with the value of a key, if it is kept, which nobody can get or take meanwhile. It does not
// count as a use.
func (c *Cache[K, V]) With(key K, do func(V)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.lru.Peek(key); ok {
		do(e.value)
	}
}

// Take removes a value and returns it, if it is kept.
func (c *Cache[K, V]) Take(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.lru.Peek(key)
	c.lru.Remove(key)
	return e.value, ok
}

// Remove removes a value.
func (c *Cache[K, V]) Remove(key K) { c.Take(key) }

// Put keeps a value in place of the one that its key has, and removes those that exceed the limits. One that exceeds
// them alone is not kept.
func (c *Cache[K, V]) Put(key K, value V) { c.PutAt(key, value, time.Time{}, time.Time{}) }

// PutAt is [Cache.Put] at a time. It also removes what was put before the time oldest, as long as that is the least
// recently used.
func (c *Cache[K, V]) PutAt(key K, value V, at, oldest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Remove(key) // a replacement does not count the old one
	e := entry[V]{value, c.size(key, value), at}
	if e.size > c.most {
		return
	}
	c.bytes += e.size
	c.lru.Add(key, e)
	for {
		if _, last, ok := c.lru.GetOldest(); !ok || c.bytes <= c.most && !last.at.Before(oldest) {
			return
		}
		c.lru.RemoveOldest()
	}
}

// Contents returns the keys, the least recently used one first, and the estimated memory of all values.
func (c *Cache[K, V]) Contents() (keys []K, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Keys(), c.bytes
}
