package mpsd

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// Options are what a Service needs.
type Options struct {
	// Dir has the directories of control daemons: "/run/<driver name>/mps". It is the same path on the host.
	Dir string
	// Host has the driver; DriverRoot is its root directory on the host, empty to detect it.
	Host       *hostfs.FS
	DriverRoot string
	// Hardening is what a daemon that is started loses of this container's rights; empty: HardeningMounts.
	Hardening Hardening
	// System is the machine.
	System System
	// Program runs Launch when its first argument is LaunchCommand.
	Program string
	// Version is that of the program.
	Version string
	// Times bound what is awaited; the zero value means Times of a real driver.
	Times Times
}

// Times are how long the service waits.
type Times struct {
	// Start is for a daemon to listen and for its server to be active, which initialises the GPU.
	Start time.Duration
	// Ask is for the answer to one command.
	Ask time.Duration
	// Quit is for a daemon to exit by itself, Kill for killed processes.
	Quit, Kill time.Duration
	// Poll is between the first two checks of something that reports nothing by itself.
	Poll time.Duration
	// Logs is between two checks of the sizes of logs. It is short because clients can make servers log as fast as these write.
	Logs time.Duration
}

// defaultTimes are those of a real driver. A client of the service waits for one request as long as its context says.
var defaultTimes = Times{
	Start: 20 * time.Second, Ask: 5 * time.Second, Quit: 5 * time.Second, Kill: 5 * time.Second, Poll: time.Millisecond, Logs: time.Second,
}

// Service owns the control daemons of a node. It is safe for concurrent use.
type Service struct {
	Options

	mu      sync.Mutex
	daemons map[gpu.MPSDaemonID]*daemon
	// revision is greater after every change; changed is closed then, and replaced.
	revision int64
	changed  chan struct{}
	// stopped is closed when nothing is noticed any more.
	stopped <-chan struct{}
}

// New adopts the control daemons that an earlier service has started. It ends what is left of those whose start was interrupted. Exits are
// noticed until the context is done.
func New(ctx context.Context, options Options) (*Service, error) {
	if options.Times == (Times{}) {
		options.Times = defaultTimes
	}
	if options.Hardening == "" {
		options.Hardening = HardeningMounts
	}
	// The revisions of an earlier service are smaller.
	s := &Service{
		Options: options, daemons: map[gpu.MPSDaemonID]*daemon{}, revision: time.Now().UnixNano(), changed: make(chan struct{}), stopped: ctx.Done(),
	}
	if err := s.System.MakeDir(s.Dir, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if id := gpu.MPSDaemonID(entry.Name()); entry.IsDir() && validID(id) {
			s.daemons[id] = s.newDaemon(ctx, id)
		}
	}
	// At once: processes that do not exit are awaited.
	var adopted sync.WaitGroup
	for _, d := range maps.Clone(s.daemons) {
		adopted.Go(func() { d.adopt(ctx) })
	}
	adopted.Wait()
	return s, nil
}

func (s *Service) newDaemon(ctx context.Context, id gpu.MPSDaemonID) *daemon {
	logger := klog.FromContext(ctx).WithValues("daemon", id)
	return &daemon{service: s, id: id, dir: directory(filepath.Join(s.Dir, string(id))), busy: make(chan struct{}, 1), logger: logger}
}

// List returns the control daemons by id, and the revision. With after equal to the revision it waits for a change, until the context
// is done.
func (s *Service) List(ctx context.Context, after int64) (daemons []gpu.MPSDaemon, revision int64) {
	s.mu.Lock()
	// A revision that is greater is that of an earlier service, before the clock was set back.
	for s.revision == after && ctx.Err() == nil {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	daemons = []gpu.MPSDaemon{}
	var started []identity
	for _, d := range s.daemons {
		if d.published {
			daemons, started = append(daemons, d.view), append(started, d.driver)
		}
	}
	revision = s.revision
	s.mu.Unlock()
	if installed, err := s.driver(); err == nil {
		for i := range daemons {
			daemons[i].Outdated = daemons[i].State == gpu.MPSRunning && started[i] != installed.identity()
		}
	}
	slices.SortFunc(daemons, func(a, b gpu.MPSDaemon) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return daemons, revision
}

// publish shows a daemon as it is; shown is false when it is removed.
func (s *Service) publish(d *daemon, shown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	view := d.describe()
	if shown == d.published && reflect.DeepEqual(view, d.view) {
		return
	}
	d.view, d.driver, d.published = view, d.state.Driver, shown
	if !shown {
		delete(s.daemons, d.id)
	}
	s.revision++
	close(s.changed)
	s.changed = make(chan struct{})
}

// take returns the daemon for one request at a time; nil if there is none and it is not to be made. The caller releases it.
func (s *Service) take(ctx context.Context, id gpu.MPSDaemonID, create bool) (*daemon, error) {
	for {
		s.mu.Lock()
		d := s.daemons[id]
		if d == nil && create {
			d = s.newDaemon(ctx, id)
			s.daemons[id] = d
		}
		s.mu.Unlock()
		if d == nil {
			return nil, nil
		}
		if err := d.lock(ctx); err != nil {
			return nil, err
		}
		s.mu.Lock()
		present := s.daemons[id] == d
		s.mu.Unlock()
		if present {
			return d, nil
		}
		d.release() // it was removed meanwhile
	}
}

// Ensure returns when the control daemon runs, with its server where wanted. One that runs keeps its spec.
func (s *Service) Ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec, server bool) (gpu.MPSDaemon, error) {
	d, err := s.take(ctx, id, true)
	if err != nil {
		return gpu.MPSDaemon{}, err
	}
	defer d.release()
	err = d.ensure(ctx, spec, wanted{server: server})
	return d.describe(), err
}

// StartNew starts the control daemon, without a server, of a device that no claim uses. A daemon with other settings, or one that has accepted
// clients, is replaced, and so is its directory. *gpu.MPSClientsError: clients are connected to it.
func (s *Service) StartNew(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	d, err := s.take(ctx, id, true)
	if err != nil {
		return gpu.MPSDaemon{}, err
	}
	defer d.release()
	err = d.ensure(ctx, spec, wanted{unused: true})
	return d.describe(), err
}

// Stop stops the control daemon and removes its directory.
func (s *Service) Stop(ctx context.Context, id gpu.MPSDaemonID) error {
	d, err := s.take(ctx, id, false)
	if err != nil || d == nil {
		return err
	}
	defer d.release()
	return d.stop(ctx)
}

// Limits reads the limits in force.
func (s *Service) Limits(ctx context.Context, id gpu.MPSDaemonID) (gpu.MPSLimitsInForce, error) {
	d, err := s.take(ctx, id, false)
	if err != nil {
		return gpu.MPSLimitsInForce{}, err
	}
	if d == nil {
		return gpu.MPSLimitsInForce{}, notRunning(id)
	}
	defer d.release()
	return d.limits(ctx)
}

// RestoreLimits sets the limits of the control daemon and its servers to those of the spec.
func (s *Service) RestoreLimits(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	d, err := s.take(ctx, id, false)
	if err != nil {
		return gpu.MPSDaemon{}, err
	}
	if d == nil {
		return gpu.MPSDaemon{}, notRunning(id)
	}
	defer d.release()
	err = d.restoreLimits(ctx, spec)
	return d.describe(), err
}

// cutLogs cuts the logs of all daemons, until the context is done.
func (s *Service) cutLogs(ctx context.Context) {
	ticker := time.NewTicker(s.Times.Logs)
	defer ticker.Stop()
	for {
		s.mu.Lock()
		var dirs []directory
		for _, d := range s.daemons {
			dirs = append(dirs, d.dir)
		}
		s.mu.Unlock()
		for _, dir := range dirs {
			if err := cutLogs(dir.log()); err != nil {
				klog.FromContext(ctx).Error(err, "Logs of a control daemon grow beyond their limit", "path", dir.log())
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
