package reports

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// nodeList is what a node answered.
type nodeList struct {
	reports []report.Report
	// truncated: the node has more.
	truncated bool
}

// readList reads a node's list up to a limit in bytes, and as far as it is shown: one tenant's many reports do not make a node silent for the others.
func readList(body io.Reader, limit int64) (list nodeList, err error) {
	limited := &io.LimitedReader{R: body, N: limit}
	decoder := json.NewDecoder(limited)
	defer func() {
		if err != nil && limited.N == 0 {
			list.truncated, err = true, nil
		}
	}()
	if err := openList(decoder); err != nil {
		return list, err
	}
	for decoder.More() {
		if len(list.reports) == maxReports {
			list.truncated = true
			return list, nil
		}
		var r report.Report
		if err := decoder.Decode(&r); err != nil {
			return list, err
		}
		list.reports = append(list.reports, r)
	}
	_, err = decoder.Token() // More is false as well where the answer breaks off
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
	return fmt.Errorf("no list of reports: %w", io.ErrUnexpectedEOF)
}

func expect(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%v where %v begins the list of reports", token, want)
	}
	return err
}
