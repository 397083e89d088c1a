package claim

import (
	"fmt"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/pattern"
)

// maxPatterns bounds the different patterns of one object that are compiled: one full configuration contains as many. Compiling one takes
// up to tens of milliseconds, and the API server waits. Further ones of an object are checked when the claim is prepared, with one
// configuration.
const maxPatterns = 17

// patterns checks the patterns of one object, each once.
type patterns struct {
	compile func(text string, dialect pattern.Dialect) (*pattern.Table, error)
	checked map[written]error
}

// Patterns compiles patterns; *pattern.Cache keeps the compiled ones.
type Patterns interface {
	Compile(text string, dialect pattern.Dialect) (*pattern.Table, error)
}

// written is a pattern in its dialect.
type written struct {
	text    string
	dialect pattern.Dialect
}

func newPatterns() *patterns {
	return &patterns{compile: pattern.Compile, checked: map[written]error{}}
}

// check names the first pattern that processes cannot be matched with, by its field.
func (p *patterns) check(match *v1alpha1.ProcessMatch) error {
	if match == nil {
		return nil
	}
	dialect := pattern.Perl
	if is(match.Dialect, v1alpha1.DialectRE2) {
		dialect = pattern.RE2
	}
	if match.Regex != nil {
		if err := p.compiles(written{*match.Regex, dialect}); err != nil {
			return fmt.Errorf("regex: %w", err)
		}
	}
	for i, exclude := range match.Exclude {
		if err := p.compiles(written{exclude, dialect}); err != nil {
			return fmt.Errorf("exclude[%d]: %w", i, err)
		}
	}
	return nil
}

func (p *patterns) compiles(w written) error {
	err, known := p.checked[w]
	if !known && len(p.checked) < maxPatterns && w.text != "" {
		_, err = p.compile(w.text, w.dialect)
		p.checked[w] = err
	}
	return err
}
