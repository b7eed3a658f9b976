// Package cache keeps what was used last within a limit of memory.
package cache

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache keeps values by their keys: the most recently used ones within the limits. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	size func(K, V) int
	most int

	mu    sync.Mutex
	lru   *simplelru.LRU[K, V]
	bytes int
}

// New returns an empty cache of at most so many values and bytes. Size estimates the memory of a value with its key.
func New[K comparable, V any](values, bytes int, size func(K, V) int) *Cache[K, V] {
	c := &Cache[K, V]{size: size, most: bytes}
	var err error
	c.lru, err = simplelru.NewLRU(values, func(key K, value V) { c.bytes -= size(key, value) })
	if err != nil {
		panic(err) // only a size below 1 fails
	}
	return c
}

// Get returns the value of a key, if it is kept.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Get(key)
}

// Add keeps a value, unless its key has one, and removes those that exceed the limits. One that exceeds them alone is
// not kept.
func (c *Cache[K, V]) Add(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lru.Contains(key) {
		return
	}
	c.lru.Add(key, value)
	for c.bytes += c.size(key, value); c.bytes > c.most; {
		c.lru.RemoveOldest()
	}
}

// Contents returns the keys, the least recently used one first, and the estimated memory of all values.
func (c *Cache[K, V]) Contents() (keys []K, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Keys(), c.bytes
}
