package pattern

import (
	"encoding/binary"
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2/syntax"
)

// charSet converts a character class of the dialect Perl. The library reports whether the class contains a character. The characters at
// which that changes are in the class's serialized form, which the library writes for generated code.
func charSet(s *syntax.CharSet) runeSet {
	return where(s.Contains, classCuts(s.Hash()))
}

// classCuts returns the characters at which membership in a serialized class can change. The form is: flags in one byte, the number of
// ranges and of categories, the ranges as two characters each, the categories as their length, negative if negated, and their name; then
// the subtracted class, if any. Surrogates, which never occur in texts, are written as U+FFFD.
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

// category returns the class of one category of the library.
func category(name string) *syntax.CharSet {
	head := []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, byte(len(name))}
	set := syntax.NewCharSetRuntime(string(head) + name)
	return &set
}

// perlWord returns the word characters of \b in Perl.
func perlWord() runeSet {
	return where(syntax.IsWordChar, append(categoryCuts(syntax.WordCategoryText), 0))
}

// categoryCuts returns the characters at which membership in a category can change.
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
	return scannedCuts(name)
}

// scanned caches the cuts of the few categories that only the library knows.
var scanned sync.Map

// scannedCuts checks every character of the planes with assigned characters, once. The caller owns the result.
func scannedCuts(name string) []rune {
	if known, ok := scanned.Load(name); ok {
		return slices.Clone(known.([]rune))
	}
	const unassigned, tags, privateUse = 0x40000, 0xE0000, 0xF0000
	var cuts []rune
	set, last := category(name), false
	for r := rune(0); r <= utf8.MaxRune; r++ {
		switch r {
		case unassigned:
			r = tags
		case tags + 0x1000:
			r = privateUse
		case privateUse + 1:
			r = utf8.MaxRune
		}
		if has := set.Contains(r); has != last {
			cuts, last = append(cuts, r), has
		}
	}
	scanned.Store(name, slices.Clone(cuts))
	return cuts
}
