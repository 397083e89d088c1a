package main

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/mig"
	"github.com/prism-gpu/prism/pkg/nvml"
	"github.com/prism-gpu/prism/pkg/prepare"
)

func watchDriver(cfg *config.Plugin, host *hostfs.FS, hook string, owned func() (inventory.Owned, error)) *inventory.Inventory {
	return inventory.New(inventory.Options{
		Host: host, DriverRoot: cfg.Driver.Root, Owned: owned, MayHaveGPU: mayHaveGPU(host),
		Open: func(ctx context.Context, root hostfs.DriverRoot) (inventory.Session, error) {
			return nvml.Open(ctx, root.Library, nvml.Options{Root: root.Path, HostRoot: root.HostPath, HookPath: hook})
		},
	})
}

// firstLook fails only where the operator asked for it and nobody's claim would suffer.
func firstLook(ctx context.Context, cfg *config.Plugin, inv *inventory.Inventory, tx *prepare.Transaction) error {
	err := inv.Refresh(ctx)
	if claims, _ := tx.Counts(); err != nil && cfg.Driver.FailOnInitError != nil && *cfg.Driver.FailOnInitError && claims == 0 {
		return fmt.Errorf("ending, as failOnInitError wants: %w", err)
	}
	if err != nil {
		klog.FromContext(ctx).Info("No usable NVIDIA driver yet: serving without devices and trying again", "reason", err.Error())
	}
	return nil
}

func author(host *hostfs.FS, inv *inventory.Inventory, beside *driver.Beside) *cdi.Author {
	return &cdi.Author{
		Present: func() cdi.Present {
			view := inv.Current()
			return cdi.Present{
				Node: view.Node, Common: view.Common, DevRoot: view.Root.DevHostPath,
				Beside: beside.Nodes(), BesideMounts: beside.Mounts(view.Root.HostPath),
			}
		},
		Stat: func(path string) (major, minor int64, err error) {
			device, err := host.CharDevice(path)
			return int64(device.Major), int64(device.Minor), err
		},
		Capabilities: func(minor int, id gpu.MIGIdentity) ([]cdi.Node, error) {
			devices, err := host.MIGNodes(minor, id.GPUInstance, id.ComputeInstance)
			nodes := make([]cdi.Node, 0, len(devices))
			for _, d := range devices {
				nodes = append(nodes, cdi.Node{Path: d.Path, HostPath: d.Path, Major: int64(d.Major), Minor: int64(d.Minor)})
			}
			return nodes, err
		},
		Monitoring: func() (cdi.Node, error) {
			d, err := host.MIGMonitorNode()
			return cdi.Node{Path: d.Path, HostPath: d.Path, Major: int64(d.Major), Minor: int64(d.Minor)}, err
		},
	}
}

// owned tells which MIG instances claims own.
func (p *program) owned(host *hostfs.FS, bootID string) (inventory.Owned, error) {
	records, err := p.tx.Kept()
	if err != nil {
		return nil, err
	}
	return mig.Owned(records, bootID, host.DriverLoad()), nil
}

// cutting builds what makes MIG devices and looks for those that an administrator made, with the driver that is open at the time.
func cutting(host *hostfs.FS, inv *inventory.Inventory) (mig.Step, mig.Mode, mig.Static) {
	driver := func() (mig.Driver, error) { return inv.Partitioning() }
	return mig.Step{Driver: driver, Load: host.DriverLoad}, mig.Mode{Driver: driver, Shown: inv.MIGMode, Changed: inv.Refresh}, mig.Static{Driver: driver}
}
