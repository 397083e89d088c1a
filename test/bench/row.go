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

// Row is one line of the report: how long something took, or how often it was done. The budget of a count is asserted; times depend
// on the machine, and on what else runs there, so their budgets are printed only.
type Row struct {
	Name string
	// Samples are times, of which p50 and p99 are printed; nil in a row that counts.
	Samples Samples
	// Count is a number, of bytes in a row with Bytes.
	Count int
	Bytes bool
	// Base and BaseCount are what the row is compared with: p50, or p99 where that has the budget, or the number.
	Base      Samples
	BaseCount int
	// Note is printed after the count.
	Note   string
	Budget Budget
}

// Budget is what a row may be. The zero value is none.
type Budget struct {
	// Limit is the largest value: nanoseconds at p50, a number, or bytes. Ratio is the largest ratio to the base.
	Limit int
	Ratio float64
	// Equal: the value is neither larger nor smaller. Tail: the limit, or the ratio, is for p99.
	Equal, Tail bool
	kind        budgetKind
}

type budgetKind int

const (
	none budgetKind = iota
	printed
	asserted
)

// AtMost is the asserted budget of a count.
func AtMost(n int) Budget { return Budget{Limit: n, kind: asserted} }

// Exactly is the asserted budget of a count that is the same each time.
func Exactly(n int) Budget { return Budget{Limit: n, Equal: true, kind: asserted} }

// Within is the budget of times, which are printed.
func Within(d time.Duration) Budget { return Budget{Limit: int(d), kind: printed} }

// InMemory is the budget of bytes that are not asserted.
func InMemory(bytes int) Budget { return Budget{Limit: bytes, kind: printed} }

// Ratio is the budget of a comparison.
func Ratio(most float64) Budget { return Budget{Ratio: most, kind: printed} }

// RatioAtP99 is the budget of a comparison of the slowest ones.
func RatioAtP99(most float64) Budget { return Budget{Ratio: most, Tail: true, kind: printed} }

// exceeded says whether the row is not within its budget.
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

// Problem is an error for a count that is not within its budget, nil for everything else.
func (r Row) Problem() error {
	if r.Budget.kind != asserted || !r.exceeded() {
		return nil
	}
	return fmt.Errorf("%s: %s, the budget is %s", r.Name, r.number(r.Count), r.budget())
}

// Problems joins those of the rows.
func Problems(rows ...Row) error {
	var problems []error
	for _, r := range rows {
		problems = append(problems, r.Problem())
	}
	return errors.Join(problems...)
}

// of is which time of some samples has the budget.
func (r Row) of(s Samples) time.Duration {
	if r.Budget.Tail {
		return s.P99()
	}
	return s.P50()
}

// ratio is 0 without a base.
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

// budget is the budget in words, without whether it is exceeded.
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

// tail says that a number is one of p99.
func (r Row) tail() string {
	if r.Budget.Tail {
		return " at p99"
	}
	return ""
}

// columns are those of every table. One that is empty in all rows of a section is left out.
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

// Section is a table. Base says what its rows are compared with.
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

// Report is everything that one run found out.
type Report struct {
	// Where is hardware, kernel, load and versions.
	Where    string
	Sections []*Section
}

// Add appends rows to the section with that title, which it makes where there is none. base says what the rows are compared with.
func (r *Report) Add(title, base string, rows ...Row) {
	i := slices.IndexFunc(r.Sections, func(s *Section) bool { return s.Title == title })
	if i < 0 {
		i, r.Sections = len(r.Sections), append(r.Sections, &Section{Title: title, Base: base})
	}
	r.Sections[i].Rows = append(r.Sections[i].Rows, rows...)
}

// Problems names every count that is not within its budget; nil where there is none.
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
