package allocation

import (
	"context"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
	"github.com/prism-gpu/prism/pkg/podresources"
)

// Options say where a Tracker reads. All paths are this process's.
type Options struct {
	// Records is the plugin's directory, which has its records below "claims".
	Records string
	// BootID is the present boot, as the plugin has it: records of another boot allocate nothing.
	BootID string
	// DriverName is the DRA driver's name, CDIKind the kind of its CDI specs of claims.
	DriverName, CDIKind string
	// KubeletSocket is the kubelet's pod resources socket.
	KubeletSocket string
	// CRISocket is the path of the container runtime's socket on the host. Empty: the first of the usual ones that is there.
	CRISocket string
	// HostRoot is the root of the host's file tree, "/" if empty.
	HostRoot string
	// MPSDir is the directory of the MPS service's control daemons. Empty: the node has none.
	MPSDir string
	// PodLabels are the keys of the labels of pods that Allocations have, each once.
	PodLabels []string
	// ProcRoot is a /proc of the host's pid namespace, "/proc" if empty.
	ProcRoot string
}

// Want is what a claim wants to have sampled of a device, or of a MIG device where MIG is not empty. A claim that asks for nothing beyond what
// is sampled of every device has neither Sets nor Interval.
type Want struct {
	MIG      gpu.UUID
	Sets     []string
	Interval time.Duration
	// Claim is the UID.
	Claim string
}

// Tracker knows which container has which device. It is safe for concurrent use.
type Tracker struct {
	paths    paths
	schedule schedule
	sources  *sources
	bootID   string
	pods     podresources.Client
	cri      *containers
	labels   *podLabels
	proc     *processes
	mps      mpsServers

	// known is replaced, never changed.
	known atomic.Pointer[view]
	// releasing are called outside of mu.
	releasing []func(mig gpu.UUID, claimUID string, destroyed bool)

	mu      sync.Mutex
	records records
	uses    uses
	// since is when each claim was first known to be prepared.
	since map[string]time.Time
}

// paths are where Run reads.
type paths struct{ records, kubeletSocket string }

// schedule says how often what is read.
type schedule struct {
	// records is the time between reads of all records, pods between lists of the kubelet; listAfter is the time from a change of a record until
	// the kubelet lists the containers of its claim.
	records, pods, listAfter time.Duration
	// rewatch is the time until the directory of records is watched again after that failed.
	rewatch time.Duration
	// restarted is how long a kubelet may take after its start until it lists all pods.
	restarted time.Duration
	// cri is the least time between lists of the runtime, criAway the longest while it does not answer.
	cri, criAway time.Duration
	// absent is the time until the runtime is asked again for a container that it did not list.
	absent time.Duration
}

var usual = schedule{
	records: time.Minute, pods: 10 * time.Second, listAfter: time.Second, rewatch: 2 * time.Second, restarted: time.Minute,
	cri: time.Second, criAway: time.Minute, absent: time.Minute,
}

// New returns a tracker that knows nothing until Run has read its sources.
func New(o Options) *Tracker { return newTracker(o, usual) }

func newTracker(o Options, s schedule) *Tracker {
	if o.HostRoot == "" {
		o.HostRoot = "/"
	}
	if o.ProcRoot == "" {
		o.ProcRoot = "/proc"
	}
	report, proc := &sources{podLabels: len(o.PodLabels) > 0}, &processes{root: o.ProcRoot, host: filepath.Join(o.HostRoot, "proc"), seen: map[uint32]seenProcess{}}
	runtime := runtimeSocket{set: o.CRISocket, hostRoot: o.HostRoot}
	t := &Tracker{
		paths:    paths{records: checkpoint.RecordsDir(o.Records), kubeletSocket: o.KubeletSocket},
		schedule: s, sources: report, bootID: o.BootID,
		pods:   podresources.Client{Socket: o.KubeletSocket, CDIKind: o.CDIKind, DriverName: o.DriverName},
		cri:    newContainers(runtime, s, report),
		labels: &podLabels{keys: o.PodLabels, socket: runtime, sources: report, due: backoff.Backoff{First: s.cri, Max: s.criAway}},
		proc:   proc, mps: mpsServers{dir: o.MPSDir, proc: proc},
		records: newRecords(), since: map[string]time.Time{},
	}
	t.known.Store(&view{allocations: &metrics.Allocations{}})
	return t
}

// Run reads the sources until the context ends.
func (t *Tracker) Run(ctx context.Context) error {
	t.HidesProcesses()
	changed := make(chan struct{}, 1)
	t.readRecords(changed)
	var running sync.WaitGroup
	running.Go(func() { t.followRecords(ctx, changed) })
	running.Go(func() { t.followPods(ctx, changed) })
	running.Go(func() { t.followRuntime(ctx) })
	running.Wait()
	return nil
}

// Allocations returns what is known now.
func (t *Tracker) Allocations() *metrics.Allocations { return t.known.Load().allocations }

// Wanted lists what prepared claims want of a GPU and of its MIG devices, sorted by claim. Claims that are being unprepared want nothing.
func (t *Tracker) Wanted(id gpu.UUID) []Want { return t.known.Load().wants[id] }

// OnReleasing has f called whenever a claim is unprepared that has a MIG device, as soon as that begins. A pre-created MIG device is not
// destroyed. It is for use before Run.
func (t *Tracker) OnReleasing(f func(mig gpu.UUID, claimUID string, destroyed bool)) {
	t.releasing = append(t.releasing, f)
}

// Sources reports each source, in the order of the constants.
func (t *Tracker) Sources() []Source { return t.sources.list() }

// renew makes another view after a change of what is known, and publishes it where it differs.
func (t *Tracker) renew() {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.known.Load()
	now := newView(t.records.found, t.uses.listed, t.cri.known(), t.labels.known())
	for i := range now.allocations.List {
		now.allocations.List[i].Since = t.since[now.allocations.List[i].ClaimUID]
	}
	if now.allocations.Generation = before.allocations.Generation; reflect.DeepEqual(before, now) {
		return
	}
	now.allocations.Generation++
	t.known.Store(now)
}
