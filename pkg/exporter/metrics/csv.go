package metrics

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Selection is an ordered list of DCGM fields for a page.
type Selection struct {
	rows   []selectedRow
	labels []identityLabel
}

type selectedRow struct {
	row    *dcgmRow
	family Family
}

// defaultSelection contains dcgm-exporter's default counters, including the counters that are commented out there.
var defaultSelection = func() *Selection {
	s := &Selection{labels: dcgmLabels[:1]}
	for i := range dcgmTable {
		if row := &dcgmTable[i]; !row.extra {
			s.rows = append(s.rows, selectedRow{row, Family{Name: row.name, Help: row.help, Kind: row.kind}})
		}
	}
	return s
}()

// DefaultFields are the fields of a page without a CSV, each once.
func DefaultFields() []Field { return defaultSelection.Fields() }

// Fields are the fields that the selection shows, and the counters from which they are calculated, each once.
func (s *Selection) Fields() []Field {
	var fields []Field
	add := func(f Field) {
		if !slices.Contains(fields, f) {
			fields = append(fields, f)
		}
	}
	for _, r := range s.rows {
		for _, f := range r.row.of.fields {
			add(f)
			if i := slices.IndexFunc(rates, func(r rate) bool { return r.rate == f }); i >= 0 {
				add(rates[i].counter)
			}
		}
	}
	return fields
}

// Names are the names of the fields, labels last.
func (s *Selection) Names() []string {
	var names []string
	for _, r := range s.rows {
		names = append(names, r.row.name)
	}
	for _, l := range s.labels {
		names = append(names, l.name)
	}
	return names
}

// maxCSV limits the size of a CSV to the size of a ConfigMap.
const maxCSV = 1 << 20

// ParseCSV parses a CSV like dcgm-exporter: lines of field, type and help, comments with #. Unsupported lines are ignored and returned. It
// returns an error if the text is not such a CSV, or contains no supported field.
func ParseCSV(text []byte) (*Selection, []Problem, error) {
	if len(text) > maxCSV {
		return nil, nil, fmt.Errorf("must be at most %d bytes, got %d", maxCSV, len(text))
	}
	reader := csv.NewReader(bytes.NewReader(text))
	reader.Comment, reader.FieldsPerRecord, reader.TrimLeadingSpace = '#', -1, true
	s := &Selection{}
	var problems []Problem
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("must be lines of field, type and help: %w", err)
		}
		line, _ := reader.FieldPos(0)
		for i := range record {
			record[i] = strings.TrimSpace(record[i])
		}
		if strings.HasPrefix(record[0], "#") || len(record) == 1 && record[0] == "" {
			continue
		}
		if len(record) != 3 {
			return nil, nil, fmt.Errorf("line %d: must have 3 columns: field, type and help, got %d", line, len(record))
		}
		if reason := s.add(record[0], record[1], record[2]); reason != "" {
			problems = append(problems, Problem{Line: line, Field: bounded(record[0], maxText), Reason: reason})
		}
	}
	if len(s.rows) == 0 {
		return nil, problems, errors.New("must contain a line with a supported field")
	}
	return s, problems, nil
}

// add adds one line, or returns the reason why not.
func (s *Selection) add(field, kind, help string) string {
	if slices.Contains(s.Names(), field) {
		return "duplicate field"
	}
	if i := slices.IndexFunc(dcgmLabels, func(l identityLabel) bool { return l.name == field }); i >= 0 {
		if kind != "label" {
			return fmt.Sprintf("type must be label, got %q", bounded(kind, maxLabel))
		}
		s.labels = append(s.labels, dcgmLabels[i])
		return ""
	}
	i := slices.IndexFunc(dcgmTable, func(r dcgmRow) bool { return r.name == field })
	if i < 0 {
		return whyNot(field)
	}
	family := Family{Name: field, Help: bounded(help, maxText)}
	switch kind {
	case "gauge":
	case "counter":
		family.Kind = Counter
	default:
		return fmt.Sprintf("unsupported type %q; supported values: gauge, counter", bounded(kind, maxLabel))
	}
	s.rows = append(s.rows, selectedRow{&dcgmTable[i], family})
	return ""
}
