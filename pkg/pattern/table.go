package pattern

import (
	"sort"
	"unicode/utf8"
)

// Table matches the texts in which a pattern occurs. It is immutable.
type Table struct {
	alphabet *alphabet
	classes  int
	// next[s*classes+c] is the state that a character of class c leads to from state s.
	next []uint16
	// accept are the states in which the text that begins here matches; final are the states that no character leaves.
	accept, final []bool
	start         uint16
}

// Match reports whether the pattern occurs in the text's first MaxText bytes.
func (t *Table) Match(text string) bool {
	s := int(t.start)
	for text = text[:min(len(text), MaxText)]; len(text) > 0 && !t.final[s]; {
		class := uint16(0)
		if r := text[len(text)-1]; r < utf8.RuneSelf {
			text, class = text[:len(text)-1], t.alphabet.ascii[r]
		} else {
			r, size := utf8.DecodeLastRuneInString(text)
			text, class = text[:len(text)-size], t.alphabet.find(r)
		}
		s = int(t.next[s*t.classes+int(class)])
	}
	return t.accept[s]
}

// States returns the number of states of the table.
func (t *Table) States() int { return len(t.accept) }

// find returns the class of a character that is not ASCII.
func (a *alphabet) find(r rune) uint16 {
	return a.of[sort.Search(len(a.hi)-1, func(i int) bool { return a.hi[i] >= r })]
}
