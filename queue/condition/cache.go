package condition

import (
	"container/list"
	"sync"

	"cel.dev/cel-go/cel"
)

// cache keeps the programs that were used last.
type cache struct {
	mu    sync.Mutex
	limit int
	// recent has the entries, the last used first, and places where in it each text is.
	recent *list.List
	places map[string]*list.Element
}

type entry struct {
	text    string
	program cel.Program
}

func newCache(limit int) *cache {
	return &cache{limit: limit, recent: list.New(), places: map[string]*list.Element{}}
}

func (c *cache) find(text string) (cel.Program, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	place, ok := c.places[text]
	if !ok {
		return nil, false
	}
	c.recent.MoveToFront(place)
	return place.Value.(*entry).program, true
}

// add keeps a program, also if another goroutine has just done so, and drops the one that was not used for longest.
func (c *cache) add(text string, program cel.Program) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.places[text]; ok {
		return
	}
	c.places[text] = c.recent.PushFront(&entry{text, program})
	if c.recent.Len() > c.limit {
		delete(c.places, c.recent.Remove(c.recent.Back()).(*entry).text)
	}
}
