// Package words keeps the texts of the project in the words of Kubernetes and NVIDIA's documentation: it lists unused words with their
// replacements, finds them in docs, chart, messages and code, and checks that links and names in docs exist.
package words

import (
	"fmt"
	"regexp"
	"strings"
)

// Rule is a word that is not used.
type Rule struct {
	// Not matches the word; in phrases a space stands for any space, line break or comment sign.
	Not string
	// Except matches phrases in which the same word is right; they are taken out of the text before Not is tried.
	Except string
	// But is the replacement.
	But string
}

// Finding is a word that is not used, in some text.
type Finding struct {
	// Line counts from 1 in the text that was searched.
	Line      int
	Word, But string
}

func (f Finding) String() string {
	return fmt.Sprintf("%q: write %s", f.Word, f.But)
}

// Table is a compiled list of rules.
type Table struct {
	rules []rule
	// any matches the words of all rules: most texts contain none of them.
	any *regexp.Regexp
}

type rule struct {
	not, except *regexp.Regexp
	but         string
}

// gap matches the space between the words of a phrase, which may include the end of a line, also in a comment.
const gap = `[\s#/*]+`

// Compile compiles rules. Words are matched in upper and lower case.
func Compile(rules []Rule) (Table, error) {
	var table Table
	var words []string
	for _, r := range rules {
		not, err := phrase(r.Not)
		if err != nil {
			return table, err
		}
		compiled := rule{not: not, but: r.But}
		if r.Except != "" {
			if compiled.except, err = phrase(r.Except); err != nil {
				return table, err
			}
		}
		table.rules, words = append(table.rules, compiled), append(words, r.Not)
	}
	var err error
	table.any, err = phrase(strings.Join(words, "|"))
	return table, err
}

func phrase(pattern string) (*regexp.Regexp, error) {
	return regexp.Compile(`(?i)\b(?:` + strings.ReplaceAll(pattern, " ", gap) + `)\b`)
}

// Find returns the words of the table in a text, rule by rule.
func (t Table) Find(text string) []Finding {
	if !t.any.MatchString(text) {
		return nil
	}
	var found []Finding
	for _, r := range t.rules {
		searched := text
		if r.except != nil {
			searched = r.except.ReplaceAllStringFunc(text, blank)
		}
		for _, at := range r.not.FindAllStringIndex(searched, -1) {
			found = append(found, Finding{
				Line: 1 + strings.Count(text[:at[0]], "\n"),
				Word: strings.Join(strings.Fields(text[at[0]:at[1]]), " "),
				But:  r.but,
			})
		}
	}
	return found
}

// blank returns bytes that no rule matches, as many as the phrase has, so that later positions stay.
func blank(phrase string) string {
	return strings.Repeat("\x01", len(phrase))
}
