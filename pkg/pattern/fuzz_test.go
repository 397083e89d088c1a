package pattern

import "testing"

// FuzzCompile compares patterns that no generator creates with their libraries.
func FuzzCompile(f *testing.F) {
	for _, pattern := range []string{`^(?!.*nsys( |$)).*\btrain`, `(?i)[k-s]++|\D+ab|\w_`, `(?(?=a)ab|.c)*$`, `(?m)^x$|\p{Lu}{2,}?`, `(?!\d)\w`, `(?x: a # b
)`} {
		f.Add(pattern, false, "python train.py\nk\u212a 1_")
		f.Add(pattern, true, "\xffé\u200d")
	}
	f.Fuzz(func(t *testing.T, pattern string, re2 bool, text string) {
		dialect := Perl
		if re2 {
			dialect = RE2
		}
		table, err := Compile(pattern, dialect)
		if err != nil || len(text) > 256 {
			return
		}
		reference, err := specimenOf(pattern, dialect)
		if err != nil {
			// A comment in the pattern covered the text that the reference adds to it.
			return
		}
		occurs, inTime := reference.occurs(text)
		if inTime && occurs != table.Match(text) {
			t.Fatalf("dialect %d, pattern %q, text %q: %v, want %v", dialect, pattern, text, !occurs, occurs)
		}
	})
}
