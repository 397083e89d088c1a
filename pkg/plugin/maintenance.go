package plugin

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/maintenance"
)

// Maintenance follows the annotations and conditions of the node's own Node.
type Maintenance struct {
	*maintenance.Controller

	file maintenance.File
	// conditions are the types of the node's conditions that taint GPUs.
	conditions []string
}

// MaintenancePorts are the parts of a process that maintenance acts on.
type MaintenancePorts struct {
	Core *Core
	API  API
	// Monitor has the findings of the GPUs.
	Monitor maintenance.Monitor
	// Release closes the inventory's session until a time; the zero time lets it open one again.
	Release func(until time.Time)
}

// NewMaintenance builds it. Conditions are the types of the node's conditions that taint GPUs. Sessions that an earlier process has closed
// for a release stay closed: call it before the driver is opened.
func NewMaintenance(ctx context.Context, ports MaintenancePorts, conditions []string) *Maintenance {
	core, machine := ports.Core, ports.Core.Machine
	m := &Maintenance{file: maintenance.File{Disk: machine.adapters.Disk, Dir: machine.cfg.PluginDir()}, conditions: conditions}
	m.Controller = maintenance.New(maintenance.Options{
		DriverName: machine.cfg.DriverName, Monitor: ports.Monitor, Events: ports.API.Events, GPUs: knownGPUs(machine.Inventory),
		Replaced: func() <-chan struct{} { return machine.Inventory.Current().Replaced() },
		Releases: maintenance.ReleasePorts{
			File: m.file, Records: core.Claims.Records, WithGPULock: core.Claims.WithGPULock, Clients: machine.adapters.gpuClients,
			Session: func(ctx context.Context, until time.Time) {
				ports.Release(until)
				if until.IsZero() {
					_ = machine.Inventory.Refresh(ctx) // reported by the inventory's view
				}
				core.Intervals.Trigger() // the driver may have lost them
			},
		},
	})
	m.Start(ctx)
	return m
}

// knownGPUs returns the GPUs of an inventory's view.
func knownGPUs(of *inventory.Inventory) func() ([]gpu.GPU, error) {
	return func() ([]gpu.GPU, error) {
		view := of.Current()
		return view.Node.GPUs, view.Err
	}
}

// gpuClients lists processes that have a GPU open.
func (a *Adapters) gpuClients(ctx context.Context, g *gpu.GPU) ([]maintenance.Client, error) {
	if a.GPUClients == nil {
		return nil, nil
	}
	return a.GPUClients(ctx, g)
}

// node passes the parts of a Node that was read.
func (m *Maintenance) node(now *kube.NodeParts) {
	node := maintenance.Node{Annotations: now.Annotations}
	for _, c := range now.Conditions {
		node.Conditions = append(node.Conditions, maintenance.Condition(c))
	}
	m.Node(node)
}

// parts are the functions that run until the context ends.
func (m *Maintenance) parts() []func(context.Context) error {
	return []func(context.Context) error{m.Run, func(ctx context.Context) error {
		disk.Watch(ctx, m.file.Path(), m.FileChanged, func(err error) {
			klog.FromContext(ctx).Error(err, "The file of releases is read every few seconds")
		})
		return nil
	}}
}
