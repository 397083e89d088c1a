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
	Looks bool
	// Slices are the MIG devices that it was given.
	Slices []Slice
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

// order tells a child process what to do, and when to die.
type order struct {
	// Root holds the driver, the device nodes and what the kernel shows, Library is the driver's library.
	Root, Library    string
	StateDir, CDIDir string
	BootID           string
	GPUs             []gpu.UUID
	Layout           gpu.Layout
	// Offers: what the node offers changes, and time is not the world's.
	Offers bool
	Acts   []Act
	// Refuse names the sites whose n-th touch is refused.
	Refuse map[string]int
	// Die is the touch at which the process kills itself, counted from its start or, when it is not Early, from when it serves.
	// Late: after the touch took effect. Touches that only look are counted when Looks is set; else only the first of an act, as the
	// others leave what the one before them has left.
	Die                int
	Late, Early, Looks bool
	// Patience bounds a call; zero means DefaultPatience.
	Patience time.Duration
	// Crowd, when it is not nil, is done instead of the acts.
	Crowd *crowd
	// Journal is the file that every change of the disk is told to.
	Journal string
}

// attach makes the child's view of the machine.
func attach(o order) (*Machine, error) {
	m := &Machine{StateDir: o.StateDir, CDIDir: o.CDIDir, gpus: o.GPUs, boots: 1, offers: o.Offers}
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

// mortal counts the touches of a process, refuses some, and kills the process at one of them.
type mortal struct {
	order order
	out   io.Writer

	one sync.Mutex

	mu      sync.Mutex
	serving bool
	// told: what the process has told since its last touch is all that a death changes, whatever the touch.
	told    bool
	touches int
	sites   map[string]int
}

var errRefused = errors.New("input/output error")

func (m *mortal) touch(site string, effect func() error) error {
	m.mu.Lock()
	counted := (m.serving || m.order.Early) && (m.told || m.order.Looks || !looking(site))
	if counted {
		m.touches, m.told = m.touches+1, false
	}
	m.sites[site]++
	last, refused := counted && m.touches == m.order.Die, m.sites[site] == m.order.Refuse[site]
	m.mu.Unlock()
	if m.order.Crowd == nil {
		// One touch at a time, so that none is half done, and in no journal, when another one is the last.
		m.one.Lock()
		defer m.one.Unlock()
	}
	if last && !m.order.Late {
		die()
	}
	err := errRefused
	if !refused {
		err = effect()
	}
	if last {
		die()
	}
	return err
}

// serves tells that the start is over.
func (m *mortal) serves() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serving, m.told = true, true
}

// Write tells what the process has to tell.
func (m *mortal) Write(line []byte) (int, error) {
	m.mu.Lock()
	m.told = true
	m.mu.Unlock()
	return m.out.Write(line)
}

// die is what an operator's kill -9, or the kernel's out-of-memory killer, does to a process.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// live does the acts and tells each that ended: "did <index>", or "failed <index> <why>". Nothing is buffered: what was told
// before a kill was told.
func live(ctx context.Context, o order, out io.Writer) error {
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
	end := &mortal{order: o, out: out, told: true, sites: map[string]int{}}
	p, err := m.Start(ctx, Wiring{
		Touch: end.touch, Patience: o.Patience, DebtAfter: time.Minute, Effects: o.effects(), journal: func(c change) {
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
	end.serves()
	if o.Crowd != nil {
		return o.Crowd.run(ctx, m, p)
	}
	if err := m.actAll(ctx, p, o.Acts, end); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "touches %d\n", end.touches)
	return err
}

// actAll does the acts in order; some are done beside the next one.
func (m *Machine) actAll(ctx context.Context, p *Process, acts []Act, out io.Writer) error {
	errs := make([]error, len(acts))
	var beside sync.WaitGroup
	for i, act := range acts {
		one := func() { errs[i] = m.told(ctx, p, i, act, out) }
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
func (m *Machine) told(ctx context.Context, p *Process, i int, act Act, out io.Writer) error {
	result := fmt.Sprintf("did %d\n", i)
	if err := m.act(ctx, p, act); err != nil {
		result = fmt.Sprintf("failed %d %v\n", i, strings.ReplaceAll(err.Error(), "\n", " "))
		if err := m.undone(act); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, result) // one write for one line, so that those beside each other do not mix
	return err
}

// undone: what a failed Prepare had begun is taken back when it returns, or it is a debt.
func (m *Machine) undone(act Act) error {
	records, err := m.Records()
	if err != nil {
		return err
	}
	r := records[act.Claim]
	if act.Call == "prepare" && act.Fails && r != nil && r.State == checkpoint.Intent {
		return fmt.Errorf("preparing %s failed and left what it had begun", act.Claim)
	}
	return nil
}

func (m *Machine) act(ctx context.Context, p *Process, act Act) error {
	switch act.Call {
	case "prepare":
		rc, err := m.given(act)
		if err == nil {
			_, err = p.Prepare(ctx, rc)
		}
		return err
	case "unprepare":
		return m.let(ctx, p, act.Claim)
	case "settle":
		return p.Recover(ctx)
	case "sweep":
		_, err := p.Collector().Collect(ctx, nil, true)
		return err
	case "keep":
		return m.keep(ctx, p, act.Interval, act.GPUs...)
	case "configure":
		return p.offer.configure(ctx, act.Config)
	case "allocate":
		_, err := m.given(act)
		return err
	case "delete":
		return m.tell(func(c *cluster) { delete(c.Allocated, act.Claim) })
	case "pass":
		return p.offer.pass(ctx, aWhile)
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
	for _, s := range act.Slices {
		devices = append(devices, m.slice(s))
	}
	for _, i := range act.Shares {
		devices = append(devices, m.device(i)+"-timeslice")
	}
	if act.Looks {
		devices = append(devices, monitor)
	}
	rc := m.allocate(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: act.Claim, UID: types.UID(act.Claim),
	}}, devices...)
	return inTurns(rc, act.Interval, len(act.GPUs))
}

// device is the name of a GPU's whole device.
func (m *Machine) device(ordinal int) string { return "gpu-" + string(m.gpus[ordinal])[4:12] }

// effects plans what the acts say, and all effects for every second claim of a crowd.
func (o order) effects() func(*resourceapi.ResourceClaim) []string {
	if o.Crowd != nil {
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
