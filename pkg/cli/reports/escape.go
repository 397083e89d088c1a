package reports

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes text of containers safe for a terminal: control characters, marks that change the direction of text, and bytes that are not
// UTF-8 are escaped as in Go.
func Escape(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, unsafe) {
		return text
	}
	var out strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 || unsafe(r) {
			out.WriteString(strings.Trim(strconv.QuoteToASCII(text[i:i+size]), `"`))
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

func unsafe(r rune) bool { return !unicode.IsPrint(r) }
