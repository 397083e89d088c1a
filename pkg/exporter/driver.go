package exporter

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// absentInterval is the time between two probes of a node without a GPU.
const absentInterval = time.Minute

// sample samples, once the node may have a GPU, until the context ends, and then returns nil.
func (e *Exporter) sample(ctx context.Context) error {
	for !e.mayHaveGPU() {
		if !e.idle.Swap(true) {
			klog.FromContext(ctx).Info("Idle: the node has no NVIDIA GPU", "probeInterval", absentInterval.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.adapters.After(absentInterval):
		}
	}
	e.idle.Store(false)
	return e.adapters.Sampler.Run(ctx)
}

// mayHaveGPU assumes a GPU if the hardware cannot be listed.
func (e *Exporter) mayHaveGPU() bool {
	has, err := e.adapters.MayHaveGPU()
	return has || err != nil
}
