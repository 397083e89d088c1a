package pattern

import (
	"fmt"
	"testing"
	"unicode/utf8"
)

// edges are the bytes at which the rules of UTF-8 change.
const edges = "a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"

// TestNative_InvalidUTF8_DecodedAsGoDoes tests every sequence of three such bytes, and of four if they begin a character.
func TestNative_InvalidUTF8_DecodedAsGoDoes(t *testing.T) {
	var counts [5]Rules
	for n := range counts {
		counts[n].Include = compiled(t, fmt.Sprintf(`^(?:[^\x{FFFD}]*\x{FFFD}){%d}[^\x{FFFD}]*$`, n), RE2)
	}
	natives := startNatives(t)
	expect := func(text string) {
		invalid := 0
		for _, r := range text {
			if r == utf8.RuneError {
				invalid++
			}
		}
		for _, native := range natives {
			native.expect(counts[invalid], []process{{argv: []string{text}, selected: true}}, fmt.Sprintf("%q", text))
		}
	}
	for _, a := range []byte(edges) {
		for _, b := range []byte(edges) {
			for _, c := range []byte(edges) {
				expect(string([]byte{a, b, c}))
				if a >= 0xe0 && b >= 0x80 && b < 0xc0 {
					expect(string([]byte{a, b, c, 0x80}))
					expect(string([]byte{a, b, c, 0xbf}))
				}
			}
		}
	}
	for _, native := range natives {
		native.finish()
	}
}
