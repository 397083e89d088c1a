// Package perl finds constructs of Perl's and PCRE's regular expressions that the library interprets differently, or rejects without a
// replacement to write. It is pure.
package perl

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Check returns why a pattern of the dialect Perl is not supported: the first such construct, and its replacement. It returns nil if the
// library (github.com/dlclark/regexp2) interprets the pattern as Perl and PCRE2 do, or rejects it itself. Comments and text between \Q and
// \E contain no constructs. The constructs are listed in https://www.pcre.org/current/doc/html/pcre2syntax.html.
func Check(pattern string) error {
	s := &scanner{text: pattern, extended: []bool{false}}
	for s.pos < len(s.text) {
		if err := s.next(); err != nil {
			return err
		}
	}
	return nil
}

// scanner walks over a pattern, one construct after the other.
type scanner struct {
	text string
	pos  int
	// extended says for each open group whether white space is ignored, as with (?x).
	extended []bool
}

func (s *scanner) next() error {
	rest := s.text[s.pos:]
	switch {
	case rest[0] == '\\':
		return s.escape(outside, true)
	case rest[0] == '[':
		return s.class()
	case strings.HasPrefix(rest, "(?#"):
		s.skip(")")
	case rest[0] == '(':
		return s.group()
	case rest[0] == ')':
		if len(s.extended) > 1 {
			s.extended = s.extended[:len(s.extended)-1]
		}
		s.pos++
	case rest[0] == '#' && s.extended[len(s.extended)-1]:
		s.skip("\n")
	case newerBounds.MatchString(rest):
		return errBounds
	default:
		s.pos++
	}
	return nil
}

// skip moves behind the next end, or to the end of the pattern.
func (s *scanner) skip(end string) {
	if i := strings.Index(s.text[s.pos:], end); i >= 0 {
		s.pos += i + len(end)
		return
	}
	s.pos = len(s.text)
}

// escapes maps letters after a backslash to their replacements.
type escapes map[byte]string

const (
	codePoint = `\x{41}`
	nothing   = "the pattern without it"
	spaces    = `[ \t]`
	lines     = `[\n\x0b\f\r\x{85}\x{2028}\x{2029}]`
	nesting   = "out the nesting to the required depth"
	upperCase = "the characters in their case"
)

var outside = escapes{
	'h': spaces, 'H': `[^ \t]`, 'v': lines, 'V': "[^" + lines[1:], 'R': `(?:\r\n|\n|\r)`, 'N': `[^\n]`, 'K': nothing, 'C': ". or [^\\n]", 'E': nothing,
	'o': codePoint, 'u': codePoint, 'U': upperCase, 'L': upperCase, 'l': upperCase, 'F': upperCase,
	'g': "out the alternatives, or the nesting to the required depth",
}

var inClass = escapes{
	'h': `\x20\t`, 'v': lines[1 : len(lines)-1], 'o': codePoint, 'u': codePoint, 'N': codePoint,
}

// longOctal is an octal number of more than one byte; the library drops its high bits.
var longOctal = regexp.MustCompile(`^\\[4-7][0-7]{2}`)

var errBackReference = errors.New(`a back-reference is not supported; write out the alternatives, and a character by its number as \x{41}`)

// escape walks over an escaped character. Only outside of classes it may refer back.
func (s *scanner) escape(known escapes, refers bool) error {
	rest := s.text[s.pos:]
	if strings.HasPrefix(rest, `\Q`) {
		s.skip(`\E`)
		return nil
	}
	if len(rest) == 1 {
		s.pos++ // the library rejects it
		return nil
	}
	switch instead, ok := known[rest[1]]; {
	case ok:
		return fmt.Errorf(`\%c is not supported; write %s`, rest[1], instead)
	case refers && (rest[1] == 'k' || '1' <= rest[1] && rest[1] <= '9'):
		return errBackReference
	case longOctal.MatchString(rest):
		return errors.New(`an octal number above \377 is not supported; write \x{100}`)
	}
	_, size := utf8.DecodeRuneInString(rest[1:])
	s.pos += 1 + size
	return nil
}

var (
	posixClass = regexp.MustCompile(`^\[(?::[^\[\]]*:|\.[^\[\]]*\.|=[^\[\]]*=)\]`)

	errPOSIX       = errors.New(`a POSIX class, [[:alpha:]], is not supported; write a class such as [A-Za-z], \p{L}, \w, \d or \s`)
	errSubtraction = errors.New(`-[ in a class is not supported, because it subtracts a class in some languages; write \[ for the character, or a lookahead, as in ` +
		"(?![aeiou])[a-z]")
)

// class walks over a class. A ] that is its first character does not end it.
func (s *scanner) class() error {
	if posixClass.MatchString(s.text[s.pos:]) {
		return errPOSIX
	}
	s.pos++
	if strings.HasPrefix(s.text[s.pos:], "^") {
		s.pos++
	}
	for first := true; s.pos < len(s.text); first = false {
		switch rest := s.text[s.pos:]; {
		case rest[0] == ']' && !first:
			s.pos++
			return nil
		case posixClass.MatchString(rest):
			return errPOSIX
		case strings.HasPrefix(rest, "-["):
			return errSubtraction
		case rest[0] == '\\':
			if err := s.escape(inClass, false); err != nil {
				return err
			}
		default:
			s.pos++
		}
	}
	return nil
}

var (
	// newerBounds are repetitions since PCRE2 10.43 and Perl 5.34. Before, and in the library, they are plain text.
	newerBounds = regexp.MustCompile(`^\{(?: *, *[0-9]+ *| +[0-9]+ *(?:, *[0-9]* *)?|[0-9]+ +(?:, *[0-9]* *)?|[0-9]+,(?: +[0-9]* *|[0-9]+ +))\}`)

	errBounds = errors.New(`a repetition without its lower bound, {,3}, or with a space in it is not supported, because it is plain text in older versions of Perl; ` +
		`write {0,3}, or \{ for the character`)
)

// groups are the beginnings of unsupported groups, and their replacements.
var groups = []struct{ begins, what, instead string }{
	{`\(\*`, "a verb or an option, (*…),", "the pattern without it, or a group by its sign, as in (?=…), (?!…) and (?>…)"},
	{`\(\?P<`, "(?P<name>…)", "(?<name>…)"},
	{`\(\?P=`, "a back-reference", "out the alternatives"},
	{`\(\?(?:R\)|P>|&|[-+]?[0-9])`, "a recursion or a call of a group", nesting},
	{`\(\?\|`, "a branch reset, (?|…),", "(?:…)"},
	{`\(\?C`, "a callout, (?C…),", nothing},
	{`\(\?\^`, "(?^…)", "(?-imsx:…)"},
	{`\(\?(?:\*|<\*)`, "a non-atomic lookaround", "a lookahead, (?=…)"},
	{`\(\?\[`, "an extended class, (?[…]),", "a class, […]"},
	{`\(\?\??\{`, "code, (?{…}),", nothing},
	{`\(\?\(\?<[=!]`, "a lookbehind, (?<=…) or (?<!…),", "the preceding text as a part of the pattern"},
	{`\(\?\((?:[^?]|\?[^=!])`, "a conditional on a group, (?(1)…|…),", "out both alternatives, as in (?:…|…)"},
}

var groupForms = func() []*regexp.Regexp {
	forms := make([]*regexp.Regexp, len(groups))
	for i, g := range groups {
		forms[i] = regexp.MustCompile("^" + g.begins)
	}
	return forms
}()

// flagGroup is (?i-m) or (?i-m: with any letters.
var flagGroup = regexp.MustCompile(`^\(\?([A-Za-z]*)(-[A-Za-z]*)?([:)])`)

// group walks over the beginning of a group, and sets whether white space is ignored in it, or from it on.
func (s *scanner) group() error {
	rest := s.text[s.pos:]
	for i, form := range groupForms {
		if form.MatchString(rest) {
			return fmt.Errorf("%s is not supported; write %s", groups[i].what, groups[i].instead)
		}
	}
	extended := s.extended[len(s.extended)-1]
	flags := flagGroup.FindStringSubmatch(rest)
	if flags == nil {
		s.pos++ // the text after the bracket is no construct by itself
		s.extended = append(s.extended, extended)
		return nil
	}
	if err := checkFlags(flags[1] + flags[2]); err != nil {
		return err
	}
	if strings.Contains(flags[1], "x") {
		extended = true
	}
	if strings.Contains(flags[2], "x") {
		extended = false
	}
	s.pos += len(flags[0])
	if flags[3] == ":" {
		s.extended = append(s.extended, extended)
	} else {
		s.extended[len(s.extended)-1] = extended
	}
	return nil
}

// checkFlags refuses unsupported flags, except r and e: only the library knows them, and rejects them itself.
func checkFlags(letters string) error {
	for i, letter := range strings.ReplaceAll(letters, "-", "") {
		if !strings.ContainsRune("imnsxre", letter) {
			return fmt.Errorf("the flag %c of (?%s) is not supported; the flags are i, m, n, s and x", letter, letters)
		}
		if letter == 'x' && strings.Contains(strings.ReplaceAll(letters, "-", "")[i+1:], "x") && !strings.Contains(letters, "-") {
			return fmt.Errorf("the flag xx of (?%s) is not supported; write x, and no white space in classes", letters)
		}
	}
	return nil
}
