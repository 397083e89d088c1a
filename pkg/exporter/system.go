package exporter

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/exporter/allocation"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/exporter/sampler"
	"github.com/prism-gpu/prism/pkg/exporter/sampling"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// System returns the adapters of a process on a real node.
func System(ctx context.Context, cfg *config.Exporter, version string) (Adapters, error) {
	host := hostfs.New(cfg.HostRoot, cfg.SearchDirs...)
	boot, err := host.BootID()
	if err != nil {
		return Adapters{}, err
	}
	tracker := allocation.New(allocation.Options{
		Records: cfg.PluginDir(), BootID: boot, DriverName: cfg.DriverName, CDIKind: checkpoint.CDIKind(cfg.DriverName),
		KubeletSocket: cfg.Sources.KubeletPodResources, CRISocket: cfg.Sources.CRISocket, HostRoot: cfg.HostRoot,
		PodLabels:  cfg.Pages.PodLabelKeys,
		DaemonsDir: filepath.Join(cfg.HostRoot, cfg.RunDir, "mps"),
	})
	library := sampling.New(sampling.Options{Find: func() (string, error) {
		root, err := host.FindDriver(cfg.DriverRoot)
		return root.Library, err
	}})
	return Adapters{
		Version: version, MayHaveGPU: host.MayHaveGPU, Allocations: tracker, After: time.After,
		Sampler: sampler.New(sampler.Options{
			Library: library, Processes: tracker, Wanted: wanted(tracker), Sets: cfg.Sampling.Sets, Fields: metrics.SetFields,
			Interval: cfg.Sampling.Interval.Duration, MinInterval: cfg.Sampling.MinInterval.Duration, Log: klog.FromContext(ctx),
		}),
	}, nil
}

// wanted converts the claims' options for a GPU to the sampler's type.
func wanted(tracker *allocation.Tracker) func(gpu.UUID) []sampler.Want {
	return func(id gpu.UUID) []sampler.Want {
		var all []sampler.Want
		for _, want := range tracker.Wanted(id) {
			all = append(all, sampler.Want{MIG: want.MIG, Sets: want.Sets, Interval: want.Interval, Claim: want.Claim})
		}
		return all
	}
}
