package pattern

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxFolded is the maximum number of characters in the ranges of a pattern, added up, if case is ignored: the libraries look up the other
// cases of each of these characters, which takes seconds for a pattern of a few hundred bytes.
const maxFolded = 256 << 10

const tooFolded = refusal("(?i) with ranges of so many characters is not supported; write (?-i:…) around ranges such as [Ā-\U0010ffff]")

// foldBound refuses a pattern whose ranges are too large to ignore case, before a library parses it.
func foldBound(text string) error {
	if !ignoresCase(text) {
		return nil
	}
	sum := 0
	for i := strings.IndexByte(text, '-'); i >= 0; {
		text = text[i+1:]
		sum += rangeEnd(text)
		if sum > maxFolded {
			return tooFolded
		}
		i = strings.IndexByte(text, '-')
	}
	return nil
}

// ignoresCase reports whether the pattern contains an option group with the letter i.
func ignoresCase(text string) bool {
	for {
		_, options, ok := strings.Cut(text, "(?")
		if !ok {
			return false
		}
		text = options
		letters := strings.IndexFunc(options, func(r rune) bool { return !strings.ContainsRune("imnsxeruUIMNSXERU-+", r) })
		if letters >= 0 && strings.ContainsAny(options[:letters], "iI") {
			return true
		}
	}
}

// rangeEnd returns an upper bound of the character at the beginning of the text, as the end of a range.
func rangeEnd(text string) int {
	escaped, ok := strings.CutPrefix(text, `\`)
	if !ok {
		r, _ := utf8.DecodeRuneInString(text)
		return int(r)
	}
	digits := strings.TrimLeft(escaped, "xuUN{+")
	if digits == escaped {
		// Octal digits reach U+01FF; other escapes are ASCII characters, or cannot end a range.
		return 0x1ff
	}
	end := strings.IndexFunc(digits, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF", r) })
	if end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || n > utf8.MaxRune {
		return utf8.MaxRune
	}
	return int(n)
}
