package pattern

import (
	"encoding/binary"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2/syntax"
)

// charSet is a character class of the dialect Perl. The library answers whether the class has a character; where that can change is in the
// class's serialized form, which the library writes for generated code.
func charSet(s *syntax.CharSet) runeSet {
	cuts := classCuts(s.Hash())
	for _, r := range cuts {
		if r < 0 || r > utf8.MaxRune+1 {
			return scan(s)
		}
	}
	return where(s.Contains, cuts)
}

// scan asks for every character.
func scan(s *syntax.CharSet) runeSet {
	set := runeSet{}
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !s.Contains(r) {
			continue
		}
		if last := len(set) - 1; last >= 0 && set[last].hi+1 == r {
			set[last].hi = r
			continue
		}
		set = append(set, span{r, r})
	}
	return set
}

// classCuts are the characters at which a serialized class can change its answer: flags in one byte, the number of ranges and of
// categories, the ranges as two characters each, the categories as their length, negative when negated, and their name; then the class
// that is subtracted, if any. Surrogates, which no text has, are written as U+FFFD.
func classCuts(b []byte) []rune {
	cuts := []rune{0, 0xD800, 0xE000, utf8.RuneError, utf8.RuneError + 1}
	const head = 9
	for len(b) >= head {
		ranges, names := binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint32(b[5:])
		b = b[head:]
		for range 2 * int(ranges) {
			r, size := utf8.DecodeRune(b)
			b = b[size:]
			cuts = append(cuts, r, r+1)
		}
		for range int(names) {
			length := int(int8(b[0]))
			if length < 0 {
				length = -length
			}
			cuts = append(cuts, categoryCuts(string(b[1:1+length]))...)
			b = b[1+length:]
		}
	}
	return cuts
}

// categories is the class of one category of the library: "W" for \w.
func categories(name string) runeSet {
	buf := []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, byte(len(name))}
	set := syntax.NewCharSetRuntime(string(buf) + name)
	return where(set.Contains, append(categoryCuts(name), 0))
}

// scanned are the cuts of the few categories that only the library knows, found once by asking for every character.
var scanned sync.Map

// categoryCuts are the characters at which a category can change its answer.
func categoryCuts(name string) []rune {
	switch name {
	case syntax.WordCategoryText:
		const joiners = '\u200C'
		return tableCuts([]rune{joiners, joiners + 2}, unicode.L, unicode.Mn, unicode.Nd, unicode.Pc)
	case syntax.SpaceCategoryText:
		return tableCuts(nil, unicode.White_Space)
	}
	for _, tables := range []map[string]*unicode.RangeTable{unicode.Properties, unicode.Categories, unicode.Scripts} {
		if table, ok := tables[name]; ok {
			return tableCuts(nil, table)
		}
	}
	if known, ok := scanned.Load(name); ok {
		return known.([]rune)
	}
	buf := []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, byte(len(name))}
	set := syntax.NewCharSetRuntime(string(buf) + name)
	var cuts []rune
	for _, s := range scan(&set) {
		cuts = append(cuts, s.lo, s.hi+1)
	}
	scanned.Store(name, cuts)
	return cuts
}
