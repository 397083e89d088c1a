package plugin

import (
	"sync/atomic"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/diagnostics"
	"github.com/prism-gpu/prism/pkg/plugin/health"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/layout"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// setup is the configuration of a process and its adapters, and the outlet of its findings.
type setup struct {
	cfg      *config.Plugin
	adapters Adapters
	findings *findingsOutlet
}

// monitorHealth builds the monitor of the GPUs that the inventory finds, and adds the GPUs that an earlier process has found.
func monitorHealth(s setup, bootID string, inv *inventory.Inventory) *health.Monitor {
	monitor := health.NewMonitor(health.MonitorOptions{
		Inventory: inv, Disk: s.adapters.Disk, Dir: s.cfg.PluginDir(), BootID: bootID, DriverLoad: s.adapters.Host.DriverLoad, Rules: findingRules(&s.cfg.Health),
		SetTaints: s.findings.setTaints, Events: s.findings,
	})
	inv.Remember(monitor.Load())
	return monitor
}

// findingRules are the settings of findings.
func findingRules(cfg *config.Health) finding.Rules {
	rules := finding.Rules{NoExecute: map[finding.Key]bool{}}
	rules.XIDs.Taint, rules.XIDs.All = cfg.XIDDecisions()
	for _, key := range cfg.NoExecute {
		rules.NoExecute[finding.Key(key)] = true
	}
	return rules
}

// findingsOutlet is where findings are published and reported. A machine has findings before, and perhaps without, an API server.
type findingsOutlet struct {
	to atomic.Pointer[nodeLayout]
}

// connect publishes and reports findings from now on. It is called before the driver is inspected.
func (o *findingsOutlet) connect(to *nodeLayout) { o.to.Store(to) }

func (o *findingsOutlet) setTaints(rules []publish.TaintRule) {
	if to := o.to.Load(); to != nil {
		to.Publisher.SetTaints(layout.Health, rules)
	}
}

// Warn writes an Event of the node.
func (o *findingsOutlet) Warn(reason, action, note string) {
	if recorder := o.recorder(); recorder != nil {
		recorder.Warn(reason, action, note)
	}
}

// Normal writes an Event of the node.
func (o *findingsOutlet) Normal(reason, action, note string) {
	if recorder := o.recorder(); recorder != nil {
		recorder.Normal(reason, action, note)
	}
}

func (o *findingsOutlet) recorder() events.Recorder {
	if to := o.to.Load(); to != nil {
		return to.events
	}
	return nil
}

// polled passes polls of the inventory to the monitor, which is built after it.
type polled struct{ monitor *health.Monitor }

func (p *polled) apply(poll gpu.HealthPoll) { p.monitor.Polled(poll) }

// healthReadings are the metrics of the findings.
func healthReadings(m *health.Monitor) diagnostics.HealthReadings {
	return diagnostics.HealthReadings{
		Failures: m.Failures,
		Findings: func() (all []diagnostics.Finding) {
			for _, f := range m.All() {
				all = append(all, diagnostics.Finding{GPU: string(f.GPU), Key: string(f.Key), Value: f.Value, Blocks: f.Blocks()})
			}
			return all
		},
	}
}
