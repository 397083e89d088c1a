package prepare

import (
	"maps"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// StatusData returns the values that the record's steps add to the data of each result's status, in the order of the results; nil for a
// result without such steps. Of several steps that set one key the first one counts.
func (steps Steps) StatusData(r *checkpoint.Record) []map[string]any {
	data := make([]map[string]any, len(r.Results))
	for i := range r.Steps {
		s := &r.Steps[i]
		reporter, can := steps[s.Kind].(StatusReporter)
		if !can {
			continue
		}
		status := reporter.Status(*s)
		for _, at := range r.ResultsOf(s) {
			if data[at] == nil {
				data[at] = map[string]any{}
			}
			for key, value := range status {
				if _, set := data[at][key]; !set {
					data[at][key] = value
				}
			}
		}
	}
	return data
}

// Metrics returns the metrics of all steps, in the order of the kinds' names.
func (steps Steps) Metrics() []Metric {
	var metrics []Metric
	for _, kind := range slices.Sorted(maps.Keys(steps)) {
		if measured, has := steps[kind].(Measured); has {
			metrics = append(metrics, measured.Metrics()...)
		}
	}
	return metrics
}
