package plugin

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/extradevices"
	"github.com/prism-gpu/prism/pkg/plugin/health"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/mig"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
	"github.com/prism-gpu/prism/pkg/plugin/reconcile"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
)

const (
	// retryBudget is how long one call retries; the kubelet gives it 45 s.
	retryBudget = 40 * time.Second
	// deferCleanupAfter is how long a pod is kept for effects that cannot be undone.
	deferCleanupAfter = 2 * time.Minute
	// sweepJitter is the largest part of the period by which the next sweep is late.
	sweepJitter = 0.2
)

// Machine is the part of a plugin that works on the node alone: its files, its driver and its GPUs. It asks no API server.
type Machine struct {
	State     State
	Inventory *inventory.Inventory
	// Health knows the problems of the GPUs.
	Health *health.Monitor
	// Tool sets time-slice intervals.
	Tool timeslice.Tool
	// Extensions do the work for claims besides their devices.
	Extensions prepare.Extensions

	setup
	programs *programs.Set // they are held as long as this is referred to
	damaged  func(error)
}

// OpenMachine opens the node's files and installs programs. The driver is not opened before the inventory's first Refresh.
// damaged is called for every record that had to be set aside; it must not block, and may be nil. Close it after its inventory.
func OpenMachine(ctx context.Context, cfg *config.Plugin, a Adapters, damaged func(error)) (*Machine, error) {
	state, err := openState(ctx, cfg, a)
	if err != nil {
		return nil, err
	}
	installed, err := programs.Install(ctx, a.programs(cfg, state.Specs))
	if err != nil {
		return nil, errors.Join(err, state.close())
	}
	m := &Machine{State: state, setup: setup{cfg, a, &findingsOutlet{}}, programs: installed, damaged: damaged}
	polled := &polled{}
	m.Inventory = inventory.New(inventory.Options{
		Host: a.Host, DriverRoot: cfg.Driver.Root, Owned: m.owned, MayHaveGPU: mayHaveGPU(a.Host), Open: a.Driver(installed.DriverHook()),
		MemoryLimits: limitsMemory(installed, a.Host), Polled: polled.apply,
	})
	m.Health = monitorHealth(m.setup, state.BootID, m.Inventory)
	polled.monitor = m.Health
	m.Tool = a.Tool(m.Inventory)
	if m.Extensions, err = newExtensions(ctx, m); err != nil {
		installed.Release()
		return nil, errors.Join(err, state.close())
	}
	return m, nil
}

// Close lets other processes remove the programs that this one has used, and drops the locks.
func (m *Machine) Close() error {
	m.programs.Release()
	return m.State.close()
}

// KeepPrograms removes hook programs of other versions once nothing needs them, until the context ends.
func (m *Machine) KeepPrograms(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, m.programs.Sweep, reconcile.Period, sweepJitter, true)
	return nil
}

// Kept returns this node's records, as far as they can be read.
func (m *Machine) Kept() ([]*checkpoint.Record, error) {
	records, damaged, err := m.State.Records.All()
	for _, err := range damaged {
		if m.damaged != nil {
			m.damaged(err)
		}
	}
	return records, err
}

// records returns this node's records. The error names no claim: it is shown to others.
func (m *Machine) records() ([]*checkpoint.Record, error) {
	records, err := m.Kept()
	if err != nil {
		return nil, prepare.Redact("which GPUs are in use cannot be read now", err)
	}
	return records, nil
}

// owned returns which MIG instances claims own.
func (m *Machine) owned() (inventory.Owned, error) {
	records, err := m.Kept()
	if err != nil {
		return nil, err
	}
	return mig.Owned(records, m.State.BootID, m.adapters.Host.DriverLoad()), nil
}

// AdvertisedDevices are the devices of this node that can be allocated to claims.
type AdvertisedDevices interface {
	// Now returns the node and the layout of its GPUs; the error says why that is not known yet.
	Now() (*gpu.Node, gpu.Layout, error)
	// Standby reports whether another process may advertise another layout.
	Standby() bool
	// Flags are the settings of the node's configuration; nil if it contains none.
	Flags() *v1alpha1.NodeFlags
}

// Ports returns the ports of a transaction on this machine. Events are about the node.
func (m *Machine) Ports(ctx context.Context, advertised AdvertisedDevices, recorder events.Recorder) prepare.Ports {
	host := m.adapters.Host
	open := m.Inventory.MIGDriver
	mode := mig.Mode{Driver: open, Shown: m.Inventory.MIGMode, Changed: m.Inventory.Refresh}
	extra := &extradevices.Finder{Flags: advertised.Flags, CharDevices: host.CharDevices, Locate: host.Locate, Events: recorder}
	all := m.families()
	builder := SpecBuilder(host, m.Inventory, extra)
	present := builder.Present
	builder.Present = func() cdi.Present {
		now := present()
		now.Common = m.programs.Edits(now.Common)
		return now
	}
	if !m.cfg.Driver.Graphics {
		builder.Graphics = nil
	}
	builder.Types, builder.Exists = all.gpuNodes(), m.programs.Exists(builder.Exists)
	links := &charLinks{make: host.LinkCharDevices, logger: klog.FromContext(ctx)}
	return prepare.Ports{
		Records: m.State.Records,
		Locks:   m.State.Locks,
		Planner: planner{claim.Source{
			Driver: m.cfg.DriverName, NodeName: m.cfg.NodeName, Additional: published(m.cfg).Additional, Families: all.claim(),
			Advertised: advertised.Now, Standby: advertised.Standby, Recent: recentlyAllocated(m.adapters.Now),
		}, extension.All[extension.Planner](m.Extensions)},
		Specs:         claimSpecs{builder, m.State.Specs, metadataSpecs{m.cfg, m.State.former}, links},
		Steps:         all.withSteps(m.Extensions, advertised, recorder),
		Preconditions: map[string]prepare.Precondition{claim.PreconditionMIGMode: mode, claim.PreconditionNoMIGMode: mode},
		Extensions:    m.Extensions,
		Static:        mig.Static{Driver: open},
	}
}

// Options returns the facts and limits of a transaction on this machine.
func (m *Machine) Options() prepare.Options {
	return prepare.Options{
		CDIKind: cdi.Kind(m.cfg.DriverName), BootID: m.State.BootID, Writer: m.adapters.Version, RetryBudget: retryBudget, DeferCleanupAfter: deferCleanupAfter,
		Now: m.adapters.Now, Damaged: m.damaged,
	}
}
