package prepare

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
)

const (
	driverName        = "gpu.prism.dev"
	nodeName          = "n0"
	retryBudget       = 40 * time.Second
	deferCleanupAfter = 2 * time.Minute
)

// world is all that outlives a process: records, specs, hardware, locks. Each access to it is an operation, which can be
// refused and at which the process can be made to die.
type world struct {
	mu       sync.Mutex
	node     *gpu.Node
	families []claim.DevicePlanner
	layout   gpu.Layout
	boot     string
	records  map[string][]byte // by claim UID, as on disk
	aside    []string          // claims whose damaged record was set aside
	hidden   string            // the claim whose record the disk does not give now
	specs    map[string]string // by claim UID
	halves   map[string]bool   // files that are half written: "record <uid>", "spec <uid>"
	major    int64             // of the device nodes; changes when a driver is loaded
	missing  map[gpu.UUID]error
	noSpecs  error // why no spec can be built at all
	effects  map[gpu.UUID]map[string]string
	locks    map[string]chan struct{}
	holder   map[gpu.UUID]int // how often a GPU's lock was taken

	journal []string
	ops     int
	dieAt   int  // the operation at which the process dies; 0: never
	dieLate bool // after the operation took effect, not before
	refuse  func(op string) error
	spoil   func(op string) error // refuses after the operation took effect
	during  func(op string)       // runs before an operation, outside the lock
	steps   []string              // kinds of effects that plans for owned GPUs have
	finds   bool                  // effects can be listed
	extend  func(*claim.Plan)     // adds data of extensions to a plan
}

// died is the value with which a process panics that is made to die.
type died struct{ op string }

func newWorld(gpus int) *world {
	w := &world{
		boot: "boot-1", records: map[string][]byte{}, specs: map[string]string{}, halves: map[string]bool{}, major: 195, missing: map[gpu.UUID]error{},
		effects: map[gpu.UUID]map[string]string{}, locks: map[string]chan struct{}{}, holder: map[gpu.UUID]int{},
	}
	node := &gpu.Node{Driver: gpu.Driver{Version: "580.95.05"}}
	for i := range gpus {
		node.GPUs = append(node.GPUs, gpu.GPU{UUID: uuid(i), Index: i, Minor: i, PCI: gpu.PCI{BusID: fmt.Sprintf("0000:%02x:00.0", i)}})
	}
	gpu.AssignIDs(node.GPUs)
	w.node = node
	return w
}

func uuid(i int) gpu.UUID { return gpu.UUID(fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", i)) }

func device(i int) string { return fmt.Sprintf("gpu-%08d", i) }

// op is one touch of the world.
func (w *world) op(name string, effect func() error) error {
	if w.during != nil {
		w.during(name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops++
	if w.ops == w.dieAt && !w.dieLate {
		panic(died{name})
	}
	if w.refuse != nil {
		if err := w.refuse(name); err != nil {
			return err
		}
	}
	w.journal = append(w.journal, name)
	err := effect()
	if w.ops == w.dieAt {
		panic(died{name})
	}
	if err == nil && w.spoil != nil {
		return w.spoil(name)
	}
	return err
}

// events returns the events since the last call, without those that only read.
func (w *world) events() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := slices.DeleteFunc(w.journal, func(op string) bool {
		return slices.ContainsFunc([]string{"load", "all", "build", "list", "find"}, func(reading string) bool { return strings.HasPrefix(op, reading) })
	})
	w.journal = nil
	return events
}

// record returns a claim's record as a new process would read it, nil when there is none.
func (w *world) record(t *testing.T, uid string) *checkpoint.Record {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	data, ok := w.records[uid]
	if !ok {
		return nil
	}
	r, err := checkpoint.Decode(data)
	require.NoError(t, err)
	return r
}

// reboot drops all state that does not survive a boot.
func (w *world) reboot(boot string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boot, w.specs, w.effects = boot, map[string]string{}, map[gpu.UUID]map[string]string{}
	w.locks, w.holder = map[string]chan struct{}{}, map[gpu.UUID]int{}
}

// owned requires a record of every spec and every effect: an effect without a record is never undone.
func (w *world) owned(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range w.specs {
		require.Contains(t, w.records, uid, "a spec")
	}
	for id, effects := range w.effects {
		for kind, args := range effects {
			var made struct{ For string }
			require.NoError(t, json.Unmarshal([]byte(args), &made))
			require.Contains(t, w.records, made.For, "effect %s on %s", kind, id)
		}
	}
}

// clean requires that nothing of any claim is left.
func (w *world) clean(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.records, "records")
	require.Empty(t, w.specs, "specs")
	for id, effects := range w.effects {
		require.Empty(t, effects, "effects on %s", id)
	}
}

type claimObject = resourceapi.ResourceClaim

// process is one plugin process in a world.
type process struct {
	*Transaction
	t           *testing.T
	world       *world
	seen        map[gpu.UUID]int
	damaged     []error
	retrying    []string
	taking      func(lock string) // runs before the process asks for a lock
	pending     func([]gpu.PendingCleanup)
	pendingGPUs [][]gpu.UUID // each time it changed

	// Steps, Preconditions and static may be changed while the process runs.
	Steps         Steps
	Preconditions map[string]Precondition
	static        *replaceableStatic
	specs         Specs
	// Extensions are those besides the MPS one.
	Extensions Extensions
}

// start starts a plugin.
func (w *world) start(t *testing.T) *process {
	t.Helper()
	p := w.process(t)
	p.run(p.options())
	return p
}

// process is a process before its start.
func (w *world) process(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, world: w, seen: map[gpu.UUID]int{}, Preconditions: map[string]Precondition{}, static: &replaceableStatic{}, specs: specFiles{w}}
	p.Steps = p.steps()
	return p
}

// run starts the process with these options.
func (p *process) run(options Options) {
	p.t.Helper()
	tx, damaged, err := New(p.ports(), options)
	require.NoError(p.t, err)
	p.Transaction, p.damaged = tx, damaged
}

// replaceableStatic is a port that a test sets.
type replaceableStatic struct{ Static }

// collect collects leaked effects.
func (p *process) collect(ctx context.Context, inUse []string, complete bool) ([]gc.Leak, error) {
	return p.Collector().Collect(ctx, inUse, complete)
}

// mustCollect collects without an error.
func (p *process) mustCollect(inUse []string, complete bool, why ...any) []gc.Leak {
	p.t.Helper()
	leaks, err := p.collect(p.t.Context(), inUse, complete)
	require.NoError(p.t, err, why...)
	return leaks
}

// Prepare requires, in every test, that a refusal names no other claim.
func (p *process) Prepare(ctx context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	r, err := p.Transaction.Prepare(ctx, rc)
	if err != nil {
		p.namesNoOther(rc, err)
	}
	return r, err
}

// mustPrepare prepares a claim without an error.
func (p *process) mustPrepare(rc *resourceapi.ResourceClaim, why ...any) *checkpoint.Record {
	p.t.Helper()
	r, err := p.Prepare(p.t.Context(), rc)
	require.NoError(p.t, err, why...)
	return r
}

// otherClaim finds the name of a claim in a text: "claim-a", "claim a", "UID a".
var otherClaim = regexp.MustCompile(`(?:claim[ -]|UID )(\w+)`)

func (p *process) namesNoOther(rc *resourceapi.ResourceClaim, err error) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	for _, named := range otherClaim.FindAllStringSubmatch(err.Error(), -1) {
		_, known := p.world.records[named[1]]
		require.False(p.t, known && named[1] != string(rc.UID), "claim %s is refused with the name of claim %s: %v", rc.UID, named[1], err)
	}
}

// heldBy requires that a claim was refused for that other one, which only the log names.
func heldBy(t *testing.T, err error, uid string) {
	t.Helper()
	require.ErrorContains(t, err, "is still held by another claim")
	require.Equal(t, []any{"heldBy", "default/claim-" + uid, "heldByUID", uid}, LogValues(err))
}

func (p *process) steps() Steps {
	steps := Steps{}
	for _, kind := range []string{"mode", "partition"} {
		steps[kind] = effect{p.world}
		if p.world.finds {
			steps[kind] = findable{effect{p.world}, kind}
		}
	}
	return steps
}

func (p *process) ports() Ports {
	return Ports{
		Records: records{p.world}, Specs: p.specs, Locks: p, Planner: planner{p.world, p.world.source()}, Steps: p.Steps,
		Preconditions: p.Preconditions, Static: p.static, Extensions: append(Extensions{Inactive(claim.KindMPS)}, p.Extensions...),
	}
}

func (p *process) options() Options {
	return Options{
		CDIKind: cdi.Kind(driverName), BootID: p.world.boot, Writer: "test", RetryBudget: retryBudget, DeferCleanupAfter: deferCleanupAfter, Now: time.Now,
		PendingCleanups: func(pending []gpu.PendingCleanup) {
			p.pendingGPUs = append(p.pendingGPUs, gpusOf(pending))
			if p.pending != nil {
				p.pending(pending)
			}
		},
		Damaged: func(err error) { p.damaged = append(p.damaged, err) },
		Retrying: func(rc *resourceapi.ResourceClaim, cause error) {
			p.namesNoOther(rc, cause)
			p.retrying = append(p.retrying, cause.Error())
		},
	}
}

// survive runs the work of the only process of a world and reports whether it survived. The kernel drops the locks of a dead process.
func (w *world) survive(t *testing.T, do func()) (alive bool) {
	t.Helper()
	defer func() {
		reason := recover()
		if reason == nil {
			return
		}
		_, expected := reason.(died)
		require.True(t, expected, "%v", reason)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dieAt, w.locks = 0, map[string]chan struct{}{}
	}()
	do()
	return true
}

// monitor is the node's monitor device, given with admin access.
const monitor = "monitor!"

// wants is a claim to which these devices of the node are allocated.
func wants(uid string, devices ...string) *resourceapi.ResourceClaim {
	rc := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim-" + uid, UID: types.UID(uid)},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
	}
	for i, name := range devices {
		plain, admin := strings.CutSuffix(name, "!")
		rc.Status.Allocation.Devices.Results = append(rc.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: fmt.Sprintf("r%d", i), Driver: driverName, Pool: nodeName, Device: plain, AdminAccess: &admin,
		})
		if name == monitor {
			rc.Status.Allocation.Devices.Results[i].Pool = gpu.Monitor{}.Pool(nodeName)
		}
	}
	return rc
}

// always refuses the operations whose name starts so.
func always(prefix string, err error) func(string) error {
	return func(op string) error {
		if strings.HasPrefix(op, prefix) {
			return err
		}
		return nil
	}
}

// times refuses the first n of the operations whose name starts so.
func times(n int, prefix string, err error) func(string) error {
	return func(op string) error {
		if n == 0 || !strings.HasPrefix(op, prefix) {
			return nil
		}
		n--
		return err
	}
}

// either is the first refusal of several.
func either(refusals ...func(string) error) func(string) error {
	return func(op string) error {
		return cmp.Or(slices.Collect(func(yield func(error) bool) {
			for _, refuse := range refusals {
				if !yield(refuse(op)) {
					return
				}
			}
		})...)
	}
}

var errDisk = errors.New("input/output error")

// gpusOf are the GPUs that pending cleanups are on.
func gpusOf(pending []gpu.PendingCleanup) []gpu.UUID {
	var uuids []gpu.UUID
	for _, d := range pending {
		uuids = append(uuids, d.GPU)
	}
	return uuids
}
