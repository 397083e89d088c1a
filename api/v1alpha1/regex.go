package v1alpha1

import (
	"regexp"
	"sync"

	"github.com/dlclark/regexp2/v2"

	"github.com/prism-gpu/prism/api/perl"
)

const maxPatternBytes = 1024

// checkPattern refuses patterns that are too long, do not compile, contain back-references, whose run time is unbounded, or contain a
// construct that the library interprets differently from the dialect.
func checkPattern(p *problems, path, pattern string, dialect RegexDialect) {
	if good.has(dialect, pattern) {
		return
	}
	before := len(p.list)
	compilePattern(p, path, pattern, dialect)
	if len(p.list) == before {
		good.add(dialect, pattern)
	}
}

// good caches patterns without problems, because each Prepare checks the pattern of its claim.
var good = &patterns{known: map[string]bool{}}

// patternsKept bounds the memory of the cache, because users write patterns.
const patternsKept = 64

type patterns struct {
	mu    sync.Mutex
	known map[string]bool
}

func (g *patterns) has(dialect RegexDialect, pattern string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[string(dialect)+":"+pattern]
}

func (g *patterns) add(dialect RegexDialect, pattern string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= patternsKept {
		clear(g.known)
	}
	g.known[string(dialect)+":"+pattern] = true
}

func compilePattern(p *problems, path, pattern string, dialect RegexDialect) {
	if len(pattern) > maxPatternBytes {
		p.add(path, "must be at most %d bytes, got %d", maxPatternBytes, len(pattern))
		return
	}
	if dialect == DialectRE2 {
		if _, err := regexp.Compile(pattern); err != nil {
			p.add(path, "%s is not a valid RE2 regular expression: %v", quote(pattern), err)
		}
		return
	}
	if err := perl.Check(pattern); err != nil {
		p.add(path, "%s: %v", quote(pattern), err)
		return
	}
	if _, err := regexp2.Compile(pattern); err != nil {
		p.add(path, "%s is not a valid Perl regular expression: %v", quote(pattern), err)
	}
}
