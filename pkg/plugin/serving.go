package plugin

import (
	"context"
	"sync"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/diagnostics"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
)

// serving contains the servers for the kubelet and for people.
type serving struct {
	server *driver.Server
	http   diagnostics.HTTP
	failed chan error // receives the error that keeps the plugin from serving the kubelet, once
	// registered is closed once the kubelet has registered the plugin.
	registered chan struct{}
}

// driverPorts answer the kubelet's calls.
type driverPorts struct {
	tx      *prepare.Transaction
	reports driver.Reports
	metrics *diagnostics.Metrics
	calls   *driver.Calls
	health  *driver.Health // nil: it is not reported
}

func newServing(cfg *config.Plugin, m *Machine, l *nodeLayout, api API, ports driverPorts) *serving {
	s := &serving{failed: make(chan error, 1), registered: make(chan struct{})}
	metadata := driver.DeviceMetadata{Files: driver.MetadataOf(cfg)}
	if cfg.DeviceMetadata {
		metadata.Describe = l.Publisher.Describe
	}
	s.server = &driver.Server{
		Handler: driver.New(driver.Options{
			Transaction: ports.tx, Reports: ports.reports, Metrics: ports.metrics, Metadata: metadata, Health: ports.health,
			Fatal: s.fail,
		}), Config: cfg, Client: api.Claims,
		Calls: ports.calls, OnRegistered: sync.OnceFunc(func() { close(s.registered) }),
	}
	s.http = diagnostics.HTTP{
		Endpoint: cfg.Serving.HTTPEndpoint, Metrics: ports.metrics, Pprof: cfg.Serving.Pprof, Ready: s.server.Ready,
		Note: func() string {
			if err := m.Inventory.Status().Err; err != nil {
				return "without devices: " + err.Error()
			}
			return ""
		},
	}
	return s
}

// fail notes the first error after which the process cannot serve any more.
func (s *serving) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// failure returns the error after which the process cannot serve any more, nil when the context ends before.
func (s *serving) failure(ctx context.Context) error {
	select {
	case err := <-s.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// newMetrics builds the metrics, which read the others when they are asked for.
func newMetrics(version string, cfg *config.Plugin, m *Machine, l *nodeLayout, tx *prepare.Transaction, intervals *timeslice.Reconciler,
	damaged *damagedRecords,
) *diagnostics.Metrics {
	return diagnostics.NewMetrics(version, diagnostics.Readings{
		Devices: func() map[string]int {
			counts := map[string]int{}
			for _, d := range l.Controller.Snapshot().Devices() {
				counts[string(d.Type())]++
			}
			for _, d := range published(cfg).Additional.Devices(m.Inventory.Current().Node.GPUs) {
				counts[string(d.Type())]++
			}
			return counts
		},
		Faults:        func() int { return m.Inventory.Status().Faults },
		Claims:        tx.Counts,
		DriverLoaded:  func() bool { return m.Inventory.Status().Usable() },
		SliceErrors:   func() int64 { return l.slices.Stats().Errors },
		DroppedFields: func() int64 { return l.slices.Stats().Dropped },
		Damaged:       func() int { return int(damaged.count.Load()) },
		Configuration: func() []string { return l.Controller.Snapshot().Status.Problems },
		Changing:      func() int { return l.Controller.Snapshot().Status.Changing },
		Intervals:     intervals.Failing,
		Health:        healthReadings(m.Health),
		Steps:         tx.Steps().Metrics(),
	})
}
