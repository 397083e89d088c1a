package screen

import (
	"strings"
)

// Kind is the content of a column.
type Kind int

const (
	// Number is aligned to the right and never shortened.
	Number Kind = iota
	// Word is a short fixed word, and never shortened.
	Word
	// Name is shortened in the middle if the table is too wide.
	Name
	// Sentence is wrapped. Only the last column can have sentences.
	Sentence
)

// Column is a column of a table.
type Column struct {
	Title string
	Kind  Kind
}

const (
	gap = 2
	// Columns of names and of sentences are not made narrower than this.
	shortestName, shortestSentence = 5, 20
)

// Table aligns rows below a title line. paint colors a padded cell; nil colors none.
func (s Screen) Table(columns []Column, rows [][]string, paint func(row, column int, text string) string) string {
	if paint == nil {
		paint = func(_, _ int, text string) string { return text }
	}
	widths := s.widths(columns, rows)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.Title
	}
	var out strings.Builder
	s.row(&out, columns, widths, titles, func(_ int, text string) string { return text })
	for i, cells := range rows {
		s.row(&out, columns, widths, cells, func(column int, text string) string { return paint(i, column, text) })
	}
	return out.String()
}

// row writes a row, with as many lines as its sentence has.
func (s Screen) row(out *strings.Builder, columns []Column, widths []int, cells []string, paint func(column int, text string) string) {
	line, indent := "", 0
	for i, c := range columns {
		text := cells[i]
		if i > 0 {
			line += strings.Repeat(" ", gap)
			indent += gap
		}
		switch c.Kind {
		case Sentence:
			parts := Cuts(text, "", "", widths[i])
			for j := range parts {
				parts[j] = paint(i, parts[j])
			}
			line += strings.Join(parts, "\n"+strings.Repeat(" ", indent))
		case Name:
			line += paint(i, pad(Cut(text, widths[i]), widths[i], false))
		default:
			line += paint(i, pad(text, widths[i], c.Kind == Number))
		}
		indent += widths[i]
	}
	out.WriteString(strings.TrimRight(line, " ") + "\n")
}

// widths returns the widths of columns: as wide as their content if the screen is wide enough, else names are shortened, the longest first, and
// sentences are wrapped.
func (s Screen) widths(columns []Column, rows [][]string) []int {
	widths := make([]int, len(columns))
	total := gap * (len(columns) - 1)
	for i, c := range columns {
		widths[i] = length(c.Title)
		for _, cells := range rows {
			widths[i] = max(widths[i], length(cells[i]))
		}
		total += widths[i]
	}
	if last := len(columns) - 1; last >= 0 && columns[last].Kind == Sentence && total > s.Width {
		total -= widths[last]
		widths[last] = max(s.Width-total, shortestSentence)
		total += widths[last]
	}
	for total > s.Width {
		longest := -1
		for i, c := range columns {
			if c.Kind == Name && widths[i] > max(shortestName, length(c.Title)) && (longest < 0 || widths[i] > widths[longest]) {
				longest = i
			}
		}
		if longest < 0 {
			break
		}
		widths[longest]--
		total--
	}
	return widths
}
