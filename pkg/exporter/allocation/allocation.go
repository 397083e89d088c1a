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
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/podresources"
)

// Options are the inputs of a Tracker. All paths are paths of this process.
type Options struct {
	// Records is the plugin's directory; its subdirectory "claims" contains the records.
	Records string
	// BootID identifies the current boot, in the plugin's format. Records of another boot are ignored.
	BootID string
	// DriverName is the name of the DRA driver, CDIKind the kind of its CDI specs for claims.
	DriverName, CDIKind string
	// KubeletSocket is the kubelet's pod resources socket.
	KubeletSocket string
	// CRISocket is the path of the container runtime's socket on the host. Empty: the first default path that exists.
	CRISocket string
	// HostRoot is the root of the host's file tree, "/" if empty.
	HostRoot string
	// DaemonsDir is the directory of the control daemons whose servers work for containers. Empty: the node runs none.
	DaemonsDir string
	// PodLabels are the keys of the pod labels in Allocations, each once.
	PodLabels []string
	// ProcRoot is a /proc of the host's pid namespace, "/proc" if empty.
	ProcRoot string
}

// Want is a claim's request for samples of a device, or of a MIG device if MIG is not empty. Sets and Interval are empty if a claim
// requests nothing beyond the node's samples.
type Want struct {
	MIG      gpu.UUID
	Sets     []string
	Interval time.Duration
	// Claim is the UID.
	Claim string
}

// Tracker finds the devices of containers. It is safe for concurrent use.
type Tracker struct {
	paths    paths
	schedule schedule
	sources  *sources
	bootID   string
	pods     podresources.Client
	cri      *containers
	labels   *podLabels
	proc     *processes
	servers  servers
	released *gpuRelease

	// known is replaced, never modified.
	known atomic.Pointer[view]
	// releasing are called outside of mu.
	releasing []func(mig gpu.UUID, claimUID string, destroyed bool)

	mu      sync.Mutex
	records records
	uses    uses
	// since is the time when each claim was first known to be prepared.
	since map[string]time.Time
}

// paths are the paths that Run reads.
type paths struct{ records, kubeletSocket string }

// schedule contains the intervals of reads.
type schedule struct {
	// records is the time between reads of all records, pods the time between lists of the kubelet. listAfter is the time from a change of a
	// record until the kubelet lists the containers of its claim.
	records, pods, listAfter time.Duration
	// rewatch is the wait before the directory of records is watched again after a failure.
	rewatch time.Duration
	// restarted is the time after its start that a kubelet may need until it lists all pods.
	restarted time.Duration
	// cri is the minimum time between lists of the runtime, criAway the maximum time while it does not answer.
	cri, criAway time.Duration
	// criQuiet limits the time without data from the runtime, criLongest a whole list. Rounds of samples wait for it.
	criQuiet, criLongest time.Duration
	// absent is the wait before the runtime is queried again for a container that it did not list.
	absent time.Duration
}

var usual = schedule{
	records: time.Minute, pods: 10 * time.Second, listAfter: time.Second, rewatch: 2 * time.Second, restarted: time.Minute,
	cri: time.Second, criAway: time.Minute, criQuiet: time.Second, criLongest: 10 * time.Second, absent: time.Minute,
}

// New returns a tracker that is empty until Run has read its sources.
func New(o Options) *Tracker { return newTracker(o, usual) }

func newTracker(o Options, s schedule) *Tracker {
	if o.HostRoot == "" {
		o.HostRoot = "/"
	}
	if o.ProcRoot == "" {
		o.ProcRoot = "/proc"
	}
	report, proc := &sources{podLabels: len(o.PodLabels) > 0}, &processes{root: o.ProcRoot, host: filepath.Join(o.HostRoot, "proc"), seen: map[uint32]seenProcess{}}
	runtime := runtimeSocket{set: o.CRISocket, hostRoot: o.HostRoot, quiet: s.criQuiet, longest: s.criLongest}
	t := &Tracker{
		paths:    paths{records: checkpoint.RecordsDir(o.Records), kubeletSocket: o.KubeletSocket},
		schedule: s, sources: report, bootID: o.BootID,
		pods:   podresources.Client{Socket: o.KubeletSocket, CDIKind: o.CDIKind, DriverName: o.DriverName},
		cri:    newContainers(runtime, s, report),
		labels: &podLabels{keys: o.PodLabels, socket: runtime, sources: report, due: backoff.Backoff{First: s.cri, Max: s.criAway}},
		proc:   proc, released: newGPURelease(o.Records), servers: servers{dir: o.DaemonsDir, proc: proc},
		records: newRecords(), since: map[string]time.Time{},
	}
	t.known.Store(&view{allocations: &metrics.Allocations{}})
	return t
}

// Run reads the sources until the context ends.
func (t *Tracker) Run(ctx context.Context) error {
	t.HidesProcesses()
	changed := make(chan struct{}, 1)
	t.readPlugin(changed)
	var running sync.WaitGroup
	running.Go(func() { t.followRecords(ctx, changed) })
	running.Go(func() { t.followPods(ctx, changed) })
	running.Go(func() { t.followRuntime(ctx) })
	running.Wait()
	return nil
}

// Allocations returns the current allocations.
func (t *Tracker) Allocations() *metrics.Allocations { return t.known.Load().allocations }

// Wanted lists the requests of prepared claims for a GPU and its MIG devices, sorted by claim. Claims that are being unprepared request
// nothing.
func (t *Tracker) Wanted(id gpu.UUID) []Want { return t.known.Load().wants[id] }

// OnReleasing registers a function that is called when the plugin begins to unprepare a claim with a MIG device. A pre-created MIG device
// is not destroyed. It must be called before Run.
func (t *Tracker) OnReleasing(f func(mig gpu.UUID, claimUID string, destroyed bool)) {
	t.releasing = append(t.releasing, f)
}

// Sources reports each source, in the order of the constants.
func (t *Tracker) Sources() []Source { return t.sources.list() }

// renew creates a new view after a change, and publishes it if it differs.
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
