package exporter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/exporter/sampler"
)

// Exporter runs all parts of the program.
type Exporter struct {
	cfg      *config.Exporter
	adapters Adapters
	node     string

	// idle is set if the node has no NVIDIA GPU.
	idle       atomic.Bool
	otlpErrors atomic.Uint64
	counters   *counters
	pages      *pages
	joiner     metrics.Joiner
	podLabels  []metrics.PodLabel

	mu   sync.Mutex
	last *round
}

// Build builds everything and serves nothing. Invalid web configuration and two pod labels of the same name are errors.
func Build(cfg *config.Exporter, a Adapters) (*Exporter, error) {
	if err := validateWebConfig(cfg.WebConfigFile); err != nil {
		return nil, err
	}
	podLabels, err := metrics.PodLabels(cfg.Pages.PodLabelKeys)
	if err != nil {
		return nil, fmt.Errorf("--pod-label-keys: %w", err)
	}
	node := cfg.NodeName
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("--node-name: %w", err)
		}
	}
	e := &Exporter{cfg: cfg, adapters: a, node: node, counters: &counters{path: cfg.Pages.Counters, measure: a.Sampler.Measure}, podLabels: podLabels}
	e.pages = &pages{view: func() view { return e.now() }}
	a.Sampler.Measure(metrics.DefaultFields()...) // until a file of counters chooses others
	a.Allocations.OnReleasing(a.Sampler.Release)
	a.Allocations.OnReleased(a.Sampler.Suspend)
	return e, nil
}

// Run serves until the context ends, and then returns nil, or until something fails. After gpu.ErrDriverReplaced another process can
// continue.
func (e *Exporter) Run(signalled context.Context) error {
	ctx, cancel := context.WithCancelCause(signalled)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, run := range e.parts() {
		running.Go(func() {
			if err := run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	if signalled.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// parts run until the context ends. An error of one part stops all parts.
func (e *Exporter) parts() []func(context.Context) error {
	http := &server{
		serving: e.cfg.Serving, webConfig: e.cfg.WebConfigFile, probes: e.cfg.ProbeEndpoint,
		pages: e.pages, ready: e.ready, notes: e.notes, listening: e.adapters.Listening,
	}
	return []func(context.Context) error{http.run, e.counters.watch, e.adapters.Allocations.Run, e.sample, e.expose, e.send}
}

// now returns the latest round, and the same value as long as nothing changed.
func (e *Exporter) now() *round {
	snapshot, allocations := e.adapters.Sampler.Snapshot(), e.adapters.Allocations.Allocations()
	selection, _ := e.counters.current()
	key := roundKey{samples: snapshot.Generation, allocations: allocations.Generation, selection: selection, sources: e.sourceStates()}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil || e.last.key != key {
		e.last = &round{key: key, join: sync.OnceValue(func() *metrics.Joined { return e.joiner.Join(snapshot, allocations, e.self()) })}
	}
	return e.last
}

// ready returns the reason why nothing can be measured. A rollout must not wait for a node without a GPU, nor for the end of maintenance: both
// are ready.
func (e *Exporter) ready() error {
	err := e.adapters.Sampler.Status().Err
	if _, suspended := errors.AsType[*sampler.SuspendedError](err); err == nil || suspended || e.idle.Load() {
		return nil
	}
	return fmt.Errorf("NVIDIA driver: %w", err)
}
