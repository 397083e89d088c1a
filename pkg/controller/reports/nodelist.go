package reports

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// nodeList is the answer of a node, in the order of its reports' keys.
type nodeList struct {
	reports []report.Report
	// cost is the memory of the reports; read is the number of received reports, including omitted ones.
	cost, read int
	// last is the key of the last received report, or "". The node stores more reports after it.
	last string
	more bool
}

// bounds limit the part of a node's answer that is read.
type bounds struct {
	// bytes limits the answer, cost the memory of the kept reports.
	bytes int64
	cost  int
	// items limits the read reports, kept the kept ones.
	items, kept int
}

// readList reads a node's list after a key, as far as the bounds allow: many reports of one tenant do not make a node silent for others.
// Reports that keep refuses, or that are not in the order of their keys, are omitted.
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
	_, err = decoder.Token() // More is also false if the answer breaks off
	// A plugin that knows the limit does not send more.
	list.more = err == nil && list.read >= b.items
	return list, err
}

// openList reads up to the first report; other versions may send other fields before it.
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
