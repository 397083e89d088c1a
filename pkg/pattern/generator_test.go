package pattern

import (
	"math/rand/v2"
	"strings"
)

// generator generates random patterns of a dialect, and texts of the characters that these patterns distinguish.
type generator struct {
	*rand.Rand
	dialect Dialect
}

var (
	literals = []string{"a", "b", "c", "ab", "/", " ", "py", "1", "_", "é", `\n`, `\.`, "-", "K", "ſ", "日", "train", "𐐀", `\x{FFFD}`}
	classes  = []string{".", "[ab]", "[^a]", `\w`, `\W`, `\d`, `\s`, `\S`, "[a-c1]", `[^\s/]`, `[\w-]`, `\p{L}`, `[^\n]`, `\D`, `\P{Lu}`, `[^\W\d]`,
		"[k-s]", "[é-日]", `[^\x{80}-\x{10FFFF}]`, `\p{Greek}`, "[a-z0-9_./-]"}
	perlClasses = []string{"[^b-z]", `[\w_-]`, `[^a-k\[]`, `\p{Emoji}`, `[\p{L}\P{Ll}]`, `[\s\S]`}
	re2Classes  = []string{"[[:alpha:]]", "[[:^digit:]]", `\pL`, `[^[:space:]]`}

	positions     = []string{"^", "$", `\b`, `\B`, `\A`, `\z`}
	perlPositions = []string{`\Z`, `\G`}

	quantifiers     = []string{"*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}"}
	perlQuantifiers = []string{"*+", "++", "?+", "{1,2}+"}

	flagsOf     = []string{"i", "s", "m", "i-s", "ms"}
	perlFlagsOf = []string{"n", "x"}
	re2FlagsOf  = []string{"U"}

	pieces = []string{"a", "b", "c", "ab", "/", " ", "py", "1", "_", "é", "\n", ".", "-", "K", "k", "s", "ſ", "日", "\xff", "\xe2\x82", "A", "B", "\u200d",
		"\xf0\x9f", "x", "train", "𐐀", "𐐨", "\ufffd", "\xed\xa0\x80", "\xc0\x80", "😀", "λ", "\u00a0", "\U0010ffff", "É"}
)

func (g generator) pick(common, perl, re2 []string) string {
	own := perl
	if g.dialect == RE2 {
		own = re2
	}
	i := g.IntN(len(common) + len(own))
	if i < len(common) {
		return common[i]
	}
	return own[i-len(common)]
}

func (g generator) atom(depth int) string {
	n := g.IntN(42)
	switch {
	case n < 14, depth <= 0 && n >= 24:
		return g.pick(literals, nil, nil)
	case n < 22:
		return g.pick(classes, perlClasses, re2Classes)
	case n < 24:
		return g.pick(positions, perlPositions, nil)
	}
	inner := g.alternatives(depth - 1)
	switch {
	case n < 28:
		return "(?:" + inner + ")"
	case n < 30:
		return "(" + inner + ")"
	case g.dialect == RE2, n < 32:
		return "(?" + g.pick(flagsOf, perlFlagsOf, re2FlagsOf) + ":" + inner + ")"
	case n < 35:
		return "(?=" + inner + ")"
	case n < 39:
		return "(?!" + inner + ")"
	case n < 40:
		return "(?>" + inner + ")"
	}
	return "(?(?=" + inner + ")" + g.sequence(depth-1) + "|" + g.sequence(depth-1) + ")"
}

func (g generator) quantified(atom string) string {
	quantifier := g.pick(quantifiers, nil, nil)
	// A possessive repetition of a group is rarely supported.
	if g.dialect == Perl && (atom[0] != '(' || g.IntN(8) == 0) {
		quantifier = g.pick(quantifiers, perlQuantifiers, nil)
	}
	if !strings.HasSuffix(quantifier, "+") && g.IntN(4) == 0 {
		quantifier += "?"
	}
	if atom[0] == '(' || atom[0] == '[' || atom[0] == '\\' || len([]rune(atom)) == 1 {
		return atom + quantifier
	}
	return "(?:" + atom + ")" + quantifier
}

func (g generator) sequence(depth int) string {
	var b strings.Builder
	for range 1 + g.IntN(4) {
		atom := g.atom(depth)
		if g.IntN(3) == 0 && atom != "^" && atom != "$" {
			atom = g.quantified(atom)
		}
		b.WriteString(atom)
	}
	return b.String()
}

func (g generator) alternatives(depth int) string {
	s := g.sequence(depth)
	for g.IntN(4) == 0 {
		s += "|" + g.sequence(depth)
	}
	return s
}

func (g generator) text() string {
	var b strings.Builder
	for range g.IntN(9) {
		b.WriteString(g.pick(pieces, nil, nil))
	}
	return b.String()
}
