package exporter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/exporter/sampler"
)

// freshness is the accepted delay, in seconds, of the time of a source on a page.
const freshness = 10

// sourceStates changes with the states of the sources. It is called at each request and each second.
func (e *Exporter) sourceStates() string {
	var states []byte
	number := func(n uint64) { states = append(strconv.AppendUint(states, n, 36), ' ') }
	for _, source := range e.adapters.Allocations.Sources() {
		// Each reading changes its time; a page that is some seconds old may show the old one.
		states = append(strconv.AppendBool(append(states, source.Name...), source.OK), ' ')
		number(source.Errors)
		number(uint64(max(0, source.Read.Unix()/freshness)))
	}
	status := e.adapters.Sampler.Status()
	states = strconv.AppendBool(strconv.AppendBool(states, status.Err == nil), e.idle.Load())
	number(status.Reopened)
	number(status.SamplesDropped)
	for _, g := range slices.Sorted(maps.Keys(status.Errors)) {
		states = append(states, g...)
		number(status.Errors[g])
	}
	number(uint64(status.IntervalsLimited)) //nolint:gosec // not negative
	number(uint64(status.Unidentified))     //nolint:gosec // not negative
	number(e.otlpErrors.Load())
	return string(states)
}

// self returns the exporter's own state.
func (e *Exporter) self() metrics.Exporter {
	status := e.adapters.Sampler.Status()
	_, isSuspended := errors.AsType[*sampler.SuspendedError](status.Err)
	self := metrics.Exporter{
		Version: e.adapters.Version, Node: e.node, PodUID: e.cfg.Pages.PodUID, PodLabels: e.podLabels, Problems: e.counters.problems(), OTLPErrors: e.otlpErrors.Load(),
		SessionsReopened: status.Reopened, NVMLErrors: status.Errors, SamplesDropped: status.SamplesDropped,
		IntervalsLimited: status.IntervalsLimited, GPUsUnidentified: status.Unidentified,
		GPUsReleased: isSuspended,
	}
	if e.idle.Load() {
		return self // a node without a GPU needs no source
	}
	for _, source := range e.adapters.Allocations.Sources() {
		self.Sources = append(self.Sources, metrics.SourceState{Name: string(source.Name), OK: source.OK, At: source.Read, Errors: source.Errors})
	}
	nvml := metrics.SourceState{Name: "nvml", OK: status.Err == nil || isSuspended}
	for _, g := range e.adapters.Sampler.Snapshot().GPUs {
		if g.At.After(nvml.At) {
			nvml.At = g.At
		}
	}
	for _, errors := range status.Errors {
		nvml.Errors += errors
	}
	self.Sources = append(self.Sources, nvml)
	return self
}

// notes are the problems of an exporter that measures.
func (e *Exporter) notes() []string {
	if e.idle.Load() {
		return []string{"idle: the node has no NVIDIA GPU"}
	}
	var notes []string
	for _, source := range e.adapters.Allocations.Sources() {
		if !source.OK {
			notes = append(notes, fmt.Sprintf("%s: %s", source.Name, source.Error))
		}
	}
	suspended, isSuspended := errors.AsType[*sampler.SuspendedError](e.adapters.Sampler.Status().Err)
	if isSuspended {
		notes = append(notes, suspended.Error())
	}
	for _, g := range e.adapters.Sampler.Snapshot().GPUs {
		if g.ProcessesHidden {
			notes = append(notes, fmt.Sprintf("processes on GPU %s are outside of the exporter's pid namespace: run the exporter with hostPID", g.Identity.UUID))
		}
		if !g.Up && !isSuspended {
			notes = append(notes, fmt.Sprintf("GPU %s does not respond", g.Identity.UUID))
		}
	}
	if n := e.adapters.Sampler.Status().Unidentified; n > 0 {
		notes = append(notes, fmt.Sprintf("%d GPUs have not responded since the exporter started", n))
	}
	_, wrong := e.counters.current()
	return append(notes, wrong...)
}
