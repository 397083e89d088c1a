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
	"github.com/prism-gpu/prism/pkg/hostfs/pcie"
	"github.com/prism-gpu/prism/pkg/nvml"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// Act is one call of the kubelet, or an action of the plugin or the cluster.
type Act struct {
	// Call is "prepare", "unprepare", "recover", "collectGarbage", "reconcileIntervals", "configure", "allocate", "delete", "formerRecords" or "wait".
	Call string
	// Claim is the claim's UID.
	Claim string
	// GPUs are the ordinals of the claim's whole GPUs.
	GPUs []int
	// Monitor: the claim requests the node's monitor device.
	Monitor bool
	// Counters are the ordinals of GPUs whose perfmon device the claim requests.
	Counters []int `json:",omitempty"`
	// MIGDevices are the claim's MIG devices.
	MIGDevices []MIGDevice
	// Shares are the ordinals of GPUs of which the claim requests a share.
	Shares []int
	// Null are the ordinals of GPUs whose null device the claim requests.
	Null []int `json:",omitempty"`
	// MPS are the ordinals of GPUs of which the claim requests an MPS share, StrategyMPS: several MPS clients use its devices.
	MPS         []int `json:",omitempty"`
	StrategyMPS bool  `json:",omitempty"`
	// For is the duration of "pass".
	For time.Duration `json:",omitempty"`
	// Effects are the effects planned on each GPU that the claim owns.
	Effects []string
	// Interval is the interval in the claim's configuration, or, of "reconcileIntervals", in the node's configuration.
	Interval gpu.Interval `json:",omitempty"`
	// Config is the node's configuration after "configure".
	Config string `json:",omitempty"`
	// Stale: the claim is allocated a device that the node does not advertise.
	Stale bool `json:",omitempty"`
	// Profiling: the processes of the claim run under Nsight Systems.
	Profiling bool `json:",omitempty"`
	// ByHand: they wait for commands; Verb is the verb of "command".
	ByHand bool         `json:",omitempty"`
	Verb   session.Verb `json:",omitempty"`
	// Counting: the performance counters of its GPUs are recorded.
	Counting bool `json:",omitempty"`
	// Ranges is the number of recorded ranges of a process; 0: it was not recorded in ranges.
	Ranges int `json:",omitempty"`
	// Exposing: the containers of the claim see its metrics.
	Exposing bool `json:",omitempty"`
	// Value is the recovery action, or the code of an XID error.
	Value uint64 `json:",omitempty"`
	// Fails: the call must fail.
	Fails bool
	// Beside: the next act starts before this one has returned.
	Beside bool
}

// childSpec defines the acts of a child process, and when it kills itself.
type childSpec struct {
	// Root contains the driver, the device nodes and the kernel's files, Library is the driver's library.
	Root, Library    string
	StateDir, CDIDir string
	BootID           string
	GPUs             []gpu.UUID
	Layout           gpu.Layout
	// LayoutChanges: the node's layout changes.
	LayoutChanges bool
	// FakeTime: time is fake.
	FakeTime bool
	// NullFamily: the process includes the family null.
	NullFamily bool
	// Profiled: the node profiles the processes of claims.
	Profiled bool
	// Epoch is the fixed time of the clock; zero: the clock runs.
	Epoch time.Time
	Acts  []Act
	// Refuse maps a site to n: its n-th fault point fails.
	Refuse map[string]int
	// GPUsLost: calls of the driver about compute modes fail.
	GPUsLost bool
	// KillAt is the fault point at which the process kills itself, counted from its start if Early is set, else from when it serves. Late:
	// after the effect. If CountReads is set, fault points that change nothing count too; else only the first of an act does, because the
	// state at the others is the same.
	KillAt                  int
	Late, Early, CountReads bool
	// CallTimeout bounds a call; zero means DefaultCallTimeout.
	CallTimeout time.Duration
	// Concurrent, if not nil, replaces the acts.
	Concurrent *concurrentClaims
	// Journal is the file that records every change of the disk.
	Journal string
}

// attach returns the child's view of the machine.
func attach(o childSpec) (*Machine, error) {
	m := &Machine{StateDir: o.StateDir, CDIDir: o.CDIDir, gpus: o.GPUs, boots: 1, layoutChanges: o.LayoutChanges, fakeTime: o.FakeTime, nullFamily: o.NullFamily, profiled: o.Profiled, epoch: o.Epoch}
	if _, err := fmt.Sscanf(o.BootID, "boot-%d", &m.boots); err != nil {
		return nil, fmt.Errorf("reading the boot id %q: %w", o.BootID, err)
	}
	m.parts.layout = o.Layout
	m.installed(o.Root, o.Library)
	return m, nil
}

// installed makes the machine's processes use the driver's files below root, like the product, and load that library.
func (m *Machine) installed(root, file string) {
	m.host = pcie.New(root)
	m.open = func(ctx context.Context, found hostfs.DriverRoot) (inventory.Session, error) {
		return nvml.Open(ctx, found.Library, nvml.Options{Root: found.Path, HostRoot: found.HostPath})
	}
	m.hardware, m.tool = library{vendor.New(vendor.WithLibraryPath(file))}, installedTool(root)
}

// killSwitch counts the fault points of a process, makes some fail, and kills the process at one of them.
type killSwitch struct {
	spec    childSpec
	out     io.Writer
	journal *journal

	one sync.Mutex

	mu      sync.Mutex
	serving bool
	// reported: the process has written output since its last fault point, so that the state at the next one differs.
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
	at := m.faultPoints
	last, refused := counted && at == m.spec.KillAt, m.sites[site] == m.spec.Refuse[site]
	m.mu.Unlock()
	if m.spec.Concurrent == nil {
		// One fault point at a time: none may be incomplete and missing in the journal when another one is the last.
		m.one.Lock()
		defer m.one.Unlock()
	}
	if counted {
		m.journal.mark(change{Call: reached, Path: site, At: at})
	}
	if last && !m.spec.Late {
		killSelf()
	}
	err := errRefused
	if !refused {
		err = effect()
	}
	if counted {
		m.journal.mark(change{Call: passed, Path: site, At: at})
	}
	if last {
		killSelf()
	}
	return err
}

// started marks the end of the process's start.
func (m *killSwitch) started() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serving, m.reported = true, true
}

// Write writes a line of output.
func (m *killSwitch) Write(line []byte) (int, error) {
	m.mu.Lock()
	m.reported = true
	m.mu.Unlock()
	n, err := m.out.Write(line)
	m.journal.mark(change{Call: reported, Data: line})
	return n, err
}

// killSelf sends SIGKILL to the process, like kill -9 or the kernel's out-of-memory killer.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// runChild runs the acts and reports each result: "did <index>", or "failed <index> <error>". Output is not buffered, so that it survives a
// kill.
func runChild(ctx context.Context, o childSpec, out io.Writer) error {
	m, err := attach(o)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(o.Journal, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	lines := json.NewEncoder(file)
	written := &journal{machine: m, write: func(c change) {
		if err := lines.Encode(c); err != nil {
			panic(err) // the images of a power cut would be wrong
		}
	}}
	end := &killSwitch{spec: o, out: out, journal: written, reported: true, sites: map[string]int{}}
	p, err := m.Start(ctx, Wiring{
		FaultPoint: end.faultPoint, CallTimeout: o.CallTimeout, CleanupAfter: time.Minute, Effects: o.effects(), journal: written.add,
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
	return errors.Join(err, p.Close())
}

// actAll runs the acts in order; some run concurrently with the next one.
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

// report runs an act and writes its result.
func (m *Machine) report(ctx context.Context, p *Process, i int, act Act, out io.Writer) error {
	failed := m.act(ctx, p, act)
	if failed != nil {
		if err := m.checkRolledBack(act); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, resultLine(i, failed)) // one write per line, so that concurrent ones do not mix
	return err
}

// resultLine reports the result of an act: "did <index>" or "failed <index> <error>".
func resultLine(i int, err error) string {
	if err == nil {
		return fmt.Sprintf("did %d\n", i)
	}
	return fmt.Sprintf("failed %d %v\n", i, strings.ReplaceAll(err.Error(), "\n", " "))
}

// checkRolledBack checks that a failed Prepare is rolled back when it returns, or has left a pending cleanup.
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
		return p.Recover(ctx)
	case "collectGarbage":
		_, err := p.Collector().Collect(ctx, nil, true)
		return err
	case "reconcileIntervals":
		return m.reconcileIntervals(ctx, p, act.Interval, act.GPUs...)
	case "configure":
		return p.layout.configure(ctx, act.Config)
	case "allocate":
		_, err := m.allocateFor(act)
		return err
	case "delete":
		return m.updateCluster(func(c *cluster) { delete(c.Allocated, act.Claim) })
	case "scrape":
		return m.scrape()
	case "formerRecords":
		return m.formerRecords(p.disk)
	case "wait":
		return p.layout.wait(ctx, changeSeconds)
	case "begin", "record", "import", "store", "fill", "waits", "command", "answer":
		return m.actProfile(ctx, p, act)
	case "pass":
		m.Advance(act.For)
		return nil
	default:
		return m.actOther(ctx, p, act)
	}
}

// claim returns the claim of an act with its allocation.
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
	for _, i := range act.Null {
		devices = append(devices, m.device(i)+"-null")
	}
	devices = append(devices, m.clientDevices(act)...)
	if act.Monitor {
		devices = append(devices, monitor)
	}
	for _, i := range act.Counters {
		devices = append(devices, m.device(i)+"-perfmon")
	}
	rc := m.allocate(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: act.Claim, UID: types.UID(act.Claim),
	}}, devices...)
	return withCounting(withProfile(withMetrics(withStrategyMPS(withInterval(rc, act.Interval, len(act.GPUs)), act), act), act), act)
}

// device returns the device name of a whole GPU.
func (m *Machine) device(ordinal int) string { return "gpu-" + string(m.gpus[ordinal])[4:12] }

// effects returns the effects of the acts, and all effects for every second one of concurrent claims.
func (o childSpec) effects() func(*resourceapi.ResourceClaim) []string {
	if o.Concurrent != nil {
		return withEffects
	}
	return effectsOf(o.Acts)
}

// withEffects plans all effects for claims with an odd number.
func withEffects(rc *resourceapi.ResourceClaim) []string {
	if last := rc.UID[len(rc.UID)-1]; (last-'0')%2 == 1 {
		return AllEffects
	}
	return nil
}

// effectsOf plans the effects of the acts. Effects belong to the claim and are the same in all its acts.
func effectsOf(acts []Act) func(*resourceapi.ResourceClaim) []string {
	effects := map[types.UID][]string{}
	for _, act := range acts {
		if act.Call == "prepare" {
			effects[types.UID(act.Claim)] = act.Effects
		}
	}
	return func(rc *resourceapi.ResourceClaim) []string { return effects[rc.UID] }
}
