// Package pattern compiles regular expressions into tables with which a process can match its command line in bounded time, without a
// regular expression library: a table is a deterministic automaton that reads a text from its end to its beginning, one character per step.
// It is pure: same pattern, same bytes.
//
// The library of its dialect parses a pattern, which is lowered into a boolean program over positions of a text (program.go): a node says
// whether the rest of the text, from this position on, matches the rest of the pattern. A lookahead is the conjunction, or the negated
// conjunction, of two such nodes. Because the text is read from its end, the text to the right of a position is known when the position is
// reached, and every lookahead is decided already (determinize.go).
//
// Texts are UTF-8. Each byte that is not part of a valid character is U+FFFD. Of a text that is longer than MaxText, the first MaxText
// bytes are matched, as if the text ended there.
package pattern

// The limits of patterns, tables and rules. Compile and Encode refuse larger ones.
const (
	// MaxPattern is the maximum number of bytes of a pattern.
	MaxPattern = 1024
	// MaxStates is the maximum number of states of the automaton of a pattern, before equal states are merged.
	MaxStates = 4000
	// MaxTable is the maximum number of bytes of an encoded table.
	MaxTable = 256 << 10
	// MaxText is the number of bytes of a text that are matched: its first ones.
	MaxText = 64 << 10
	// MaxExcludes is the maximum number of exclude tables in rules.
	MaxExcludes = 32
	// MaxNames is the maximum number of excluded base names in rules.
	MaxNames = 1024
	// MaxName is the maximum number of bytes of such a name.
	MaxName = 255
	// MaxRules is the maximum number of bytes of encoded rules.
	MaxRules = 1 << 20
)
