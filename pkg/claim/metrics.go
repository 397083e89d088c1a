package claim

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// KindMetrics is the kind of the extension that has options for metrics. Their data is a gpu.MetricsOptions.
const KindMetrics = "metrics"

const (
	// adminMetrics says why a claim with admin access cannot set options for metrics.
	adminMetrics = "GPUMetricsConfig is not supported with adminAccess: a GPU's metrics are attributed to the claim that uses it"
	// fixMetrics is the advice if a GPU lacks the requested metrics.
	fixMetrics = "change GPUMetricsConfig, or request a GPU of architecture Hopper or later"
)

// claimUID is the form of a claim's UID from the API server. A directory is named after it.
var claimUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// MetricsExtension plans GPUMetricsConfig.
type MetricsExtension struct {
	// Exporter: prism-exporter runs on the node.
	Exporter bool
	// NodeName is the node's, for errors.
	NodeName string
}

// Kind is KindMetrics.
func (MetricsExtension) Kind() string { return KindMetrics }

// Reads a GPUMetricsConfig.
func (MetricsExtension) Reads(config v1alpha1.Config) bool {
	_, ok := config.(*v1alpha1.GPUMetricsConfig)
	return ok
}

// Supports accepts every option for a GPU, and for an additional device only the options of counters.
func (MetricsExtension) Supports(config v1alpha1.Config, device gpu.DeviceType) error {
	c, ok := config.(*v1alpha1.GPUMetricsConfig)
	const kind = v1alpha1.KindGPUMetricsConfig
	switch {
	case !ok:
		return unsupportedKind(config.Kind())
	case is(c.Source, v1alpha1.SourceNsightSystems):
		return countable(c, device)
	}
	return notForAdditional(kind, device)
}

// Merge overlays fields; lists are replaced.
func (MetricsExtension) Merge(merged any, config v1alpha1.Config, _ v1alpha1.Source) (any, error) {
	base, _ := merged.(*v1alpha1.GPUMetricsConfig)
	c, ok := config.(*v1alpha1.GPUMetricsConfig)
	if !ok {
		return nil, unsupportedKind(config.Kind())
	}
	return overlay(base, c)
}

// Forbidden forbids everything but the counters of GPUs, which a monitor device is for.
func (MetricsExtension) Forbidden(merged any) error {
	if c, _ := merged.(*v1alpha1.GPUMetricsConfig); c != nil && is(c.Source, v1alpha1.SourceNsightSystems) {
		return nil
	}
	return errors.New(adminMetrics)
}

// Validate returns the error of the merged configuration: its parts are valid, and may contradict each other.
func (MetricsExtension) Validate(merged Options, _ func() (Options, error), _ int64) error {
	return inconsistent(OptionsOf[*v1alpha1.GPUMetricsConfig](merged, KindMetrics))
}

func inconsistent(config *v1alpha1.GPUMetricsConfig) error {
	if config == nil {
		return nil
	}
	if err := config.Validate(); err != nil {
		return fmt.Errorf("the combined configuration of DeviceClass and ResourceClaim is invalid: %w", err)
	}
	return nil
}

// PlanResult sets the exporter's work for a result.
func (e MetricsExtension) PlanResult(p *Plan, r *Result, options Options) error {
	config := OptionsOf[*v1alpha1.GPUMetricsConfig](options, KindMetrics)
	if config == nil {
		return nil
	}
	if err := inconsistent(config); err != nil {
		return r.refuse("correct one of the two", "%v", err)
	}
	if err := uncounted(config); err != nil {
		return r.refuse("set it, or remove the option", "%v", err)
	}
	if _, monitors := r.Device.(gpu.Monitor); monitors && is(config.Source, v1alpha1.SourceNsightSystems) {
		return nil // the claim has no metrics of its own
	}
	asked := metricsOf(config)
	if asked.ExposeInContainer {
		if err := e.exposes(p); err != nil {
			return r.refuseMendable("set exporter.enabled: true, or take exposeInContainer out of GPUMetricsConfig", "%v", err)
		}
	}
	if r.Admin {
		return r.refuse("take it out of the ResourceClaim", adminMetrics)
	}
	if err := metricsLacking(asked, r.Device); err != nil {
		return r.refuse(fixMetrics, "%v", err)
	}
	r.Extend(KindMetrics, asked)
	return nil
}

// exposes says why a claim's containers cannot get its metrics.
func (e MetricsExtension) exposes(plan *Plan) error {
	switch {
	case !e.Exporter:
		return fmt.Errorf("GPUMetricsConfig.exposeInContainer requires prism-exporter, which does not run on node %s: "+
			"the chart's value exporter.enabled is false", e.NodeName)
	case !claimUID.MatchString(plan.UID):
		return fmt.Errorf("GPUMetricsConfig.exposeInContainer: %q is no UID of a claim, after which its directory is named", plan.UID)
	}
	return nil
}

// metricsOf reads a merged configuration.
func metricsOf(c *v1alpha1.GPUMetricsConfig) *gpu.MetricsOptions {
	m := &gpu.MetricsOptions{Labels: c.Labels}
	if c.Source != nil && *c.Source != v1alpha1.SourceNsightSystems { // the exporter reads no counters
		m.Source = string(*c.Source)
	}
	for _, set := range c.Sets {
		m.Sets = append(m.Sets, string(set))
	}
	if c.Interval != nil {
		m.Interval = c.Interval.Duration
	}
	m.PerProcess = c.PerProcess != nil && *c.PerProcess
	m.ExposeInContainer = c.ExposeInContainer != nil && *c.ExposeInContainer
	return m
}

// metricsLacking names the first source or set that the device lacks, and those that it supports.
func metricsLacking(m *gpu.MetricsOptions, d gpu.Device) error {
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
	there := slices.DeleteFunc(slices.Clone(gpu.MetricsSets), func(set string) bool {
		return !monitoring && (set == gpu.MetricsPipelines || mig && set == gpu.MetricsUtilization)
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
