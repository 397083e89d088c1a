package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/nvml"
)

// Act is one call of the kubelet, or what a plugin does by itself.
type Act struct {
	// Call is "prepare", "unprepare", "settle", "sweep", "keep", "configure", "allocate",
	// "delete" or "pass".
	Call string
	// Claim is the claim's UID.
	Claim string
	// GPUs are the ordinals of the GPUs that the claim was given.
	GPUs []int
	// Looks: it was given the node's monitor device.
	Monitor bool
	// Slices are the MIG devices that it was given.
	MIGDevices []MIGDevice
	// Shares are the ordinals of the GPUs of which it was given a share.
	Shares []int
	// Effects are planned on each GPU that it owns.
	Effects []string
	// Interval is what the claim asks for on its GPUs, or, of "keep", what the node's configuration wants on them.
	Interval gpu.Interval `json:",omitempty"`
	// Config is what "configure" makes the node's configuration.
	Config string `json:",omitempty"`
	// Stale: the claim was given its devices as if the node had the layout that it has not.
	Stale bool `json:",omitempty"`
	// Fails: the call must not succeed.
	Fails bool
	// Beside: the next act begins before this one has ended.
	Beside bool
}

// childSpec tells a child process what to do, and when to die.
type childSpec struct {
	// Root holds the driver, the device nodes and what the kernel shows, Library is the driver's library.
	Root, Library    string
	StateDir, CDIDir string
	BootID           string
	GPUs             []gpu.UUID
	Layout           gpu.Layout
	// LayoutChanges: what the node offers changes, and time is not the world's.
	LayoutChanges bool
	Acts          []Act
	// Refuse names the sites whose n-th fault point is refused.
	Refuse map[string]int
	// KillAt is the fault point at which the process kills itself, counted from its start or, when it is not Early, from when it serves.
	// Late: after the fault point took effect. Touches that only look are counted when Looks is set; else only the first of an act, as the
	// others leave what the one before them has left.
	KillAt                  int
	Late, Early, CountReads bool
	// Patience bounds a call; zero means DefaultPatience.
	Patience time.Duration
	// Concurrent, when it is not nil, is done instead of the acts.
	Concurrent *concurrentClaims
	// Journal is the file that every change of the disk is told to.
	Journal string
}

// attach makes the child's view of the machine.
func attach(o childSpec) (*Machine, error) {
	m := &Machine{StateDir: o.StateDir, CDIDir: o.CDIDir, gpus: o.GPUs, boots: 1, layoutChanges: o.LayoutChanges}
	if _, err := fmt.Sscanf(o.BootID, "boot-%d", &m.boots); err != nil {
		return nil, fmt.Errorf("reading the boot id %q: %w", o.BootID, err)
	}
	m.parts.layout = o.Layout
	m.installed(o.Root, o.Library)
	return m, nil
}

// installed has the machine's processes look at the files below root, as the product does, and load that library.
func (m *Machine) installed(root, file string) {
	m.host = hostfs.New(root)
	m.open = func(ctx context.Context, found hostfs.DriverRoot) (inventory.Session, error) {
		return nvml.Open(ctx, found.Library, nvml.Options{Root: found.Path, HostRoot: found.HostPath})
	}
	m.hardware, m.tool = library{vendor.New(vendor.WithLibraryPath(file))}, installedTool(root)
}

// killSwitch counts the fault points of a process, refuses some, and kills the process at one of them.
type killSwitch struct {
	spec childSpec
	out  io.Writer

	one sync.Mutex

	mu      sync.Mutex
	serving bool
	// told: what the process has told since its last fault point is all that a death changes, whatever the fault point.
	reported    bool
	faultPoints int
	sites       map[string]int
}

var errRefused = errors.New("input/output error")

func (m *killSwitch) faultPoint(site string, effect func() error) error {
	m.mu.Lock()
	counted := (m.serving || m.spec.Early) && (m.reported || m.spec.CountReads || !readOnly(site))
	if counted {
		m.faultPoints, m.reported = m.faultPoints+1, false
	}
	m.sites[site]++
	last, refused := counted && m.faultPoints == m.spec.KillAt, m.sites[site] == m.spec.Refuse[site]
	m.mu.Unlock()
	if m.spec.Concurrent == nil {
		// One fault point at a time, so that none is half done, and in no journal, when another one is the last.
		m.one.Lock()
		defer m.one.Unlock()
	}
	if last && !m.spec.Late {
		killSelf()
	}
	err := errRefused
	if !refused {
		err = effect()
	}
	if last {
		killSelf()
	}
	return err
}

// serves tells that the start is over.
func (m *killSwitch) started() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serving, m.reported = true, true
}

// Write tells what the process has to tell.
func (m *killSwitch) Write(line []byte) (int, error) {
	m.mu.Lock()
	m.reported = true
	m.mu.Unlock()
	return m.out.Write(line)
}

// die is what an operator's kill -9, or the kernel's out-of-memory processKiller, does to a process.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// live does the acts and tells each that ended: "did <index>", or "failed <index> <why>". Nothing is buffered: what was told
// before a kill was told.
func runChild(ctx context.Context, o childSpec, out io.Writer) error {
	m, err := attach(o)
	if err != nil {
		return err
	}
	journal, err := os.OpenFile(o.Journal, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = journal.Close() }()
	var writing sync.Mutex
	lines := json.NewEncoder(journal)
	end := &killSwitch{spec: o, out: out, reported: true, sites: map[string]int{}}
	p, err := m.Start(ctx, Wiring{
		FaultPoint: end.faultPoint, Patience: o.Patience, DebtAfter: time.Minute, Effects: o.effects(), journal: func(c change) {
			writing.Lock()
			defer writing.Unlock()
			if err := lines.Encode(c); err != nil {
				panic(err) // the images of a power cut would be wrong
			}
		},
	})
	if err != nil {
		return err
	}
	end.started()
	if o.Concurrent != nil {
		return o.Concurrent.run(ctx, m, p)
	}
	if err := m.actAll(ctx, p, o.Acts, end); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "faultpoints %d\n", end.faultPoints)
	return err
}

// actAll does the acts in order; some are done beside the next one.
func (m *Machine) actAll(ctx context.Context, p *Process, acts []Act, out io.Writer) error {
	errs := make([]error, len(acts))
	var beside sync.WaitGroup
	for i, act := range acts {
		one := func() { errs[i] = m.report(ctx, p, i, act, out) }
		if act.Beside {
			beside.Go(one)
			continue
		}
		one()
		beside.Wait()
	}
	beside.Wait()
	return errors.Join(errs...)
}

// told does an act and tells how it ended.
func (m *Machine) report(ctx context.Context, p *Process, i int, act Act, out io.Writer) error {
	result := fmt.Sprintf("did %d\n", i)
	if err := m.act(ctx, p, act); err != nil {
		result = fmt.Sprintf("failed %d %v\n", i, strings.ReplaceAll(err.Error(), "\n", " "))
		if err := m.checkRolledBack(act); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, result) // one write for one line, so that those beside each other do not mix
	return err
}

// undone: what a failed Prepare had begun is taken back when it returns, or it is a debt.
func (m *Machine) checkRolledBack(act Act) error {
	records, err := m.Records()
	if err != nil {
		return err
	}
	r := records[act.Claim]
	if act.Call == "prepare" && act.Fails && r != nil && r.State == checkpoint.Intent {
		return fmt.Errorf("preparing %s failed and was not rolled back", act.Claim)
	}
	return nil
}

func (m *Machine) act(ctx context.Context, p *Process, act Act) error {
	switch act.Call {
	case "prepare":
		rc, err := m.allocateFor(act)
		if err == nil {
			_, err = p.Prepare(ctx, rc)
		}
		return err
	case "unprepare":
		return m.unprepareAndDelete(ctx, p, act.Claim)
	case "recover":
		return p.Settle(ctx)
	case "collectGarbage":
		_, err := p.Sweep(ctx, nil, true)
		return err
	case "reconcileIntervals":
		return m.reconcileIntervals(ctx, p, act.Interval, act.GPUs...)
	case "configure":
		return p.offer.configure(ctx, act.Config)
	case "allocate":
		_, err := m.allocateFor(act)
		return err
	case "delete":
		return m.updateCluster(func(c *cluster) { delete(c.Allocated, act.Claim) })
	case "wait":
		return p.offer.pass(ctx, changeSeconds)
	default:
		return fmt.Errorf("no such call: %s", act.Call)
	}
}

// claim is the claim as it is allocated when the act comes.
func (m *Machine) claim(act Act) *resourceapi.ResourceClaim {
	var devices []string
	for _, i := range act.GPUs {
		devices = append(devices, m.device(i))
	}
	for _, s := range act.MIGDevices {
		devices = append(devices, m.migDeviceName(s))
	}
	for _, i := range act.Shares {
		devices = append(devices, m.device(i)+"-timeslice")
	}
	if act.Monitor {
		devices = append(devices, monitor)
	}
	rc := m.allocate(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: act.Claim, UID: types.UID(act.Claim),
	}}, devices...)
	return withInterval(rc, act.Interval, len(act.GPUs))
}

// device is the name of a GPU's whole device.
func (m *Machine) device(ordinal int) string { return "gpu-" + string(m.gpus[ordinal])[4:12] }

// effects plans what the acts say, and all effects for every second claim of a crowd.
func (o childSpec) effects() func(*resourceapi.ResourceClaim) []string {
	if o.Concurrent != nil {
		return withEffects
	}
	return effectsOf(o.Acts)
}

// withEffects plans all effects for the claims whose number is odd.
func withEffects(rc *resourceapi.ResourceClaim) []string {
	if last := rc.UID[len(rc.UID)-1]; (last-'0')%2 == 1 {
		return AllEffects
	}
	return nil
}

// effectsOf plans what the acts say: effects are a matter of the claim, and the same in all its acts.
func effectsOf(acts []Act) func(*resourceapi.ResourceClaim) []string {
	effects := map[types.UID][]string{}
	for _, act := range acts {
		if act.Call == "prepare" {
			effects[types.UID(act.Claim)] = act.Effects
		}
	}
	return func(rc *resourceapi.ResourceClaim) []string { return effects[rc.UID] }
}
