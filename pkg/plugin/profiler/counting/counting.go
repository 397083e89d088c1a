// Package counting is the extension of the kubelet plugin that orders recordings of the performance counters of GPUs from the node's
// prism-collector: it writes an order for each claim, reports the collector's progress, and keeps new claims from counters that other
// programs use.
package counting

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

var (
	_ prepare.Lister       = (*Extension)(nil)
	_ prepare.SpecFollower = (*Extension)(nil)
	_ driver.Refusing      = (*Extension)(nil)
	_ extension.Attacher   = (*Extension)(nil)
	_ extension.Connector  = (*Extension)(nil)
	_ extension.Service    = (*Extension)(nil)
	_ extension.Leader     = (*Extension)(nil)
)

// Options are the settings of an Extension.
type Options struct {
	Files disk.Files
	// Dir is the collector's directory; package counters describes it. The folder of a claim exists before Ensure is called.
	Dir string
	// Enabled: prism-collector runs on the node of that name. Otherwise no order is written, and orders are only removed.
	Enabled  bool
	NodeName string
	// StartTimeout and ReportTimeout are the timeouts of the profiler to start and to write a report.
	StartTimeout, ReportTimeout time.Duration
	// Config returns the ProfilerConfig in a record, with every default.
	Config func(r *checkpoint.Record) (*v1alpha1.ProfilerConfig, error)
	// Changed is called with a claim whose status has changed. It must not block.
	Changed func(claimUID string)
}

// Extension orders recordings of performance counters. It is safe for concurrent use.
type Extension struct {
	options Options
	logger  klog.Logger
	records func() ([]*checkpoint.Record, error)
	events  events.ClaimRecorder
	// setBusy keeps new claims from the counters of GPUs.
	setBusy    func(gpus []gpu.UUID)
	newWatcher func(changed func()) (watcher, error)
	// wake makes Run check the files of the collector.
	wake chan struct{}

	mu sync.Mutex
	// claims are the prepared claims, by UID.
	claims map[string]*prepared
	ended  ended

	reading sync.Mutex
	// busy are the GPUs that were passed to setBusy last.
	busy []gpu.UUID
}

// New returns an Extension. It reads nothing.
func New(ctx context.Context, o Options) *Extension {
	return &Extension{
		options: o, logger: klog.FromContext(ctx), setBusy: func([]gpu.UUID) {}, newWatcher: newInotify, wake: make(chan struct{}, 1),
		claims: map[string]*prepared{}, ended: ended{conditions: map[string]kube.Condition{}},
	}
}

// Kind is claim.KindCounters.
func (*Extension) Kind() string { return claim.KindCounters }

// Connect makes claims that end without counters get an Event.
func (e *Extension) Connect(_ context.Context, api extension.Connection) {
	e.records, e.events = api.Records, api.ClaimEvents
}

// Attach makes the collector decide from which counters new claims are kept.
func (e *Extension) Attach(_ context.Context, node extension.Attachment) {
	e.setBusy = func(gpus []gpu.UUID) { node.SetBusy(gpu.TypePerfmon, gpus) }
}

// Begin reads which counters other programs use, so that these are never published as free.
func (e *Extension) Begin(context.Context) {
	if e.readBusy() {
		e.awake()
	}
}

// Renewed does nothing: the collector's answer does not depend on the advertised devices.
func (*Extension) Renewed() {}

// path returns a path below the folder of a claim.
func (e *Extension) path(claimUID, name string) string {
	return filepath.Join(e.options.Dir, claimUID, name)
}
