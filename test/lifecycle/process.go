package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/layout"
	"github.com/prism-gpu/prism/pkg/mig"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/timeslice"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// Wiring configures a process. The zero value has no fault points and does not retry.
type Wiring struct {
	// FaultPoint is called for every access to the machine; nil: none.
	FaultPoint FaultPoint
	// CallTimeout bounds a call. Zero means DefaultCallTimeout.
	CallTimeout time.Duration
	// CleanupAfter is how long Unprepare blocks a pod whose effects cannot be undone.
	CleanupAfter time.Duration
	// Effects returns the effects that are planned on each GPU that the claim owns; nil plans none.
	Effects func(rc *resourceapi.ResourceClaim) []string
	// PendingCleanups receives the pending cleanups; may be nil.
	PendingCleanups func(pending []gpu.PendingCleanup)

	// journal receives every change of the disk.
	journal func(change)
}

// DefaultCallTimeout is sufficient for a slow machine, and bounds a failing test.
const DefaultCallTimeout = 20 * time.Second

// Process is a plugin process: the product's Core without what serves kubelet and API server.
type Process struct {
	*prepare.Transaction
	*plugin.Core

	leave func() error
	// wanted are the configured intervals; intervalErrs are the errors of setting them.
	wanted       map[gpu.UUID]gpu.Interval
	intervalErrs error
	// layout is nil if the layout of the node does not change.
	layout *layoutController
}

// Start builds a process on the machine from the plugin's parts.
func (m *Machine) Start(ctx context.Context, w Wiring) (*Process, error) {
	if w.FaultPoint == nil {
		w.FaultPoint = func(_ string, effect func() error) error { return effect() }
	}
	if w.CallTimeout == 0 {
		w.CallTimeout = DefaultCallTimeout
	}
	cfg := m.settings()
	open, leave := sessions(instrumentedDriver(m.open, w.FaultPoint))
	machine, err := plugin.OpenMachine(ctx, cfg, m.adapters(open, w), nil)
	if err != nil {
		return nil, err
	}
	p := &Process{leave: leave}
	if err := m.build(ctx, p, machine, w); err != nil {
		return nil, errors.Join(err, machine.Close(), leave())
	}
	return p, nil
}

// build builds the product's Core and begins to advertise.
func (m *Machine) build(ctx context.Context, p *Process, machine *plugin.Machine, w Wiring) (err error) {
	var advertiser plugin.Advertiser = always{m, p, machine.Inventory}
	var read layout.AtStart
	if m.layoutChanges {
		p.layout = m.newLayoutController(p, machine, w.FaultPoint)
		read.Config, read.ConfigErr = p.layout.config(ctx)
		advertiser = p.layout
	}
	if p.Core, err = plugin.NewCore(ctx, machine, advertiser, plugin.Reports{Events: intervalEvents{p}}); err != nil {
		return err
	}
	p.Transaction = p.Claims
	if err := p.Begin(ctx, read); err != nil || !m.layoutChanges {
		return err
	}
	return p.layout.Lead()
}

// settings are those of the plugin's program.
func (m *Machine) settings() *config.Plugin {
	return &config.Plugin{DriverName: DriverName, NodeName: NodeName, MonitorDevices: config.MonitorPerNode, Paths: config.Paths{
		KubeletPlugins: filepath.Dir(m.StateDir), CDIRoot: m.CDIDir, StateDir: filepath.Join(m.dir(), "state"),
	}}
}

// adapters are the machine with fault points.
func (m *Machine) adapters(open inventory.Opener, w Wiring) plugin.Adapters {
	return plugin.Adapters{
		Version: writer, Disk: instrumentedDisk{faultPoint: w.FaultPoint, journal: w.journal}, Host: struct {
			host
			port.MinimalHost
		}{m.host, port.MinimalHost{Boot: m.BootID()}},
		Locks: func(dir string) (plugin.Locks, error) {
			locks, err := checkpoint.OpenLocks(dir)
			return instrumentedLocks{Locks: locks, faultPoint: w.FaultPoint}, err
		},
		Driver: func(string) inventory.Opener { return open },
		Tool:   func(*inventory.Inventory) timeslice.Tool { return instrumentedTool{m.tool, w.FaultPoint} },
		Now:    m.Now, HookImage: m.hookImage(), Families: m.families(w.FaultPoint), Transaction: m.transaction(w),
	}
}

// transaction returns what builds the product's transaction, with the effects of tests.
func (m *Machine) transaction(w Wiring) func(prepare.Ports, prepare.Settings) (*prepare.Transaction, []error, error) {
	return func(ports prepare.Ports, settings prepare.Settings) (*prepare.Transaction, []error, error) {
		ports.Planner = planner{ports.Planner, w.Effects}
		for kind := range m.effects() {
			effect, ofTests := Effects[kind]
			if !ofTests {
				continue // of a family, which has its step
			}
			ports.Steps[kind] = instrumentedStep{step: effect(m), kind: kind, faultPoint: w.FaultPoint}
		}
		for kind, precondition := range ports.Preconditions {
			if mode, ok := precondition.(mig.Mode); ok {
				mode.Changed = instrumentedRefresh(mode.Changed, w.FaultPoint)
				ports.Preconditions[kind] = mode
			}
		}
		settings.RetryBudget, settings.DeferCleanupAfter = w.CallTimeout, w.CleanupAfter
		if settings.PendingCleanups == nil {
			settings.PendingCleanups = w.PendingCleanups
		}
		return prepare.New(ports, settings)
	}
}

// always is a node with a constant layout.
type always struct {
	machine   *Machine
	process   *Process
	inventory *inventory.Inventory
}

func (a always) Now() (*gpu.Node, gpu.Layout, error) {
	return a.inventory.Current().Node, a.machine.parts.layout, nil
}

func (always) Standby() bool { return false }

func (always) Flags() *v1alpha1.NodeFlags { return nil }

func (always) Bind(*prepare.Settings) {}

func (always) Begin(context.Context, layout.AtStart) {}

func (a always) Intervals() (map[gpu.UUID]gpu.Interval, error) { return a.process.wanted, nil }

// writer is the version of the processes.
const writer = "lifecycle"

// Close ends the process: the kernel releases its locks and the driver's sessions.
func (p *Process) Close() error { return errors.Join(p.Machine.Close(), p.leave()) }

// inspect returns an inventory; leave closes its sessions. owned may be nil.
func (m *Machine) inspect(open inventory.Opener, owned func() (inventory.Owned, error)) (inv *inventory.Inventory, leave func() error) {
	kept, leave := sessions(open)
	return inventory.New(inventory.Options{Host: m.host, Open: kept, Owned: owned}), leave
}

// sessions records the sessions that open opens; leave closes them.
func sessions(open inventory.Opener) (kept inventory.Opener, leave func() error) {
	var mu sync.Mutex
	var sessions []inventory.Session
	kept = func(ctx context.Context, root hostfs.DriverRoot) (inventory.Session, error) {
		session, err := open(ctx, root)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			sessions = append(sessions, session)
		}
		return session, err
	}
	return kept, func() (err error) {
		mu.Lock()
		defer mu.Unlock()
		for _, session := range sessions {
			err = errors.Join(err, session.Close())
		}
		return err
	}
}

// Refresh inspects the GPUs again, as the plugin does every few seconds.
func (p *Process) Refresh(ctx context.Context) error { return p.Machine.Inventory.Refresh(ctx) }

// planner is the product's planner with the effects of tests.
type planner struct {
	prepare.Planner
	effects func(rc *resourceapi.ResourceClaim) []string
}

// Resolve adds the effects to every GPU that the claim owns.
func (p planner) Resolve(rc *resourceapi.ResourceClaim) (*claim.Plan, error) {
	plan, err := p.Planner.Resolve(rc)
	if err != nil || p.effects == nil {
		return plan, err
	}
	for i := range plan.Results {
		if plan.Results[i].Admin {
			continue
		}
		for _, kind := range p.effects(rc) {
			plan.Steps = append(plan.Steps, claim.Step{Kind: kind, Target: plan.Results[i].Device.Parent().UUID})
		}
	}
	return plan, nil
}

// monitor is the node's monitor device, for Allocate.
const monitor = "monitor!"

// Allocate returns the claim with these devices of the node allocated. A name that ends in "!" has admin access; a shared device is
// allocated as a share.
func Allocate(rc *resourceapi.ResourceClaim, devices ...string) *resourceapi.ResourceClaim {
	rc = rc.DeepCopy()
	rc.Status.Allocation = &resourceapi.AllocationResult{}
	for i, name := range devices {
		result := resourceapi.DeviceRequestAllocationResult{
			Request: fmt.Sprintf("r%d", i), Driver: DriverName, Pool: NodeName, Device: name,
		}
		if plain := len(name) - 1; name[plain] == '!' {
			result.Device, result.AdminAccess = name[:plain], new(true)
		}
		if name == monitor {
			result.Pool = gpu.Monitor{}.Pool(NodeName)
		}
		if strings.HasSuffix(name, "-timeslice") {
			result.ShareID = new(types.UID(fmt.Sprintf("%s-share-%d", rc.UID, i)))
		}
		rc.Status.Allocation.Devices.Results = append(rc.Status.Allocation.Devices.Results, result)
	}
	return rc
}
