package v1alpha1

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCheckPattern_ManyPatterns_MemoryIsBounded: users write patterns, so the cache is bounded and stores only valid ones.
func TestCheckPattern_ManyPatterns_MemoryIsBounded(t *testing.T) {
	for i := range 10 * patternsKept {
		p := &problems{}
		checkPattern(p, "match.regex", "train-"+strconv.Itoa(i), DialectPerl)
		assert.Empty(t, p.list)
	}
	good.mu.Lock()
	assert.LessOrEqual(t, len(good.known), patternsKept)
	good.mu.Unlock()
	for range 2 {
		p := &problems{}
		checkPattern(p, "match.regex", `(a)\1`, DialectPerl)
		assert.Len(t, p.list, 1)
	}
	p := &problems{}
	checkPattern(p, "match.regex", "(?=a)b", DialectPerl)
	assert.Empty(t, p.list)
	checkPattern(p, "match.regex", "(?=a)b", DialectRE2)
	assert.Len(t, p.list, 1, "another dialect is another pattern")
}
