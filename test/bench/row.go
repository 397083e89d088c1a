package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Row is one line of the report: a time or a count. The budget of a count is asserted. Times depend on the machine and its load, so their
// budgets are only printed.
type Row struct {
	Name string
	// Samples are times; the report prints p50 and p99. They are nil in a row with a count.
	Samples Samples
	// Count is a number; with Bytes, a number of bytes.
	Count int
	Bytes bool
	// Base and BaseCount are the values to compare with: p50, p99 if the budget is for p99, or the count.
	Base      Samples
	BaseCount int
	// Note is printed after the count.
	Note   string
	Budget Budget
}

// Budget limits a row. The zero value sets no limit.
type Budget struct {
	// Limit is the largest value: nanoseconds at p50, a number, or bytes. Ratio is the largest ratio to the base.
	Limit int
	Ratio float64
	// Equal: the value must equal the limit. Tail: the limit, or the ratio, is for p99.
	Equal, Tail bool
	kind        budgetKind
}

type budgetKind int

const (
	none budgetKind = iota
	printed
	asserted
)

// AtMost returns the asserted budget of a count.
func AtMost(n int) Budget { return Budget{Limit: n, kind: asserted} }

// Exactly returns the asserted budget of a count that is the same each time.
func Exactly(n int) Budget { return Budget{Limit: n, Equal: true, kind: asserted} }

// Within returns the printed budget of times.
func Within(d time.Duration) Budget { return Budget{Limit: int(d), kind: printed} }

// InMemory returns the printed budget of bytes.
func InMemory(bytes int) Budget { return Budget{Limit: bytes, kind: printed} }

// Ratio returns the budget of a comparison.
func Ratio(most float64) Budget { return Budget{Ratio: most, kind: printed} }

// RatioAtP99 returns the budget of a comparison of p99.
func RatioAtP99(most float64) Budget { return Budget{Ratio: most, Tail: true, kind: printed} }

// exceeded reports whether the row exceeds its budget.
func (r Row) exceeded() bool {
	got := r.Count
	if r.Samples != nil {
		got = int(r.of(r.Samples))
	}
	switch {
	case r.Budget.kind == none:
		return false
	case r.Budget.Ratio > 0:
		return r.ratio() > r.Budget.Ratio
	}
	return got > r.Budget.Limit || r.Budget.Equal && got < r.Budget.Limit
}

// Problem returns an error if a count is not within its budget, else nil.
func (r Row) Problem() error {
	if r.Budget.kind != asserted || !r.exceeded() {
		return nil
	}
	return fmt.Errorf("%s: %s, the budget is %s", r.Name, r.number(r.Count), r.budget())
}

// of returns the sample with the budget: p50 or p99.
func (r Row) of(s Samples) time.Duration {
	if r.Budget.Tail {
		return s.P99()
	}
	return s.P50()
}

// ratio returns 0 without a base.
func (r Row) ratio() float64 {
	base, got := float64(r.BaseCount), float64(r.Count)
	if r.Samples != nil {
		base, got = float64(r.of(r.Base)), float64(r.of(r.Samples))
	}
	if base == 0 {
		return 0
	}
	return got / base
}

func (r Row) number(n int) string {
	switch {
	case r.Samples != nil:
		return milliseconds(time.Duration(n))
	case r.Bytes:
		return mebibytes(int64(n))
	}
	return strconv.Itoa(n)
}

// budget describes the budget, without whether it is exceeded.
func (r Row) budget() string {
	sign := "≤ "
	if r.Budget.Equal {
		sign = "= "
	}
	switch b := r.Budget; {
	case b.kind == none:
		return ""
	case b.Ratio > 0:
		return sign + strconv.FormatFloat(b.Ratio, 'f', 2, 64) + r.tail()
	default:
		return sign + r.number(b.Limit) + r.tail()
	}
}

// tail marks a number as p99.
func (r Row) tail() string {
	if r.Budget.Tail {
		return " at p99"
	}
	return ""
}

// columns are the columns of every table. A section omits a column that is empty in all its rows.
var columns = []struct {
	head string
	cell func(Row) string
}{
	{"p50, or count", func(r Row) string {
		if r.Samples != nil {
			return milliseconds(r.Samples.P50())
		}
		return strings.TrimSpace(r.number(r.Count) + " " + r.Note)
	}},
	{"p99", func(r Row) string {
		if len(r.Samples) < 2 {
			return ""
		}
		return milliseconds(r.Samples.P99())
	}},
	{"base", func(r Row) string {
		switch {
		case r.ratio() == 0:
			return ""
		case r.Samples != nil:
			return milliseconds(r.of(r.Base)) + r.tail()
		}
		return r.number(r.BaseCount)
	}},
	{"ratio", func(r Row) string {
		if r.ratio() == 0 {
			return ""
		}
		return strconv.FormatFloat(r.ratio(), 'f', 2, 64)
	}},
	{"budget", func(r Row) string {
		text := r.budget()
		if r.Budget.kind == asserted {
			text += ", asserted"
		}
		if r.exceeded() {
			text += ", **exceeded**"
		}
		return text
	}},
}

// Section is a table. Base names the values that its rows are compared with.
type Section struct {
	Title, Base string
	Rows        []Row
}

// write renders the table.
func (s *Section) write(b *strings.Builder) {
	head, line := "\n| "+s.Title+" |", "\n|---|"
	lines := make([]string, len(s.Rows))
	for i, r := range s.Rows {
		name := r.Name
		if len(r.Samples) > 1 {
			name += fmt.Sprintf(" (%d)", len(r.Samples))
		}
		lines[i] = "\n| " + name + " |"
	}
	for _, column := range columns {
		if !slices.ContainsFunc(s.Rows, func(r Row) bool { return column.cell(r) != "" }) {
			continue
		}
		title := column.head
		if title == "base" {
			title = s.Base
		}
		head, line = head+" "+title+" |", line+"--:|"
		for i, r := range s.Rows {
			lines[i] += " " + column.cell(r) + " |"
		}
	}
	b.WriteString(head + line + strings.Join(lines, "") + "\n")
}

// Report holds all results of one run.
type Report struct {
	// Where describes hardware, kernel, load and versions.
	Where    string
	Sections []*Section
}

// Add appends rows to the section with that title, and creates the section if it is missing. base names the values to compare with.
func (r *Report) Add(title, base string, rows ...Row) {
	i := slices.IndexFunc(r.Sections, func(s *Section) bool { return s.Title == title })
	if i < 0 {
		i, r.Sections = len(r.Sections), append(r.Sections, &Section{Title: title, Base: base})
	}
	r.Sections[i].Rows = append(r.Sections[i].Rows, rows...)
}

// Problems names every count that is not within its budget, or returns nil.
func (r *Report) Problems() error {
	var problems []error
	for _, s := range r.Sections {
		for _, row := range s.Rows {
			if err := row.Problem(); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", s.Title, err))
			}
		}
	}
	return errors.Join(problems...)
}

// Markdown writes the report as tables.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(r.Where + "\n")
	for _, s := range r.Sections {
		s.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
