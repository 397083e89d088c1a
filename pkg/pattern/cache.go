package pattern

import (
	"container/list"
	"sync"
)

// Cache stores the tables of the most recently used patterns, and the errors of Compile. It is safe for concurrent use: a pattern that
// takes long to compile only delays callers that use it.
type Cache struct {
	compile func(text string, dialect Dialect) (*Table, error)

	mu      sync.Mutex
	size    int
	order   *list.List
	entries map[cacheKey]*list.Element
}

type cacheKey struct {
	text    string
	dialect Dialect
}

type cacheEntry struct {
	key cacheKey
	// compiled compiles the pattern at the first call.
	compiled func() (*Table, error)
}

// NewCache returns a cache of at most size patterns; a table takes at most MaxTable bytes.
func NewCache(size int) *Cache {
	return &Cache{compile: Compile, size: size, order: list.New(), entries: map[cacheKey]*list.Element{}}
}

// Compile returns the cached result of Compile, or calls it.
func (c *Cache) Compile(text string, dialect Dialect) (*Table, error) {
	if len(text) > MaxPattern {
		return c.compile(text, dialect)
	}
	return c.entry(cacheKey{text, dialect}).compiled()
}

// entry returns the entry of the pattern, which becomes the most recent one.
func (c *Cache) entry(key cacheKey) cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.entries[key]; ok {
		c.order.MoveToFront(known)
		return known.Value.(cacheEntry)
	}
	entry := cacheEntry{key, sync.OnceValues(func() (*Table, error) { return c.compile(key.text, key.dialect) })}
	c.entries[key] = c.order.PushFront(entry)
	if c.order.Len() > c.size {
		last := c.order.Remove(c.order.Back()).(cacheEntry)
		delete(c.entries, last.key)
	}
	return entry
}
