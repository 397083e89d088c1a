package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/mig"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// Wiring configures a process. The zero value sets no fault points and does not retry.
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

// Process is a plugin process: the product's Plugin, whose background work runs step by step. The kubelet's calls, layout changes and
// intervals use the product's code; the sockets, the watches of the API server and the leader's reconciler do not run.
type Process struct {
	*prepare.Transaction
	*plugin.Plugin

	machine *Machine
	disk    instrumentedDisk
	leave   func() error
	client  *apiClient
	layout  *layoutController
	// ended ends the lead.
	ended context.CancelFunc
}

// Start builds a process on the machine.
func (m *Machine) Start(ctx context.Context, w Wiring) (*Process, error) {
	if w.FaultPoint == nil {
		w.FaultPoint = func(_ string, effect func() error) error { return effect() }
	}
	if w.CallTimeout == 0 {
		w.CallTimeout = DefaultCallTimeout
	}
	open, leave := sessions(instrumentedDriver(m.open, w.FaultPoint))
	client := m.newAPIClient(w.FaultPoint)
	if err := m.health.begin(m); err != nil {
		return nil, errors.Join(err, leave())
	}
	built, err := plugin.Build(ctx, m.settings(), m.adapters(open, w, client))
	if err != nil {
		return nil, errors.Join(err, leave())
	}
	leading, ended := context.WithCancel(ctx)
	p := &Process{ended: ended, Transaction: built.Claims, Plugin: built, machine: m, disk: m.disk(w), leave: leave, client: client, layout: &layoutController{
		Layout: built.Layout(), machine: m, plugin: built, client: client,
	}}
	if err := p.lead(leading); err != nil {
		return nil, err
	}
	if !m.fakeTime {
		return p, p.know(ctx)
	}
	return p, nil
}

// lead makes the process lead if something on the machine needs that. It closes a process that fails, or is killed meanwhile.
func (p *Process) lead(ctx context.Context) (err error) {
	leads := false
	defer func() {
		if !leads {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.machine.health != nil {
		p.leadHealth(ctx)
	}
	if p.machine.layoutChanges {
		if err := p.layout.Lead(); err != nil {
			return err
		}
	}
	leads = true
	return nil
}

// know waits until the process knows the devices that the node advertises. Its start allows one second for that, and a slow machine may
// need more.
func (p *Process) know(ctx context.Context) error {
	if p.layout.Controller.Snapshot().Err == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, DefaultCallTimeout)
	defer stop()
	return p.layout.Controller.Run(ctx, stop)
}

// Prepare makes the kubelet's call for one claim, and returns the claim's record.
func (p *Process) Prepare(ctx context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	answers, err := p.Kubelet().PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{rc})
	answer := answers[rc.UID]
	if err = errors.Join(err, answer.Err); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(p.machine.StateDir, "claims", string(rc.UID)+".json"))
	if err != nil {
		return nil, fmt.Errorf("claim %s was prepared: %w", rc.UID, err)
	}
	r, err := checkpoint.Decode(data)
	if err != nil {
		return nil, err
	}
	for i := range answer.Devices {
		if want := []string{r.CDI.Kind + "=" + r.CDI.Devices[i]}; !slices.Equal(answer.Devices[i].CDIDeviceIDs, want) {
			return nil, fmt.Errorf("claim %s was prepared as %v, and its record has %v", rc.UID, answer.Devices[i].CDIDeviceIDs, want)
		}
	}
	return r, nil
}

// Unprepare makes the kubelet's call for one claim.
func (p *Process) Unprepare(ctx context.Context, uid string) error {
	errs, err := p.Kubelet().UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{{
		NamespacedName: types.NamespacedName{Namespace: "default", Name: uid}, UID: types.UID(uid),
	}})
	return errors.Join(err, errs[types.UID(uid)])
}

// settings returns the settings of the plugin's program.
func (m *Machine) settings() *config.Plugin {
	return &config.Plugin{Health: config.Health{XIDs: config.XIDActions{fmt.Sprint(taintingXID): config.XIDTaint}}, DriverName: DriverName, NodeName: NodeName, MonitorDevices: config.MonitorPerNode, PerfmonDevices: config.PerfmonPerGPU, NodeConfig: nodeConfigs, Exporter: true, Profiler: config.Profiler{
		Enabled: m.profiled, Collector: m.profiled, CollectorVersion: toolVersion,
	}, Paths: config.Paths{
		KubeletPlugins: filepath.Dir(m.StateDir), CDIRoot: m.CDIDir, StateDir: filepath.Join(m.dir(), "state"), RunDir: filepath.Join(m.dir(), "run"),
	}}
}

// disk returns the machine's disk with fault points.
func (*Machine) disk(w Wiring) instrumentedDisk {
	return instrumentedDisk{faultPoint: w.FaultPoint, journal: w.journal}
}

// adapters returns the machine's adapters with fault points.
func (m *Machine) adapters(open inventory.Opener, w Wiring, client *apiClient) plugin.Adapters {
	return plugin.Adapters{
		Version: writer, Disk: m.disk(w), Host: pluginHost{m.host, port.MinimalHost{Boot: m.BootID()}, m.parts.mps, m.profilerFiles()},
		Locks: func(dir string) (plugin.Locks, error) {
			locks, err := checkpoint.OpenLocks(dir)
			return instrumentedLocks{Locks: locks, faultPoint: w.FaultPoint}, err
		},
		Driver: func(string) inventory.Opener { return open }, Services: plugin.Services{MPS: m.mpsAdapter(w.FaultPoint)},
		Tool: func(*inventory.Inventory) timeslice.Tool { return instrumentedTool{m.tool, w.FaultPoint} },
		Now:  m.Now, HookImage: m.hookImage(), OwnHookImage: m.ownHookImage(), ImageDir: m.profilerImage(), Families: m.families(w.FaultPoint), Transaction: m.transaction(w),
		API: func(context.Context) (plugin.API, error) { return client.api(), nil },
	}
}

// transaction returns a builder of the product's transaction, with the effects of tests.
func (m *Machine) transaction(w Wiring) func(prepare.Ports, prepare.Options) (*prepare.Transaction, []error, error) {
	return func(ports prepare.Ports, options prepare.Options) (*prepare.Transaction, []error, error) {
		ports.Planner = planner{ports.Planner, w.Effects}
		for kind := range m.effects() {
			effect, ofTests := Effects[kind]
			if !ofTests {
				continue // an effect of a family, which brings its step
			}
			ports.Steps[kind] = instrumentedStep{step: effect(m), kind: kind, faultPoint: w.FaultPoint}
		}
		for kind, precondition := range ports.Preconditions {
			if mode, ok := precondition.(mig.Mode); ok {
				mode.Changed = instrumentedRefresh(mode.Changed, w.FaultPoint)
				ports.Preconditions[kind] = mode
			}
		}
		options.RetryBudget, options.DeferCleanupAfter = w.CallTimeout, w.CleanupAfter
		if taint := options.PendingCleanups; w.PendingCleanups != nil {
			options.PendingCleanups = func(pending []gpu.PendingCleanup) {
				taint(pending)
				w.PendingCleanups(pending)
			}
		}
		return prepare.New(ports, options)
	}
}

// writer is the version of the processes.
const writer = "lifecycle"

// Close ends the process: the kernel releases its locks and the driver's sessions.
func (p *Process) Close() error {
	p.ended()
	return errors.Join(p.Plugin.Close(), p.leave())
}

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
func (p *Process) Refresh(ctx context.Context) error {
	if err := p.Machine.Inventory.Refresh(ctx); err != nil {
		return err
	}
	return p.know(ctx) // the layout of new GPUs
}

// planner is the product's planner with the effects of tests.
type planner struct {
	prepare.Planner
	effects func(rc *resourceapi.ResourceClaim) []string
}

// Resolve adds the effects to every GPU that the claim owns.
func (p planner) Resolve(ctx context.Context, rc *resourceapi.ResourceClaim) (*claim.Plan, error) {
	plan, err := p.Planner.Resolve(ctx, rc)
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
		if name == monitor || strings.HasSuffix(name, "-perfmon") {
			result.Pool = gpu.Monitor{}.Pool(NodeName)
		}
		if strings.HasSuffix(name, "-timeslice") || strings.HasSuffix(name, "-mps") {
			result.ShareID = new(types.UID(fmt.Sprintf("%s-share-%d", rc.UID, i)))
		}
		rc.Status.Allocation.Devices.Results = append(rc.Status.Allocation.Devices.Results, result)
	}
	return rc
}
