package pattern

import (
	"slices"
	"sort"
	"unicode"
	"unicode/utf8"
)

// span are the characters from lo to hi, both included.
type span struct{ lo, hi rune }

// runeSet is a set of characters: spans in ascending order that neither overlap nor touch.
type runeSet []span

// sorted returns the set of spans in any order.
func (s runeSet) sorted() runeSet {
	slices.SortFunc(s, func(a, b span) int { return int(a.lo - b.lo) })
	set := runeSet{}
	for _, next := range s {
		if last := len(set) - 1; last >= 0 && next.lo <= set[last].hi+1 {
			set[last].hi = max(set[last].hi, next.hi)
			continue
		}
		set = append(set, next)
	}
	return set
}

func (s runeSet) complement() runeSet {
	set, from := runeSet{}, rune(0)
	for _, next := range s {
		if from < next.lo {
			set = append(set, span{from, next.lo - 1})
		}
		from = next.hi + 1
	}
	if from <= utf8.MaxRune {
		set = append(set, span{from, utf8.MaxRune})
	}
	return set
}

func (s runeSet) has(r rune) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].hi >= r })
	return i < len(s) && s[i].lo <= r
}

// where returns the set of the characters for which a predicate holds; its result may only change at the cuts.
func where(has func(rune) bool, cuts []rune) runeSet {
	slices.Sort(cuts)
	set := runeSet{}
	for i, from := range cuts {
		to := rune(utf8.MaxRune)
		if i+1 < len(cuts) {
			to = cuts[i+1] - 1
		}
		switch last := len(set) - 1; {
		case from > to || !has(from):
		case last >= 0 && set[last].hi+1 == from:
			set[last].hi = to
		default:
			set = append(set, span{from, to})
		}
	}
	return set
}

// tableCuts appends the characters at which membership in a table of the unicode package changes.
func tableCuts(cuts []rune, tables ...*unicode.RangeTable) []rune {
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			cuts = append(cuts, lo, hi+1)
			return
		}
		for r := lo; r <= hi; r += stride {
			cuts = append(cuts, r, r+1)
		}
	}
	for _, t := range tables {
		for _, r := range t.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range t.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return cuts
}
