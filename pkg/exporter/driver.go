package exporter

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// absentInterval is the time between two probes of a machine without a GPU.
const absentInterval = time.Minute

// sample samples until the context ends, which is no error, once the node may have a GPU.
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

// mayHaveGPU takes a machine whose hardware cannot be listed for one that has a GPU.
func (e *Exporter) mayHaveGPU() bool {
	has, err := e.adapters.MayHaveGPU()
	return has || err != nil
}
