package allocation

import (
	"context"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
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
	// CRISocket is the container runtime's socket. Empty: the first of the usual ones below HostRoot.
	CRISocket string
	// HostRoot is the root of the host's file tree, "/" if empty.
	HostRoot string
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

// Source is where a Tracker reads from.
type Source struct {
	Name SourceName
	// OK says that the last attempt succeeded in whole.
	OK bool
	// Read is when it last succeeded, at least in part; zero: never.
	Read time.Time
	// Error is why the last attempt did not, empty if it did.
	Error string
}

// SourceName names a source in metrics and in /readyz.
type SourceName string

// The sources.
const (
	// SourceRecords: the plugin's records.
	SourceRecords SourceName = "records"
	// SourcePodResources: the kubelet's pod resources API.
	SourcePodResources SourceName = "pod_resources"
	// SourceCRI: the container runtime's list of containers.
	SourceCRI SourceName = "cri"
	// SourceProc: the host's /proc.
	SourceProc SourceName = "proc"
)

// Tracker knows which container has which device. It is safe for concurrent use.
type Tracker struct {
	options Options
}

// New returns a tracker that knows nothing until Run has read its sources.
func New(o Options) *Tracker { return &Tracker{options: o} }

// Run reads the sources until the context ends.
func (t *Tracker) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Allocations returns what is known now.
func (t *Tracker) Allocations() *metrics.Allocations { return &metrics.Allocations{} }

// Identify says what the processes are that have these pids now, in the pid namespace of Options.ProcRoot. A process that has exited is left
// out.
func (t *Tracker) Identify(pids []uint32) map[uint32]metrics.ProcessIdentity { return nil }

// Wanted lists what prepared claims want of a GPU and of its MIG devices, sorted by claim. Claims that are being unprepared want nothing.
func (t *Tracker) Wanted(id gpu.UUID) []Want { return nil }

// OnReleasing has f called, before Run, whenever a claim begins to be unprepared whose MIG device goes away with it.
func (t *Tracker) OnReleasing(f func(mig gpu.UUID)) {}

// Sources reports each source, in the order of the constants.
func (t *Tracker) Sources() []Source { return nil }

// Exposed writes "<root>/<claim UID>/gpu.prom" for each claim that exposes its metrics in its containers and has a directory there. render
// returns what to write for a claim; nil leaves the file as it is.
func (t *Tracker) Exposed(root string, render func(uid string) []byte) error { return nil }
