package plugin

import (
	"context"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/diagnostics"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// AwaitGPU returns when the node may contain an NVIDIA GPU, or has claims that were prepared when it contained one. Until then the process
// only checks for a GPU, and answers probes and controllers. It does not ask the API server. It does not register with the kubelet, so the
// kubelet removes the ResourceSlices of an earlier process. A missing GPU is no error, whatever failOnInitError says: a driver that does not
// answer is one.
func AwaitGPU(ctx context.Context, cfg *config.Plugin, a Adapters, clock inventory.Clock) error {
	mayHave := mayHaveGPU(a.Host)
	needed := func() bool { return mayHave() || hasRecords(cfg) }
	if needed() {
		return nil
	}
	klog.FromContext(ctx).Info("Idle: the node has no NVIDIA GPU", "probeInterval", inventory.AbsentInterval.String())
	debug.FreeOSMemory()
	probing, stop := context.WithCancel(ctx)
	defer stop()
	parts, working := errgroup.WithContext(probing)
	parts.Go(func() error {
		defer stop()
		return diagnostics.Idle(cfg.Serving.HTTPEndpoint, a.Version, "idle: the node has no NVIDIA GPU").Run(working)
	})
	parts.Go(func() error {
		if err := whileIdle(working, cfg, a); err != nil {
			klog.FromContext(ctx).Error(err, "Reports cannot be read until the node has an NVIDIA GPU")
		}
		return nil
	})
	if inventory.AwaitGPU(probing, needed, clock) == nil {
		klog.FromContext(ctx).Info("The node has an NVIDIA GPU")
	}
	stop()
	return parts.Wait()
}

// mayHaveGPU also returns true if the hardware of the machine cannot be listed.
func mayHaveGPU(host Host) func() bool {
	return func() bool {
		has, err := host.MayHaveGPU()
		return has || err != nil
	}
}

// hasRecords reports whether claims have to be unprepared.
func hasRecords(cfg *config.Plugin) bool {
	names, _ := formerDriverNames(cfg, disk.OS{})
	for _, name := range append(names, cfg.DriverName) {
		if found, _ := filepath.Glob(filepath.Join(cfg.Paths.KubeletPlugins, name, "claims", "*.json")); len(found) > 0 {
			return true
		}
	}
	return false
}
