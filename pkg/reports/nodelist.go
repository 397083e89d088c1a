package reports

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// nodeList is what a node answered, in the order of its reports' keys.
type nodeList struct {
	reports []report.Report
	// cost is how much memory they take; read is how many came, those that were left out too.
	cost, read int
	// last is the key of the last one that came, "" of none. The node has more behind it.
	last string
	more bool
}

// bounds are how much of a node's answer is read.
type bounds struct {
	// bytes are those of the answer, cost is that of the reports that are kept.
	bytes int64
	cost  int
	// items are the reports that are read, kept those that are kept of them.
	items, kept int
}

// readList reads a node's list behind a key, as far as the bounds allow: one tenant's many reports do not make a node silent for the others.
// Reports that keep refuses, and those that are not in the order of their keys, are left out.
func readList(body io.Reader, after string, b bounds, keep func(report.Report) bool) (list nodeList, err error) {
	limited := &io.LimitedReader{R: body, N: b.bytes}
	decoder := json.NewDecoder(limited)
	defer func() {
		if err != nil && limited.N == 0 {
			list.more, err = true, nil
		}
	}()
	if err := openList(decoder); err != nil {
		return list, err
	}
	list.last = after
	for decoder.More() {
		if list.read >= b.items || len(list.reports) >= b.kept || list.cost >= b.cost {
			list.more = true
			return list, nil
		}
		var r report.Report
		if err := decoder.Decode(&r); err != nil {
			return list, err
		}
		at := key(r)
		if at <= list.last {
			continue // plugins of earlier versions answer from the first report on
		}
		list.last = at
		list.read++
		if keep(r) {
			list.reports = append(list.reports, r)
			list.cost += cost(r)
		}
	}
	_, err = decoder.Token() // More is false as well where the answer breaks off
	// A plugin that knows the limit sends no more than it.
	list.more = err == nil && list.read >= b.items
	return list, err
}

// openList reads up to the first of the reports; other versions may have something else before.
func openList(decoder *json.Decoder) error {
	if err := expect(decoder, json.Delim('{')); err != nil {
		return err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		if key == "reports" {
			return expect(decoder, json.Delim('['))
		}
		var other json.RawMessage
		if err := decoder.Decode(&other); err != nil {
			return err
		}
	}
	return fmt.Errorf("missing list of reports: %w", io.ErrUnexpectedEOF)
}

func expect(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("unexpected token %v, want %v at the beginning of the list of reports", token, want)
	}
	return err
}
