package health

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// Inventory polls the GPUs; *inventory.Inventory is the real one. It calls Monitor.Polled.
type Inventory interface {
	Current() *inventory.View
	Check(ctx context.Context, id gpu.UUID)
	WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error
}

// MonitorOptions are the functions that a Monitor needs.
type MonitorOptions struct {
	Inventory Inventory
	// Disk and Dir are the place of the file with the findings.
	Disk disk.Files
	Dir  string
	// BootID identifies the present boot, DriverLoad the present load of the driver; empty without a driver.
	BootID     string
	DriverLoad func() string
	Rules      finding.Rules
	// SetTaints publishes the taints of the findings in the place of earlier ones. It must not block.
	SetTaints func(rules []publish.TaintRule)
	// Events are about the node.
	Events events.Recorder
}

// Monitor knows the findings of the node's GPUs, from polls, events of the driver, and declarations of administrators and other components. It
// publishes them as taints. Every process of a node monitors; the one that leads stores the findings and writes Events.
type Monitor struct {
	*book
	inventory Inventory
	output    *output
	checks    *checks
	// failures counts polls of GPUs that did not answer.
	failures atomic.Int64
}

// NewMonitor returns a Monitor without findings. Call Load, then poll.
func NewMonitor(o MonitorOptions) *Monitor {
	b := newBook(o.Rules, o.DriverLoad)
	f := &facts{view: o.Inventory.Current, known: map[gpu.UUID]gpu.GPU{}}
	return &Monitor{book: b, inventory: o.Inventory, checks: newChecks(), output: &output{
		book: b, facts: f, file: file{disk: o.Disk, dir: o.Dir, bootID: o.BootID}, setTaints: o.SetTaints,
		notices: notices{events: o.Events, facts: f}, retry: backoff.Backoff{First: writeRetry, Max: writeRetryMax},
	}}
}

// Polled applies the readings of a poll. When it returns, the taints of new findings are published, unless others were published shortly
// before.
func (m *Monitor) Polled(p gpu.HealthPoll) {
	for i := range p.Readings {
		if p.Readings[i].Err != nil {
			m.failures.Add(1)
		}
	}
	m.output.publish(m.poll(p))
}

// Failures counts the polls of GPUs that did not answer.
func (m *Monitor) Failures() int64 { return m.failures.Load() }

// Load reads the findings of the process before this one, and returns the facts of the GPUs that it has found in this boot. It is called before
// the first poll.
func (m *Monitor) Load() (found []gpu.GPU) {
	saved, err := m.output.file.load()
	if err != nil {
		return nil // the process that leads reads it again, and sets a damaged file aside
	}
	return m.adopt(saved)
}

// Lead reads the file of the process that led before, and publishes the findings. From then on, until the context ends, this process writes
// findings to the file before it publishes them.
func (m *Monitor) Lead(ctx context.Context) {
	saved, err := m.inherit()
	var again func() error
	if err != nil {
		again = func() error {
			_, err := m.inherit()
			return err
		}
	}
	m.output.lead(ctx.Done(), m.as(m.valid(saved)), again)
	m.output.publish(true)
}

// inherit adopts the findings of the process that led before. A damaged file is set aside; one that cannot be read now is an error.
func (m *Monitor) inherit() (content, error) {
	saved, err := m.output.file.load()
	if errors.Is(err, errDamaged) {
		klog.Background().Error(err, "The stored findings of GPUs are unreadable; polls find them again, except XID errors")
		m.output.notices.unreadable(m.output.file.setAside(err))
		err = nil
	}
	m.adopt(saved)
	return saved, err
}

// adopt adds findings of another process, and returns the facts of the GPUs.
func (m *Monitor) adopt(saved content) []gpu.GPU {
	m.merge(m.valid(saved))
	if saved.BootID != m.output.file.bootID {
		return nil
	}
	m.output.facts.add(saved.GPUs)
	return saved.GPUs
}

// valid returns the findings that are still valid in this boot and load of the driver.
func (m *Monitor) valid(saved content) content {
	if saved.BootID != m.output.file.bootID || !m.sameLoad(saved.DriverLoad) {
		saved.State, saved.DriverLoad = saved.State.Declared(), ""
	}
	return saved
}

// Run waits for events of the driver, and has their GPUs polled, until the context ends.
func (m *Monitor) Run(ctx context.Context) error {
	var background sync.WaitGroup
	defer background.Wait()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	background.Go(func() {
		if err := m.inventory.WatchHealth(watching, m.event); err != nil {
			failed <- err
		}
	})
	for {
		now := time.Now()
		for _, id := range m.checks.take(now) {
			background.Go(func() {
				m.inventory.Check(watching, id)
				m.checks.done(id)
				m.renew()
			})
		}
		m.output.publish(false)
		timer := time.NewTimer(m.pause(now))
		select {
		case <-ctx.Done():
		case err := <-failed:
			klog.FromContext(ctx).Error(err, "Events of GPUs are not received any more")
		case <-m.wake:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// event applies an event of the driver, and has its GPU polled. Run is not woken for an event that changes nothing: applications cause any
// number of them.
func (m *Monitor) event(e gpu.HealthEvent) {
	now := time.Now()
	news := m.xid(e, now)
	if sooner := m.checks.event(e.GPU, now); sooner || news {
		m.renew()
	}
}

// pause is the time until Run has something to do.
func (m *Monitor) pause(now time.Time) time.Duration {
	pause := staleAfter
	for _, due := range []time.Time{m.checks.next(), m.output.due(), m.stale()} {
		if !due.IsZero() {
			pause = min(pause, due.Sub(now))
		}
	}
	return max(pause, 0)
}
