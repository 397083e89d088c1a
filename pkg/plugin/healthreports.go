package plugin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/health"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// gpuHealth is the health of a GPU.
type gpuHealth struct {
	State driver.HealthState
	// Message says what is wrong and what to do, without times and counts; empty for a healthy GPU.
	Message string
	// Blocking are the findings for which the GPU gets no new claims, also of a healthy GPU in maintenance.
	Blocking []finding.Finding
	// Checked is the end of the GPU's last poll; zero: none.
	Checked time.Time
}

// gpuHealths reports the health of GPUs.
type gpuHealths interface {
	Health(id gpu.UUID) gpuHealth
	// Text says in one sentence what is wrong and what to do.
	Text(f *finding.Finding) string
	// Changed returns a channel that is closed at the next change of a GPU's health.
	Changed() <-chan struct{}
}

// monitored is the health of a machine's GPUs.
type monitored struct{ *health.Monitor }

// Health returns the health of a GPU.
func (m monitored) Health(id gpu.UUID) gpuHealth {
	now := m.Monitor.Health(id)
	return gpuHealth{State: driver.HealthState(now.State), Message: now.Message, Blocking: now.Blocking, Checked: now.Checked}
}

// Text says what a finding is and how to repair it.
func (monitored) Text(f *finding.Finding) string { return finding.Message(f) }

// healthOf returns the source of the health of a machine's GPUs; nil: nothing is reported about it.
func healthOf(m *Machine) gpuHealths {
	if m.Health == nil {
		return nil
	}
	return monitored{m.Health}
}

// healthReports passes the health of GPUs to pods and claims: to the kubelet, into the statuses of claims, and into refusals.
type healthReports struct {
	healthReportsOptions
	// leads: this process restores devices, and so knows which failed.
	leads atomic.Bool

	mu sync.Mutex
	// known are the devices that were reported last, nil before the first report.
	known map[driver.HealthDevice]bool
}

// healthReportsOptions are the ports of healthReports.
type healthReportsOptions struct {
	GPUs                 gpuHealths
	DriverName, NodeName string
	Additional           gpu.Additional
	Layout               *Layout
	// Records are this node's.
	Records func() ([]*checkpoint.Record, error)
	// Began is the start of the process.
	Began time.Time
}

// newHealthReports returns nil if nothing is known about the health of GPUs. All methods can be called on nil.
func newHealthReports(o healthReportsOptions) *healthReports {
	if o.GPUs == nil {
		return nil
	}
	return &healthReports{healthReportsOptions: o}
}

// healthReportsOf returns the reports of a plugin.
func healthReportsOf(cfg *config.Plugin, m *Machine, l *Layout) *healthReports {
	return newHealthReports(healthReportsOptions{
		GPUs: healthOf(m), DriverName: cfg.DriverName, NodeName: cfg.NodeName, Additional: published(cfg).Additional, Layout: l,
		Records: m.Kept, Began: time.Now(),
	})
}

// port is the health for the kubelet's handler; nil: it is not reported.
func (h *healthReports) port() *driver.Health {
	if h == nil {
		return nil
	}
	return &driver.Health{
		Devices: h.devices, Of: h.of, Began: h.Began,
		Changed: func() (devices, health <-chan struct{}) { return h.Layout.failed.next(), h.GPUs.Changed() },
	}
}

// conditions are the conditions of claims about the health of their devices.
func (h *healthReports) conditions() []driver.ConditionSource {
	if h == nil {
		return nil
	}
	return []driver.ConditionSource{h.port().Conditions}
}

// unhealthy is the check of a transaction; nil: none.
func (h *healthReports) unhealthy() func(id gpu.UUID) []prepare.Problem {
	if h == nil {
		return nil
	}
	return h.problems
}

// renewed wakes the watchers: the advertised devices may have changed.
func (h *healthReports) renewed() {
	if h != nil {
		h.Layout.failed.wake()
	}
}

// lead keeps the statuses of claims current until the context ends. One process of the node does.
func (h *healthReports) lead(ctx context.Context, changed func(r *checkpoint.Record)) {
	if h == nil {
		return
	}
	h.leads.Store(true)
	h.renewed()
	defer h.leads.Store(false)
	h.port().FollowClaims(ctx, h.Records, changed)
}

// devices lists the advertised devices, and those of prepared claims that are not advertised any more. The records are read only while a
// reported device is not advertised, and once at the start. Only the process that restores a type of devices reports them: another one would
// report them as healthy.
func (h *healthReports) devices() []driver.HealthDevice {
	now := h.advertised()
	h.mu.Lock()
	defer h.mu.Unlock()
	missing := h.known == nil
	for d := range h.known {
		missing = missing || !now[d]
	}
	if missing {
		records, err := h.Records()
		for _, r := range records {
			if r.State != checkpoint.Done {
				continue
			}
			for i := range r.Results {
				now[driver.HealthDeviceOf(&r.Results[i])] = true
			}
		}
		for d := range h.known {
			if err != nil { // it may be of a claim that cannot be read
				now[d] = true
			}
		}
	}
	h.known = now
	list := make([]driver.HealthDevice, 0, len(now))
	for d := range now {
		if h.leads.Load() || !h.Layout.failed.restores(d.Type) {
			list = append(list, d)
		}
	}
	return list
}

// advertised are the devices of the layout, also if they are withdrawn for the moment.
func (h *healthReports) advertised() map[driver.HealthDevice]bool {
	found := map[driver.HealthDevice]bool{}
	node, layout, err := h.Layout.Now()
	if err != nil {
		return found
	}
	for i := range node.GPUs {
		g := &node.GPUs[i]
		modes := layout.Of(g)
		for _, d := range modes.Devices(g) {
			found[driver.HealthDevice{Pool: modes.Pool(h.NodeName, g), Name: string(d.Name()), Type: d.Type(), GPU: g.UUID}] = true
		}
	}
	for _, d := range h.Additional.Devices(node.GPUs) {
		found[driver.HealthDevice{Pool: gpu.Monitor{}.Pool(h.NodeName), Name: string(d.Name()), Type: d.Type(), GPU: d.Parent().UUID}] = true
	}
	return found
}

// of is the health of a device: the GPU's, unless only the device failed.
func (h *healthReports) of(d driver.HealthDevice) driver.DeviceHealth {
	health := h.GPUs.Health(d.GPU)
	found := driver.DeviceHealth{State: health.State, Message: health.Message, Checked: health.Checked}
	switch {
	case health.State == driver.Unhealthy:
		found.Reason = reasonOf(health.Blocking)
	case h.Layout.failed.has(d.Type, d.GPU):
		found.State, found.Reason = driver.Unhealthy, camelCase(string(d.Type)+publish.UnavailableSuffix)
		found.Message = fmt.Sprintf("the %s device of GPU %s was not restored after a failure: see the Events of the Node", d.Type, d.GPU)
	}
	return found
}

// reasonOf is the reason of a condition about findings; maintenance is none.
func reasonOf(blocking []finding.Finding) string {
	for i := range blocking {
		if blocking[i].Key != finding.Maintenance {
			return camelCase(string(blocking[i].Key))
		}
	}
	return "Unhealthy"
}

// camelCase turns the key of a taint into a reason: gpu-lost into GPULost. Words of up to three letters are abbreviations.
func camelCase(key string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(key, "-") {
		switch {
		case len(word) <= 3:
			b.WriteString(strings.ToUpper(word))
		default:
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// problems are the reasons for which a GPU gets no new claims.
func (h *healthReports) problems(id gpu.UUID) []prepare.Problem {
	health := h.GPUs.Health(id)
	problems := make([]prepare.Problem, 0, len(health.Blocking))
	for i := range health.Blocking {
		f := &health.Blocking[i]
		problems = append(problems, prepare.Problem{
			Taint: resourceapi.DeviceTaint{
				Key: h.DriverName + "/" + string(f.Key), Value: f.Value, Effect: resourceapi.DeviceTaintEffect(f.Effect),
			},
			Cause: fmt.Sprintf("GPU %s gets no new claims (%s): %s", id, strings.TrimSuffix(string(f.Key)+"="+f.Value, "="), h.GPUs.Text(f)), Fix: "delete the pod so that it is scheduled again",
		})
	}
	return problems
}
