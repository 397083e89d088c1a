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
	"github.com/prism-gpu/prism/pkg/mpsd/state"
)

// Options configure a Service.
type Options struct {
	// Dir contains the directories of control daemons: "/run/<driver name>/mps". The path is the same on the host.
	Dir string
	// Host is the host with the driver; DriverRoot is the driver's root directory on the host, empty to detect it.
	Host       *hostfs.FS
	DriverRoot string
	// Hardening says which rights of this container new daemons lose; empty: HardeningMounts.
	Hardening Hardening
	// System is the machine.
	System System
	// Program runs Launch when its first argument is LaunchCommand.
	Program string
	// Version is the version of the program.
	Version string
	// Times limit the waits; the zero value means defaultTimes.
	Times Times
}

// Times are the time limits of the service.
type Times struct {
	// Start limits the wait until a daemon listens, and until its server is active, which initialises the GPU.
	Start time.Duration
	// Ask limits the wait for the answer to one command.
	Ask time.Duration
	// Quit limits the wait until a daemon exits by itself, Kill until killed processes exit.
	Quit, Kill time.Duration
	// Poll is the time between the first two checks of a state without notifications.
	Poll time.Duration
	// Logs is the time between two checks of the sizes of logs. It is short because clients can make servers log as fast as they can write.
	Logs time.Duration
}

// defaultTimes are the limits for a real driver. A client of the service waits for one request as long as its context allows.
var defaultTimes = Times{
	Start: 20 * time.Second, Ask: 5 * time.Second, Quit: 5 * time.Second, Kill: 5 * time.Second, Poll: time.Millisecond, Logs: time.Second,
}

// Service owns the control daemons of a node. It is safe for concurrent use.
type Service struct {
	Options

	mu      sync.Mutex
	daemons map[gpu.MPSDaemonID]*daemon
	// revision increases with every change. changed is closed at each change, and replaced.
	revision int64
	changed  chan struct{}
	// stopped is closed when exits are no longer observed.
	stopped <-chan struct{}
}

// New adopts the control daemons of an earlier service. If the start of a daemon was interrupted, it ends the remaining processes. It
// observes exits until the context is done.
func New(ctx context.Context, options Options) (*Service, error) {
	if options.Times == (Times{}) {
		options.Times = defaultTimes
	}
	if options.Hardening == "" {
		options.Hardening = HardeningMounts
	}
	// Revisions of an earlier service are smaller.
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
	// In parallel, because each may wait for processes that do not exit.
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
	// A greater revision comes from an earlier service, before the clock was set back.
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
	var started []state.Driver
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

// publish updates the published state of a daemon; shown is false if the daemon was removed.
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

// take returns the locked daemon for one request; nil if it does not exist and create is false. The caller releases it.
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

// Ensure returns when the control daemon runs, with its server if server is set. A running daemon keeps its spec.
func (s *Service) Ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec, server bool) (gpu.MPSDaemon, error) {
	d, err := s.take(ctx, id, true)
	if err != nil {
		return gpu.MPSDaemon{}, err
	}
	defer d.release()
	err = d.ensure(ctx, spec, wanted{server: server})
	return d.describe(), err
}

// StartNew starts the control daemon, without a server, for a device that no claim uses. It replaces a daemon with other settings, or one
// that has accepted clients, together with its directory. *gpu.MPSClientsError: clients are connected to it.
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

// RestoreLimits sets the limits of the control daemon and its servers to the limits of the spec.
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
