package v1alpha1

import (
	"maps"
	"regexp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUMetricsConfig configures the metrics that are sampled for the GPUs of a claim.
type GPUMetricsConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Source of the values. Unset: GPM if the GPU supports it, else NVML. NsightSystems also records the performance counters of whole GPUs
	// into reports of the claim, which must have the perfmon device of each of them; other values have the source as if unset.
	Source *MetricsSource `json:"source,omitempty"`
	// Sets are the groups of metrics that are added to the groups of the node. Default: Basic.
	Sets []MetricsSet `json:"sets,omitempty"`
	// Interval between samples, at least 1s, with source GPM at least 200ms. The shortest interval of the node and of all claims applies,
	// but never less than the minimum of the exporter. Unset: the interval of the node.
	Interval *metav1.Duration `json:"interval,omitempty"`
	// FrequencyHz is the sampling frequency of source NsightSystems; it requires that source. Unset: with source NsightSystems 10000.
	FrequencyHz *int32 `json:"frequencyHz,omitempty"`
	// MetricSet is the alias of a metric set of source NsightSystems; it requires that source. Unset: the first set that the GPU supports.
	MetricSet *string `json:"metricSet,omitempty"`
	// Labels are added to the time series of the allocation, as claim_label_<name>; labels of a class and of a claim are merged by name.
	Labels map[string]string `json:"labels,omitempty"`
	// PerProcess splits the values of containers by command; the driver reports
	// the utilization of processes on whole GPUs only, their memory also on MIG
	// devices. Default: false.
	PerProcess *bool `json:"perProcess,omitempty"`
	// ExposeInContainer writes the metrics of the allocated devices to
	// /run/prism/metrics/<UID of the claim>/gpu.prom in the containers. It requires
	// prism-exporter on the node. Default: false.
	ExposeInContainer *bool `json:"exposeInContainer,omitempty"`
}

// MetricsSource is the source of values.
type MetricsSource string

// The sources. NsightSystems requires the perfmon device of every GPU.
const (
	SourceNVML          MetricsSource = "NVML"
	SourceGPM           MetricsSource = "GPM"
	SourceNsightSystems MetricsSource = "NsightSystems"
)

// MetricsSet is a group of metrics.
type MetricsSet string

// The sets.
const (
	SetBasic       MetricsSet = "Basic"
	SetUtilization MetricsSet = "Utilization"
	SetMemory      MetricsSet = "Memory"
	SetPower       MetricsSet = "Power"
	SetClocks      MetricsSet = "Clocks"
	SetPCIe        MetricsSet = "PCIe"
	SetNVLink      MetricsSet = "NVLink"
	SetECC         MetricsSet = "ECC"
	SetThrottle    MetricsSet = "Throttle"
	SetProcesses   MetricsSet = "Processes"
	SetPipelines   MetricsSet = "Pipelines"
)

var (
	metricsSources = []MetricsSource{SourceNVML, SourceGPM, SourceNsightSystems}
	metricsSets    = []MetricsSet{
		SetBasic, SetUtilization, SetMemory, SetPower, SetClocks, SetPCIe, SetNVLink, SetECC, SetThrottle, SetProcesses,
		SetPipelines,
	}
)

const (
	maxLabels     = 8
	maxLabelBytes = 64
)

var (
	aliasForm     = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	labelNameForm = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]{0,63}$`)
)

// Default fills unset fields, in place. Source and MetricSet depend on the GPU,
// Interval on the node, and stay unset; FrequencyHz is filled for source
// NsightSystems only.
func (c *GPUMetricsConfig) Default() {
	c.APIVersion, c.TypeMeta.Kind = APIVersion, KindGPUMetricsConfig
	if c.Sets == nil {
		c.Sets = []MetricsSet{SetBasic}
	}
	if c.Source != nil && *c.Source == SourceNsightSystems {
		fill(&c.FrequencyHz, 10000)
	}
	fill(&c.PerProcess, false)
	fill(&c.ExposeInContainer, false)
}

// Validate returns nil or a *Problems. It does not check settings that depend on the GPU or on the rest of the claim.
func (c *GPUMetricsConfig) Validate() error {
	p := &problems{}
	oneOf(p, "source", c.Source, metricsSources)
	eachOf(p, "sets", c.Sets, metricsSets)
	if i := slices.Index(c.Sets, SetPipelines); i >= 0 && c.Source != nil && *c.Source != SourceGPM {
		p.add(index("sets", i), "%s requires source %s, got source %s; change one of them", SetPipelines, SourceGPM, *c.Source)
	}
	shortest := time.Second
	if c.Source != nil && *c.Source == SourceGPM {
		shortest = 200 * time.Millisecond
	}
	within(p, "interval", c.Interval, shortest, 5*time.Minute)
	c.validateNsight(p)
	c.validateLabels(p)
	return p.err(KindGPUMetricsConfig)
}

// validateNsight checks the settings of source NsightSystems.
func (c *GPUMetricsConfig) validateNsight(p *problems) {
	between(p, "frequencyHz", c.FrequencyHz, 10, 200000)
	if c.MetricSet != nil && !aliasForm.MatchString(*c.MetricSet) {
		p.add("metricSet", "must be 1 to 64 lower-case letters, digits, - and _, for example ga100, got %s",
			quote(*c.MetricSet))
	}
	if c.Source == nil || *c.Source == SourceNsightSystems {
		return
	}
	for _, field := range []struct {
		path string
		set  bool
	}{
		{"frequencyHz", c.FrequencyHz != nil},
		{"metricSet", c.MetricSet != nil},
	} {
		if field.set {
			p.add(field.path, "has no effect with source %s; remove it or set source to %s", *c.Source, SourceNsightSystems)
		}
	}
}

func (c *GPUMetricsConfig) validateLabels(p *problems) {
	if len(c.Labels) > maxLabels {
		p.add("labels", "must have at most %d items, got %d", maxLabels, len(c.Labels))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
		if !labelNameForm.MatchString(name) {
			p.add("labels", "a label name must be 1 to 64 letters, digits and _ and start with a letter, got %s", quote(name))
			continue
		}
		printable(p, join("labels", name), c.Labels[name], maxLabelBytes)
	}
}
