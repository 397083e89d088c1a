package claim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Metrics is what the exporter does for a result beyond what it does for every device: the GPUMetricsConfig in force.
type Metrics struct {
	// Source is the API's name of where values come from; empty for the exporter's choice.
	Source string
	// Sets are the API's names of groups of metrics that are added to the node's; no set twice.
	Sets []string
	// Interval is the time between samples that the claim asks for; 0 for the node's.
	Interval metav1.Duration
	// Labels are added to the allocation's time series.
	Labels map[string]string
	// PerProcess splits values by command.
	PerProcess bool
	// ExposeInContainer: the containers have a directory with the claim's metrics.
	ExposeInContainer bool
}

const (
	// adminMetrics is why a claim with admin access has no options for metrics, monitorMetrics why a monitor device has none.
	adminMetrics   = "GPUMetricsConfig is not supported with adminAccess: a GPU's metrics are attributed to the claim that uses it"
	monitorMetrics = "GPUMetricsConfig is not supported for a monitor device, which only shows GPUs that other claims use"
	// pastSource is what only a source that is not supported would have.
	pastSource = "source NsightSystems, which is not supported by this version of the driver"
	// fixMetrics is the advice where a GPU does not have what its claim asks for.
	fixMetrics = "change GPUMetricsConfig, or request a GPU of architecture Hopper or later"
)

// metricsSources and metricsSets are what is supported.
var (
	metricsSources = []string{string(v1alpha1.SourceNVML), string(v1alpha1.SourceGPM)}
	metricsSets    = []string{
		string(v1alpha1.SetBasic), string(v1alpha1.SetUtilization), string(v1alpha1.SetMemory), string(v1alpha1.SetPower),
		string(v1alpha1.SetClocks), string(v1alpha1.SetPCIe), string(v1alpha1.SetNVLink), string(v1alpha1.SetECC),
		string(v1alpha1.SetThrottle), string(v1alpha1.SetProcesses), string(v1alpha1.SetPipelines),
	}
)

// claimUID is what the API server calls a claim. A directory is named after it.
var claimUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// supportedMetrics names what of a configuration no GPU has.
func supportedMetrics(c *v1alpha1.GPUMetricsConfig) error {
	const kind = v1alpha1.KindGPUMetricsConfig
	if c.Source != nil && *c.Source == v1alpha1.SourceNsightSystems {
		return fmt.Errorf("%s.source %s is not supported by this version of the driver; supported values: %s", kind, *c.Source,
			strings.Join(metricsSources, ", "))
	}
	switch {
	case c.FrequencyHz != nil:
		return fmt.Errorf("%s.frequencyHz requires %s", kind, pastSource)
	case c.MetricSet != nil:
		return fmt.Errorf("%s.metricSet requires %s", kind, pastSource)
	}
	return nil
}

// inconsistent says what is wrong with the merged configuration for metrics: its parts are valid, and may not fit each other.
func (o Options) inconsistent() error {
	if o.Metrics == nil {
		return nil
	}
	if err := o.Metrics.Validate(); err != nil {
		return fmt.Errorf("what the DeviceClass and the ResourceClaim set together is invalid: %w", err)
	}
	return nil
}

// metrics sets what the exporter does for the results.
func (s Source) metrics(plan *Plan, options []Options) error {
	for i := range plan.Results {
		r, config := &plan.Results[i], options[i].Metrics
		if config == nil {
			continue
		}
		if err := options[i].inconsistent(); err != nil {
			return r.refuse("correct one of the two", "%v", err)
		}
		asked := metricsOf(config)
		if asked.ExposeInContainer {
			if err := s.exposes(plan); err != nil {
				return r.refuseMendable("set exporter.enabled: true, or take exposeInContainer out of GPUMetricsConfig", "%v", err)
			}
		}
		if r.Admin {
			return r.refuse("take it out of the ResourceClaim", adminMetrics)
		}
		if err := asked.lacking(r.Device); err != nil {
			return r.refuse(fixMetrics, "%v", err)
		}
		r.Metrics = asked
	}
	return nil
}

// exposes says why a claim's containers cannot have its metrics.
func (s Source) exposes(plan *Plan) error {
	switch {
	case !s.Exporter:
		return fmt.Errorf("GPUMetricsConfig.exposeInContainer requires prism-exporter, which does not run on node %s: "+
			"the chart's value exporter.enabled is false", s.NodeName)
	case !claimUID.MatchString(plan.UID):
		return fmt.Errorf("GPUMetricsConfig.exposeInContainer: %q is no UID of a claim, after which its directory is named", plan.UID)
	}
	return nil
}

// metricsOf reads a merged configuration.
func metricsOf(c *v1alpha1.GPUMetricsConfig) *Metrics {
	m := &Metrics{Labels: c.Labels}
	if c.Source != nil {
		m.Source = string(*c.Source)
	}
	for _, set := range c.Sets {
		m.Sets = append(m.Sets, string(set))
	}
	if c.Interval != nil {
		m.Interval = *c.Interval
	}
	m.PerProcess = c.PerProcess != nil && *c.PerProcess
	m.ExposeInContainer = c.ExposeInContainer != nil && *c.ExposeInContainer
	return m
}

// lacking names the first source or set that the device does not have, and what it has.
func (m *Metrics) lacking(d gpu.Device) error {
	g := d.Parent()
	name := fmt.Sprintf("GPU %s (architecture %s)", g.UUID, g.Product.Architecture)
	if m.Source == string(v1alpha1.SourceGPM) && !g.HasGPM() {
		return fmt.Errorf("GPUMetricsConfig.source %s is not supported on %s, which has no GPU performance monitoring; sources there: %s",
			m.Source, name, v1alpha1.SourceNVML)
	}
	_, mig := d.(gpu.MIGDevice)
	if mig {
		name = "a MIG device of " + name
	}
	monitoring := g.HasGPM() && m.Source != string(v1alpha1.SourceNVML)
	there := slices.DeleteFunc(slices.Clone(metricsSets), func(set string) bool {
		return !monitoring && (set == string(v1alpha1.SetPipelines) || mig && set == string(v1alpha1.SetUtilization))
	})
	for _, set := range m.Sets {
		if slices.Contains(there, set) {
			continue
		}
		why := "which has no GPU performance monitoring"
		if g.HasGPM() {
			why = fmt.Sprintf("with source %s", m.Source)
		}
		return fmt.Errorf("GPUMetricsConfig.sets: %s is not supported on %s, %s; sets there: %s", set, name, why, strings.Join(there, ", "))
	}
	return nil
}
