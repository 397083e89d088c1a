package screen

import (
	"strings"
	"unicode/utf8"
)

// Cut shortens a name to a width by an ellipsis in its middle: the beginning and the end of a name identify it.
func Cut(name string, width int) string {
	n := utf8.RuneCountInString(name)
	switch {
	case n <= width:
		return name
	case width <= 1:
		return "…"
	}
	runes := []rune(name)
	head := width / 2
	return string(runes[:head]) + "…" + string(runes[n-(width-1-head):])
}

// Wrap breaks text at spaces into lines. The first line begins with first, the others with rest. Words are not cut.
func Wrap(text, first, rest string, width int) []string {
	var lines []string
	line, free := first, true
	for _, word := range strings.Fields(text) {
		switch {
		case free:
			line += word
		case length(line)+1+length(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = rest + word
		}
		free = false
	}
	return append(lines, line)
}

// Cuts is Wrap for sentences with names of tenants: the middle of a word that is longer than a line is left out.
func Cuts(text, first, rest string, width int) []string {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = Cut(word, max(width-max(length(first), length(rest)), 1))
	}
	return Wrap(strings.Join(words, " "), first, rest, width)
}

// Items puts items into lines, with two spaces between two items. An item that is longer than a line has its own, which shorten makes of it.
func Items[T any](items []T, width int, shorten func(item T, width int) string) (lines []string) {
	line := ""
	for _, item := range items {
		text := shorten(item, width)
		if line != "" && length(line)+2+length(text) <= width {
			line += "  " + text
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		line = text
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// length is the width of text, in columns.
func length(text string) int { return utf8.RuneCountInString(text) }

// pad fills text with spaces to a width, at its left or right.
func pad(text string, width int, right bool) string {
	fill := strings.Repeat(" ", max(width-length(text), 0))
	if right {
		return fill + text
	}
	return text + fill
}
