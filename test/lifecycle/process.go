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

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/mig"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/timeslice"
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
	// Owing is told what is owed; nil tells nobody.
	Owing func(debts []gpu.Debt)

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

	locks     *checkpoint.Locks
	inventory *inventory.Inventory
	leave     func() error
	hook      cdi.Installed
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
	files := touchedDisk{touch: w.Touch, journal: w.journal}
	records, err := checkpoint.Open(files, m.StateDir)
	if err != nil {
		return nil, err
	}
	p := &Process{}
	bootID := m.BootID()
	p.inventory, p.leave = m.look(touchedDriver(m.open, w.Touch), func() (inventory.Owned, error) {
		records, err := p.Kept()
		return mig.Owned(records, bootID, m.host.DriverLoad()), err
	})
	if p.locks, err = checkpoint.OpenLocks(m.StateDir); err != nil {
		return nil, err
	}
	if err := m.wire(ctx, p, files, records, w); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (m *Machine) wire(ctx context.Context, p *Process, files touchedDisk, records *checkpoint.Store, w Wiring) error {
	specs, err := cdi.OpenDir(files, m.CDIDir, cdiKind())
	if err != nil {
		return err
	}
	hooks := cdi.Hooks{Disk: files, Dir: m.programs(), Image: m.hookImage()}
	_, sweeping := hooks.Sweep(writer, specs) // is only logged
	former := cdi.Hooks{Disk: files, Dir: filepath.Join(m.StateDir, "bin"), Image: m.hookImage()}
	_, _, retiring := former.Retire(specs) // so is this
	if p.hook, err = hooks.Install(writer); err != nil {
		return errors.Join(err, sweeping, retiring)
	}
	steps := map[string]prepare.Step{}
	for kind, effect := range Effects {
		steps[kind] = touchedStep{step: effect(m), kind: kind, touch: w.Touch}
	}
	driver := func() (mig.Driver, error) { return p.inventory.Partitioning() }
	steps[claim.StepMIG] = mig.Step{Driver: driver, Load: m.host.DriverLoad}
	steps[claim.StepInterval] = m.slicing(p, files, w.Touch)
	mode := mig.Mode{Driver: driver, Shown: p.inventory.MIGMode, Changed: func(ctx context.Context) error {
		if err := w.Touch("inventory.Refresh", func() error { return nil }); err != nil {
			return err
		}
		return p.inventory.Refresh(ctx)
	}}
	source := claim.Source{Driver: DriverName, NodeName: NodeName, Monitor: true, Offered: func() (*gpu.Node, gpu.Layout, error) {
		return p.inventory.Current().Node, m.parts.layout, nil
	}}
	if m.offers {
		p.offer = m.offering(p, files, w.Touch)
		source.Offered = p.offer.Now
	}
	p.Transaction, p.Damaged, err = prepare.New(prepare.Ports{
		Records: records, Locks: touchedLocks{locks: p.locks, touch: w.Touch}, Planner: planner{source, w.Effects}, Steps: steps,
		Needs: map[string]prepare.Need{claim.NeedMIG: mode, claim.NeedWhole: mode}, Static: mig.Static{Driver: driver},
		Specs: struct {
			*cdi.Author
			*cdi.Dir
		}{m.author(p.inventory), specs},
	}, prepare.Settings{
		CDIKind: cdiKind(), BootID: m.BootID(), Writer: writer, Patience: w.Patience, DebtAfter: w.DebtAfter, Now: m.Now,
		Owing: w.Owing,
	})
	if err != nil {
		return err
	}
	_ = p.Refresh(ctx) // a driver that does not answer is no reason not to serve
	if m.offers {
		return p.offer.begin(ctx)
	}
	return nil
}

// writer is the version that the processes say they are.
const writer = "lifecycle"

// Close ends the process: the kernel drops its locks and its sessions with the driver.
func (p *Process) Close() error {
	if p.hook.Release != nil {
		p.hook.Release()
	}
	return errors.Join(p.locks.Close(), p.leave())
}

// look makes an inventory; leave ends its sessions. Who owns instances may be nil.
func (m *Machine) look(open inventory.Opener, owned func() (inventory.Owned, error)) (inv *inventory.Inventory, leave func() error) {
	var mu sync.Mutex
	var sessions []inventory.Session
	kept := func(ctx context.Context, root hostfs.DriverRoot) (inventory.Session, error) {
		session, err := open(ctx, root)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			sessions = append(sessions, session)
		}
		return session, err
	}
	return inventory.New(inventory.Options{Host: m.host, Open: kept, Owned: owned}), func() (err error) {
		mu.Lock()
		defer mu.Unlock()
		for _, session := range sessions {
			err = errors.Join(err, session.Close())
		}
		return err
	}
}

// Refresh looks at the driver again, as the plugin does every few seconds.
func (p *Process) Refresh(ctx context.Context) error { return p.inventory.Refresh(ctx) }

func (m *Machine) author(inv *inventory.Inventory) *cdi.Author {
	return &cdi.Author{
		Present: func() cdi.Present {
			view := inv.Current()
			return cdi.Present{Node: view.Node, Common: view.Common, DevRoot: view.Root.DevHostPath}
		},
		Stat: func(path string) (major, minor int64, err error) {
			device, err := m.host.CharDevice(path)
			return int64(device.Major), int64(device.Minor), err
		},
		Capabilities: func(minor int, id gpu.MIGIdentity) ([]cdi.Node, error) {
			devices, err := m.host.MIGNodes(minor, id.GPUInstance, id.ComputeInstance)
			nodes := make([]cdi.Node, 0, len(devices))
			for _, d := range devices {
				nodes = append(nodes, cdi.Node{Path: d.Path, HostPath: d.Path, Major: int64(d.Major), Minor: int64(d.Minor)})
			}
			return nodes, err
		},
		Monitoring: func() (cdi.Node, error) {
			d, err := m.host.MIGMonitorNode()
			return cdi.Node{Path: d.Path, HostPath: d.Path, Major: int64(d.Major), Minor: int64(d.Minor)}, err
		},
	}
}

// planner is the product's with the effects that a test asks for.
type planner struct {
	claim.Source
	effects func(rc *resourceapi.ResourceClaim) []string
}

// Resolve adds the effects to every GPU that the claim owns.
func (p planner) Resolve(rc *resourceapi.ResourceClaim) (*claim.Plan, error) {
	plan, err := p.Source.Resolve(rc)
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
