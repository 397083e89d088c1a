package main

import (
	"reflect"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/prism-gpu/prism/pkg/controller/classes"
	"github.com/prism-gpu/prism/pkg/controller/labels"
	"github.com/prism-gpu/prism/pkg/gpu"
	diagnostics "github.com/prism-gpu/prism/pkg/plugin/diagnostics"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
)

// metricsPage documents the metrics in the registries of both programs before any event.
func metricsPage(string) (string, error) {
	readings := diagnostics.Readings{}
	zero(reflect.ValueOf(&readings).Elem())
	readings.Health = diagnostics.HealthReadings{Failures: func() int64 { return 0 }, Findings: sampleFindings}
	readings.Steps = mps.Metrics(&mps.Counts{}, func() map[gpu.MPSDaemonState]int { return nil })
	ofController := prometheus.NewRegistry()
	classes.NewMetrics(ofController, version)
	labels.NewMetrics(ofController)
	out := newText("Metrics", "the metric registries of both programs and pkg/exporter/metrics")
	out.para("Metrics of GPUs: [metrics.md](../metrics.md).")
	out.para("Served at `/metrics`, with the metrics of the Go runtime and of the process. The chart value `metrics.podMonitor.create` creates PodMonitors.")
	for _, part := range []struct {
		program string
		source  prometheus.Gatherer
	}{
		{"prism-kubelet-plugin", diagnostics.NewMetrics(version, readings).Gatherer()},
		{"prism-controller", ofController},
	} {
		out.heading(part.program)
		t, err := metricsOf(part.source)
		if err != nil {
			return "", err
		}
		out.table(t)
	}
	fieldsSection(out)
	dcgmSection(out)
	recipeSection(out)
	return out.String(), nil
}

// sampleFindings are a finding of each key.
func sampleFindings() (all []diagnostics.Finding) {
	for _, taint := range findingTaints {
		all = append(all, diagnostics.Finding{GPU: "GPU-…", Key: string(taint.key), Value: "…"})
	}
	return all
}

// version is the version in the build information of the example.
const version = "0.0.0"

func metricsOf(source prometheus.Gatherer) (table, error) {
	t := table{head: []string{"name", "type", "labels", "help"}}
	families, err := source.Gather()
	if err != nil {
		return t, err
	}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "prism_") {
			continue
		}
		values := map[string][]string{}
		var names []string
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if !slices.Contains(names, label.GetName()) {
					names = append(names, label.GetName())
				}
				if !slices.Contains(values[label.GetName()], label.GetValue()) {
					values[label.GetName()] = append(values[label.GetName()], label.GetValue())
				}
			}
		}
		var labels []string
		for _, name := range names {
			slices.Sort(values[name])
			labels = append(labels, code(name)+": "+codes(values[name]))
		}
		t.row(code(family.GetName()), strings.ToLower(family.GetType().String()), strings.Join(labels, "; "), family.GetHelp())
	}
	return t, nil
}

// zero sets every function of a struct to one that returns zero values, and adds one entry to a map, so that its metric shows a series.
func zero(of reflect.Value) {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Kind() != reflect.Func {
			continue
		}
		f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
			var results []reflect.Value
			for j := range f.Type().NumOut() {
				result := reflect.New(f.Type().Out(j)).Elem()
				if result.Kind() == reflect.Map {
					result.Set(reflect.MakeMap(result.Type()))
					for _, kind := range []gpu.DeviceType{gpu.TypeGPU, gpu.TypeMIG, gpu.TypeMPS, gpu.TypeTimeSlice, gpu.TypeMonitor, gpu.TypePerfmon} {
						result.SetMapIndex(reflect.ValueOf(string(kind)), reflect.Zero(result.Type().Elem()))
					}
				}
				results = append(results, result)
			}
			return results
		}))
	}
}
