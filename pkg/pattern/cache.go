package pattern

import (
	"container/list"
	"sync"
)

// Cache keeps the tables of the patterns that were used last, and what Compile refused of them. It can be used concurrently.
type Cache struct {
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
	key   cacheKey
	table *Table
	err   error
}

// NewCache makes a cache of at most size patterns; a table takes at most MaxTable bytes.
func NewCache(size int) *Cache {
	return &Cache{size: size, order: list.New(), entries: map[cacheKey]*list.Element{}}
}

// Compile is Compile, unless the cache has the answer.
func (c *Cache) Compile(text string, dialect Dialect) (*Table, error) {
	if len(text) > MaxPattern {
		return Compile(text, dialect)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cacheKey{text, dialect}
	if known, ok := c.entries[key]; ok {
		c.order.MoveToFront(known)
		entry := known.Value.(cacheEntry)
		return entry.table, entry.err
	}
	table, err := Compile(text, dialect)
	c.entries[key] = c.order.PushFront(cacheEntry{key, table, err})
	if c.order.Len() > c.size {
		last := c.order.Remove(c.order.Back()).(cacheEntry)
		delete(c.entries, last.key)
	}
	return table, err
}
