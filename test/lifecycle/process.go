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

// Wiring says how a process is put together. The zero value touches the machine directly and retries nothing.
type Wiring struct {
	// Touch sees every touch of the machine; nil lets all pass.
	Touch Touch
	// Patience bounds a call. Zero means DefaultPatience.
	Patience time.Duration
	// DebtAfter is for how long Unprepare keeps a pod whose effects cannot be undone.
	DebtAfter time.Duration
	// Effects names the effects that a claim's plan has on each GPU it owns; nil plans none.
	Effects func(rc *resourceapi.ResourceClaim) []string
	// PendingCleanups is called with the pending cleanups whenever they change; may be nil.
	PendingCleanups func([]gpu.PendingCleanup)

	// journal is told of every change of the disk.
	journal func(change)
}

// DefaultPatience is long enough for a slow machine and short enough for a test that fails.
const DefaultPatience = 20 * time.Second

// Process is one plugin process: the product's packages, without the kubelet's and the API server's ends.
type Process struct {
	*prepare.Transaction
	// Damaged are the records that could not be read at the start.
	Damaged []error

	machine *plugin.Machine
	leave   func() error
	// keeper brings about what is wanted; unkept is what it could not.
	keeper *timeslice.Keeper
	wanted map[gpu.UUID]gpu.Interval
	unkept error
	// offer is nil where what the node offers does not change.
	offer *offer
}

// Start wires a process on the machine as the plugin's main does, in the same order.
func (m *Machine) Start(ctx context.Context, w Wiring) (*Process, error) {
	if w.Touch == nil {
		w.Touch = func(_ string, effect func() error) error { return effect() }
	}
	if w.Patience == 0 {
		w.Patience = DefaultPatience
	}
	cfg := m.settings()
	open, leave := sessions(touchedDriver(m.open, w.Touch))
	machine, err := plugin.OpenMachine(ctx, cfg, m.adapters(open, w), nil)
	if err != nil {
		return nil, err
	}
	p := &Process{machine: machine, leave: leave}
	if err := m.transact(ctx, p, w); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// settings are those of the plugin's program.
func (m *Machine) settings() *config.Plugin {
	return &config.Plugin{DriverName: DriverName, NodeName: NodeName, MonitorDevices: config.MonitorPerNode, Paths: config.Paths{
		KubeletPlugins: filepath.Dir(m.StateDir), CDIRoot: m.CDIDir, StateDir: filepath.Join(m.dir(), "state"),
	}}
}

// adapters are what a process works on: the machine, and every touch of it is seen.
func (m *Machine) adapters(open inventory.Opener, w Wiring) plugin.Adapters {
	return plugin.Adapters{
		Version: writer, Disk: touchedDisk{touch: w.Touch, journal: w.journal}, Host: struct {
			host
			port.Bare
		}{m.host, port.Bare{Boot: m.BootID()}},
		Locks: func(dir string) (plugin.Locks, error) {
			locks, err := checkpoint.OpenLocks(dir)
			return touchedLocks{Locks: locks, touch: w.Touch}, err
		},
		Driver: func(string) inventory.Opener { return open },
		Tool:   func(*inventory.Inventory) timeslice.Tool { return touchedTool{m.tool, w.Touch} },
		Now:    m.Now, HookImage: m.hookImage(),
	}
}

// transact builds what prepares claims, from the plugin's own parts and with the effects of tests beside them.
func (m *Machine) transact(ctx context.Context, p *Process, w Wiring) error {
	advertised, settings := plugin.Advertised(always{m, p}), p.machine.Settings()
	var read layout.AtStart
	settings.PendingCleanups = w.PendingCleanups
	if m.offers {
		p.offer = m.offering(p, w.Touch)
		read.Config, read.ConfigErr = p.offer.config(ctx)
		p.offer.Bind(&settings)
		advertised = p.offer
	}
	settings.Loaded = func(records []*checkpoint.Record) { read.Records = records }
	m.slicing(p)
	ports := p.machine.Ports(advertised, silent{})
	ports.Planner = planner{ports.Planner, w.Effects}
	for kind, effect := range Effects {
		ports.Steps[kind] = touchedStep{step: effect(m), kind: kind, touch: w.Touch}
	}
	for kind, need := range ports.Preconditions {
		if mode, ok := need.(mig.Mode); ok {
			mode.Changed = touchedRefresh(mode.Changed, w.Touch)
			ports.Preconditions[kind] = mode
		}
	}
	settings.RetryBudget, settings.DeferCleanupAfter = w.Patience, w.DebtAfter
	var err error
	if p.Transaction, p.Damaged, err = prepare.New(ports, settings); err != nil {
		return err
	}
	_ = p.Refresh(ctx) // a driver that does not answer is no reason not to serve
	if m.offers {
		return p.offer.begin(ctx, read)
	}
	return nil
}

// always is a node that offers the same all the time.
type always struct {
	machine *Machine
	process *Process
}

func (a always) Now() (*gpu.Node, gpu.Layout, error) {
	return a.process.machine.Inventory.Current().Node, a.machine.parts.layout, nil
}

func (always) Standby() bool { return false }

func (always) Flags() *v1alpha1.NodeFlags { return nil }

// writer is the version that the processes say they are.
const writer = "lifecycle"

// Close ends the process: the kernel drops its locks and its sessions with the driver.
func (p *Process) Close() error { return errors.Join(p.machine.Close(), p.leave()) }

// look makes an inventory; leave ends its sessions. Who owns instances may be nil.
func (m *Machine) look(open inventory.Opener, owned func() (inventory.Owned, error)) (inv *inventory.Inventory, leave func() error) {
	kept, leave := sessions(open)
	return inventory.New(inventory.Options{Host: m.host, Open: kept, Owned: owned}), leave
}

// sessions opens what open does; leave closes all of it.
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

// Refresh looks at the driver again, as the plugin does every few seconds.
func (p *Process) Refresh(ctx context.Context) error { return p.machine.Inventory.Refresh(ctx) }

// planner is the product's with the effects that a test asks for.
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

// Allocate returns the claim with these devices of the node given to it. A name that ends in "!" is given with admin access, and of a
// device for several claims a share.
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
