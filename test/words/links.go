package words

import (
	"regexp"
	"strings"
	"unicode"
)

var (
	link       = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	heading    = regexp.MustCompile(`^#{1,6} +(.*?) *#* *$`)
	linked     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// Links returns the targets of the links in a Markdown text to other files and places, without links to other sites.
func Links(text string) []Text {
	var targets []Text
	for i, line := range prose(text) {
		for _, match := range link.FindAllStringSubmatch(inlineCode.ReplaceAllStringFunc(line, blank), -1) {
			if !strings.Contains(match[1], "://") && !strings.HasPrefix(match[1], "mailto:") {
				targets = append(targets, Text{i + 1, match[1]})
			}
		}
	}
	return targets
}

// Anchors returns the places in a Markdown text that a link can name: one for each heading.
func Anchors(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, line := range prose(text) {
		match := heading.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		anchor := slug(match[1])
		for n, unique := 1, anchor; ; n++ {
			if !anchors[unique] {
				anchors[unique] = true
				break
			}
			unique = anchor + "-" + string(rune('0'+n))
		}
	}
	return anchors
}

// slug returns GitHub's anchor of a heading.
func slug(title string) string {
	title = linked.ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// prose returns the lines of a Markdown text; lines of code blocks are empty.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	code := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			code = !code
		}
		if fence || code {
			lines[i] = ""
		}
	}
	return lines
}
