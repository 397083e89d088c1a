package pattern

import (
	"fmt"

	"github.com/prism-gpu/prism/api/perl"
)

// Dialect is the syntax of a pattern.
type Dialect uint8

const (
	// Perl is the syntax of Perl and PCRE2 as far as a table can express it, with lookaheads; \w, \d and \s are of Unicode. regexp2 parses
	// it, and perl.Check refuses constructs that regexp2 interprets differently.
	Perl Dialect = iota
	// RE2 is the syntax of Go's package regexp.
	RE2
)

// refusal is the error of a pattern that is valid in its dialect but not supported: a sentence that names the construct and the
// replacement.
type refusal string

func (r refusal) Error() string { return string(r) }

// Refusals that are used in more than one place.
const (
	tooManyStates = refusal("the pattern needs more than 4,000 states, which is not supported; " +
		"write fewer or smaller counted repetitions, such as .{20}")
	tooLarge = refusal("the table of the pattern is larger than 256 KiB, which is not supported; " +
		"write a shorter pattern with fewer character classes")
	tooComplex = refusal("the pattern is too complex to compile; write fewer nested or counted repetitions")
)

// Compile returns the table that matches every text in which the pattern occurs. Errors name the syntax error of the dialect, or the
// unsupported construct and its replacement; they do not quote the whole pattern. Time and memory are bounded for every pattern.
func Compile(text string, dialect Dialect) (*Table, error) {
	if len(text) > MaxPattern {
		return nil, refusal(fmt.Sprintf("the pattern has %d bytes; it must be at most %d bytes", len(text), MaxPattern))
	}
	if err := foldBound(text); err != nil {
		return nil, err
	}
	p := newProgram()
	var start int32
	var err error
	switch dialect {
	case Perl:
		if err := perl.Check(text); err != nil {
			return nil, err
		}
		start, err = p.lowerPerl(text)
	case RE2:
		start, err = p.lowerRE2(text)
	default:
		return nil, fmt.Errorf("unknown dialect %d", dialect)
	}
	if err == nil {
		err = p.err
	}
	if err != nil {
		return nil, err
	}
	table, err := p.determinizer(start).run()
	if err != nil {
		return nil, err
	}
	table.minimize()
	if table.size() > MaxTable {
		return nil, tooLarge
	}
	return table, nil
}
