package words

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// Construction is a construction of sentences that makes them hard to read.
type Construction struct {
	// Name is a short form of it, for the table of rates.
	Name string
	// Match is a regular expression; a space stands for any space, line break or comment sign.
	Match string
	// Write is a better way to say the same.
	Write string
}

// Constructions are counted, not forbidden: each is sometimes right, and texts are hard to read if most sentences contain one.
var Constructions = []Construction{
	{
		Name:  "what is/the as a noun",
		Match: `what (?:is|are|was|were|has|have|the|its|their|a|an|it|they|no)`,
		Write: "the noun: the profile of the claim, not what the claim has",
	},
	{
		Name:  "where for if",
		Match: `where (?:the|its|their|a|an|no|it|they|this|that|these|there|is|one|any|all|both|none|neither|nothing)`,
		Write: "if for a condition, when for a time, where for a place only",
	},
	{
		Name:  "those of, that of",
		Match: `(?:those|that) of`,
		Write: "the noun again: the limit of the GPU, not that of the GPU",
	},
	{
		Name:  "has the/a/its",
		Match: `(?:has|have) (?:the|its|their|a|an|no)`,
		Write: "a verb: the claim requests, stores, requires, lists, allows",
	},
}

// Rate is how often the constructions occur in texts.
type Rate struct {
	Words int
	// Found counts in the order of Constructions.
	Found [4]int
}

// constructions are the compiled expressions, in the order of Constructions.
var constructions = compileConstructions()

func compileConstructions() []*regexp.Regexp {
	compiled := make([]*regexp.Regexp, len(Constructions))
	for i, c := range Constructions {
		compiled[i] = regexp.MustCompile(`(?i)\b(?:` + strings.ReplaceAll(c.Match, " ", gap) + `)\b`)
	}
	return compiled
}

// Count adds the words of a text, and the constructions in it.
func (r *Rate) Count(text string) {
	for _, word := range strings.Fields(text) {
		if strings.ContainsFunc(word, unicode.IsLetter) {
			r.Words++
		}
	}
	for i, expression := range constructions {
		r.Found[i] += len(expression.FindAllStringIndex(text, -1))
	}
}

// Add adds the counts of other texts.
func (r *Rate) Add(other Rate) {
	r.Words += other.Words
	for i := range other.Found {
		r.Found[i] += other.Found[i]
	}
}

// Per1000 returns the occurrences in 1,000 words, in the order of Constructions.
func (r *Rate) Per1000() [4]float64 {
	var rates [4]float64
	if r.Words == 0 {
		return rates
	}
	for i, found := range r.Found {
		rates[i] = 1000 * float64(found) / float64(r.Words)
	}
	return rates
}

func (r *Rate) String() string {
	rates := r.Per1000()
	return fmt.Sprintf("%7d words: %5.2f %5.2f %5.2f %5.2f", r.Words, rates[0], rates[1], rates[2], rates[3])
}

var markdownComment = regexp.MustCompile(`<!--.*?-->`)

// Sentences returns the text of a Markdown page without comments and without code, in blocks and in lines.
func Sentences(markdown string) string {
	text := strings.Join(prose(markdown), "\n")
	return inlineCode.ReplaceAllString(markdownComment.ReplaceAllString(text, ""), "x")
}

var yamlComment = regexp.MustCompile(`(?m)(?:^|\s)#(.*)$`)

// YAMLComments returns the text of the comments of a YAML file, one a line.
func YAMLComments(yaml string) string {
	var comments []string
	for _, match := range yamlComment.FindAllStringSubmatch(yaml, -1) {
		comments = append(comments, match[1])
	}
	return inlineCode.ReplaceAllString(strings.Join(comments, "\n"), "x")
}
