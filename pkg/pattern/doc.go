// Package pattern compiles regular expressions into tables that a process can match its command line with in bounded time and without a
// regular expression library: a table is a deterministic automaton that reads a text from its end to its beginning, one character per
// step. It is pure: same pattern, same bytes.
//
// A pattern is parsed by the library of its dialect and lowered into a boolean program over positions of a text (program.go): a node says
// whether the rest of the text, from this position on, matches what follows in the pattern. A lookahead is the conjunction, or the negated
// conjunction, of two such nodes. Since the text is read from its end, what stands to the right of a position is known when the position
// is reached, and every lookahead is decided already (determinize.go).
//
// Texts are UTF-8. Each byte that is no part of a valid character is U+FFFD. Of a text that is longer than MaxText, the first MaxText
// bytes are matched, as if the text ended there.
package pattern

// The limits of patterns, tables and rules. Compile and Encode refuse what exceeds them.
const (
	// MaxPattern is how many bytes a pattern has at most.
	MaxPattern = 1024
	// MaxStates is how many states the automaton of a pattern has at most, before equal states are merged.
	MaxStates = 4000
	// MaxTable is how many bytes a table takes at most, encoded.
	MaxTable = 256 << 10
	// MaxText is how many bytes of a text are matched: its first ones.
	MaxText = 64 << 10
	// MaxExcludes is how many exclude tables rules have at most.
	MaxExcludes = 32
	// MaxNames is how many excluded base names rules have at most.
	MaxNames = 1024
	// MaxName is how many bytes each of them has at most.
	MaxName = 255
	// MaxRules is how many bytes rules take at most, encoded.
	MaxRules = 1 << 20
)
