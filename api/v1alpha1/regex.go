package v1alpha1

import (
	"regexp"
	"strings"
	"sync"

	"github.com/dlclark/regexp2/v2"
)

const maxPatternBytes = 1024

// checkPattern refuses patterns that are too long, do not compile, or refer
// back to what they matched: those have no bound on the time they take.
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

// good are patterns without problems: each Prepare checks that of its claim.
var good = &patterns{known: map[string]bool{}}

// patternsKept bounds their memory, as users write them.
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
	if _, err := regexp2.Compile(pattern); err != nil {
		p.add(path, "%s is not a valid Perl regular expression: %v", quote(pattern), err)
		return
	}
	if refersBack(pattern) {
		p.add(path, "%s has a back-reference or a conditional group, which are not supported; write the alternatives out", quote(pattern))
	}
}

// refersBack finds \1, \k<name> and (?(…)…) in a pattern that compiles. In a
// character class these are plain characters.
func refersBack(pattern string) bool {
	inClass := false
	for i := 0; i < len(pattern); i++ {
		switch rest := pattern[i:]; {
		case strings.HasPrefix(rest, `\`):
			if !inClass && len(rest) > 1 && strings.ContainsRune("123456789k", rune(rest[1])) {
				return true
			}
			i++
		case inClass:
			inClass = rest[0] != ']' || strings.HasSuffix(pattern[:i], "[") || strings.HasSuffix(pattern[:i], "[^")
		case rest[0] == '[':
			inClass = true
		case strings.HasPrefix(rest, "(?("):
			return true
		}
	}
	return false
}
