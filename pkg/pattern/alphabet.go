package pattern

import (
	"slices"
	"unicode/utf8"
)

// alphabet divides characters into classes: characters of one class are in the same sets of the program.
type alphabet struct {
	// ascii contains the class of each ASCII character. The others are in ranges: the i-th range ends with hi[i], and its class is of[i].
	// The last range ends with the last character of Unicode.
	ascii [utf8.RuneSelf]uint16
	hi    []rune
	of    []uint16
	// in contains the sets of each class, as bits, until the automaton is complete.
	in [][]uint64
}

// alphabetOf returns the classes of these sets, in the order of their first characters.
func alphabetOf(sets []runeSet) *alphabet {
	a := &alphabet{}
	type edge struct {
		at  rune
		set int
	}
	edges := []edge{{at: utf8.RuneSelf, set: -1}}
	for i, set := range sets {
		for _, s := range set {
			edges = append(edges, edge{s.lo, i}, edge{s.hi + 1, i})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return int(a.at - b.at) })
	current := make([]uint64, (len(sets)+63)/64)
	ids := map[string]uint16{}
	for i, from := 0, rune(0); from <= utf8.MaxRune; {
		for ; i < len(edges) && edges[i].at == from; i++ {
			if set := edges[i].set; set >= 0 {
				current[set/64] ^= 1 << (set % 64)
			}
		}
		to := rune(utf8.MaxRune)
		if i < len(edges) {
			to = min(to, edges[i].at-1)
		}
		a.add(from, to, a.class(ids, current))
		from = to + 1
	}
	return a
}

func (a *alphabet) class(ids map[string]uint16, in []uint64) uint16 {
	key := string(bits(nil, in))
	id, ok := ids[key]
	if !ok {
		id = uint16(len(a.in))
		ids[key] = id
		a.in = append(a.in, slices.Clone(in))
	}
	return id
}

// add appends the characters from lo to hi, which are all ASCII or all not.
func (a *alphabet) add(lo, hi rune, class uint16) {
	for r := lo; r <= hi && r < utf8.RuneSelf; r++ {
		a.ascii[r] = class
	}
	if hi < utf8.RuneSelf {
		return
	}
	if last := len(a.of) - 1; last >= 0 && a.of[last] == class {
		a.hi[last] = hi
		return
	}
	a.hi, a.of = append(a.hi, hi), append(a.of, class)
}

func (a *alphabet) has(class, set int) bool { return a.in[class][set/64]&(1<<(set%64)) != 0 }

// rename renumbers classes; adjacent ranges of one class are merged.
func (a *alphabet) rename(to []uint16) {
	for i := range a.ascii {
		a.ascii[i] = to[a.ascii[i]]
	}
	hi, of := a.hi, a.of
	a.hi, a.of, a.in = nil, nil, nil
	for i := range of {
		a.add(utf8.RuneSelf, hi[i], to[of[i]])
	}
}

// bits appends the words to b, as a key of a map.
func bits(b []byte, words []uint64) []byte {
	for _, w := range words {
		b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24), byte(w>>32), byte(w>>40), byte(w>>48), byte(w>>56))
	}
	return b
}
