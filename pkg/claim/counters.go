package claim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// KindCounters is the kind of the extension that records the performance counters of GPUs. Its data of a claim is a *gpu.CounterOptions; its
// data of a result is an empty object: the counters that the result reserves are recorded.
const KindCounters = "counters"

const (
	// requestsCounters is the option that requests counters.
	requestsCounters = v1alpha1.KindGPUMetricsConfig + ".source " + string(v1alpha1.SourceNsightSystems)
	// onlyWhole says which devices counters are recorded for.
	onlyWhole = "it is supported for whole GPUs, and for a monitor device with adminAccess"
	// uncountedNone is why a claim without counters cannot have injection None.
	uncountedNone = v1alpha1.KindProfilerConfig + ".injection None records nothing without a GPUMetricsConfig with source NsightSystems"
	fixNone       = "set source: NsightSystems, or injection: Preload"
	// fixCounters is the advice if the options of counters differ.
	fixCounters = "give all requests the same GPUMetricsConfig, or use a claim for each"
	// longestRecording is the maximum length of a recording without duration and policy, in seconds.
	longestRecording = 24 * 60 * 60
)

// countable returns why a device cannot have a configuration that requests counters. An empty type stands for any.
func countable(c *v1alpha1.GPUMetricsConfig, device gpu.DeviceType) error {
	switch device {
	case "", gpu.TypeGPU:
		return nil
	case gpu.TypeMonitor:
		if len(c.Sets) > 0 || len(c.Labels) > 0 || c.Interval != nil || c.PerProcess != nil || c.ExposeInContainer != nil {
			return fmt.Errorf("%s for a monitor device supports only frequencyHz and metricSet: a monitor device has no metrics of its own", requestsCounters)
		}
		return nil
	case gpu.TypePerfmon:
		return notForAdditional(v1alpha1.KindGPUMetricsConfig, device)
	default:
		return fmt.Errorf("%s is not supported for a device of type %q, because other claims may use the GPU; %s", requestsCounters, device, onlyWhole)
	}
}

// uncounted names the first option of counters in a merged configuration that does not request them.
func uncounted(c *v1alpha1.GPUMetricsConfig) error {
	option := ""
	switch {
	case c == nil || is(c.Source, v1alpha1.SourceNsightSystems):
		return nil
	case c.FrequencyHz != nil:
		option = "frequencyHz"
	case c.MetricSet != nil:
		option = "metricSet"
	default:
		return nil
	}
	return fmt.Errorf("%s.%s requires source %s", v1alpha1.KindGPUMetricsConfig, option, v1alpha1.SourceNsightSystems)
}

// countersOf is the merged GPUMetricsConfig of a result if it requests counters, else nil.
func countersOf(o Options) *v1alpha1.GPUMetricsConfig {
	c := OptionsOf[*v1alpha1.GPUMetricsConfig](o, KindMetrics)
	if c == nil || !is(c.Source, v1alpha1.SourceNsightSystems) {
		return nil
	}
	return c
}

// counters are the planned counters of the claim; nil if none are recorded.
func (p *Plan) counters() *gpu.CounterOptions {
	c, _ := p.Extensions[KindCounters].(*gpu.CounterOptions)
	return c
}

// planCounters plans the counters of the GPUs whose merged configuration requests them. The claim must have reserved them: the hardware
// gives the counters of a GPU to one program at a time.
func (s Source) planCounters(plan *Plan, options []Options, node *gpu.Node) error {
	reserved := map[gpu.UUID]*Result{}
	for i := range plan.Results {
		if d, ok := plan.Results[i].Device.(gpu.Perfmon); ok {
			reserved[d.GPU.UUID] = &plan.Results[i]
		}
	}
	for i := range plan.Results {
		config := countersOf(options[i])
		if config == nil {
			continue
		}
		r := &plan.Results[i]
		gpus, err := countedGPUs(r, node)
		if err != nil {
			return err
		}
		asked := counterOptions(config)
		planned := plan.counters()
		switch {
		case planned == nil:
			planned = asked
			plan.Extend(KindCounters, planned)
		case planned.FrequencyHz != asked.FrequencyHz || planned.MetricSet != asked.MetricSet:
			return r.refuse(fixCounters, "its frequencyHz or metricSet differs from the configuration of the earlier requests, but the counters "+
				"of a claim are recorded together")
		}
		for _, g := range gpus {
			counter := reserved[g.UUID]
			if counter == nil {
				return r.refuse(s.perfmonFix(r.Device.Type()), "%s requires the perfmon device of GPU %s in the same claim", requestsCounters, g.UUID)
			}
			if of := (gpu.CounterGPU{UUID: g.UUID, PCIAddress: g.PCI.BusID}); !slices.Contains(planned.GPUs, of) {
				planned.GPUs = append(planned.GPUs, of)
			}
			counter.Extend(KindCounters, struct{}{})
		}
	}
	return nil
}

// countedGPUs are the GPUs whose counters are recorded for a result: its own, or for a monitor device all of the node.
func countedGPUs(r *Result, node *gpu.Node) (gpus []*gpu.GPU, err error) {
	switch d := r.Device.(type) {
	case gpu.Monitor:
		for i := range node.GPUs {
			gpus = append(gpus, &node.GPUs[i])
		}
		return gpus, nil
	case gpu.Whole:
		if !r.Admin && r.ShareID == "" {
			return []*gpu.GPU{d.GPU}, nil
		}
	}
	return nil, r.refuse("request a whole GPU", "%s is not supported for a share of a GPU, because other claims may use the GPU; %s", requestsCounters, onlyWhole)
}

// counterOptions reads a merged configuration.
func counterOptions(config *v1alpha1.GPUMetricsConfig) *gpu.CounterOptions {
	c := *config
	c.Default()
	o := &gpu.CounterOptions{FrequencyHz: *c.FrequencyHz}
	if c.MetricSet != nil {
		o.MetricSet = *c.MetricSet
	}
	return o
}

// perfmonFix says how a claim reserves the counters of the GPUs of a device.
func (s Source) perfmonFix(device gpu.DeviceType) string {
	class := classOf(gpu.TypePerfmon, s.Driver)
	if device == gpu.TypeMonitor {
		return fmt.Sprintf("add a request of class %s with allocationMode: All", class)
	}
	return fmt.Sprintf("add a request of class %s for each GPU, and a constraint with matchAttribute: %s/parentUUID for both", class, s.Driver)
}

// extendProfile sets a configuration of the claim, and that it profiles the processes of containers with the result.
func extendProfile(plan *Plan, r *Result, config *v1alpha1.ProfilerConfig) {
	plan.Extend(KindProfile, config)
	if !is(config.Injection, v1alpha1.InjectionNone) {
		r.Extend(KindProfile, struct{}{})
	}
}

// planCounters completes the plan of a claim with counters by its ProfilerConfig. agreed is nil if none applies: then nothing runs in
// containers.
func (e ProfileExtension) planCounters(plan *Plan, options []Options, agreed *v1alpha1.ProfilerConfig, checked *patterns) error {
	planned := plan.counters()
	if planned == nil {
		return nil
	}
	if agreed == nil {
		first := slices.IndexFunc(options, func(o Options) bool { return countersOf(o) != nil })
		none := &v1alpha1.ProfilerConfig{Injection: new(v1alpha1.InjectionNone)}
		var err error
		if agreed, err = e.effective(plan, &plan.Results[first], none, checked); err != nil {
			return err
		}
		extendProfile(plan, &plan.Results[first], agreed)
	}
	planned.Seconds = longestRecording
	if d := agreed.Duration; d != nil {
		planned.Seconds = int64(math.Ceil(d.Seconds()))
	}
	return nil
}

// countersWritten are the facts about the counters of a claim when it is written.
type countersWritten struct {
	// options are the merged options of each request, by name.
	options map[string]Options
	// known: the type of every request's devices is known. read: so is every request's DeviceClass.
	known, read bool
	// reserved: a request is for counters. recorded: a request's configuration requests them.
	reserved, recorded bool
}

// refusesCounters returns the errors about counters that hold for every allocation. If the DeviceClass of a request is unknown, it
// may contain the missing options or devices.
func (v Validator) refusesCounters(requests []asked, configs []resourceapi.DeviceClaimConfiguration) []error {
	w := countersWritten{options: map[string]Options{}, known: true, read: true}
	for _, r := range requests {
		options := v.countersOptions(r, configs)
		w.options[r.name] = options
		w.known = w.known && r.family != nil
		w.read = w.read && v.Class != nil && v.Class(r.class) != nil
		w.reserved = w.reserved || r.family != nil && r.family.Type() == gpu.TypePerfmon
		w.recorded = w.recorded || countersOf(options) != nil
	}
	return eachRequest(requests, func(r asked) error {
		if countersOf(w.options[r.name]) != nil {
			return v.refusesRecorded(r, w)
		}
		if !w.read {
			return nil
		}
		return w.refusesUnrecorded(w.options[r.name])
	})
}

// refusesRecorded returns why the counters of a request's GPUs cannot be recorded.
func (v Validator) refusesRecorded(r asked, w countersWritten) error {
	switch {
	case r.admin && r.family != nil && r.family.Type() != gpu.TypeMonitor:
		return errors.New(adminMetrics)
	case w.known && !w.reserved:
		return fmt.Errorf("%s requires the perfmon device of each GPU in the same claim; %s", requestsCounters, v.source().perfmonFix(r.family.Type()))
	}
	return nil
}

// refusesUnrecorded refuses options of counters for a request without counters; injection None may be for another request's.
func (w countersWritten) refusesUnrecorded(options Options) error {
	profile := OptionsOf[ProfileOptions](options, KindProfile).Config
	if !w.recorded && profile != nil && !is(profile.Enabled, false) && is(profile.Injection, v1alpha1.InjectionNone) {
		return errors.New(uncountedNone + "; " + fixNone)
	}
	return uncounted(OptionsOf[*v1alpha1.GPUMetricsConfig](options, KindMetrics))
}

// countersOptions are the merged options of a request; with admin access the class's are ignored.
func (v Validator) countersOptions(r asked, configs []resourceapi.DeviceClaimConfiguration) Options {
	if r.admin {
		v.Class = nil
	}
	merged, err := v.options(r, configs)
	if err != nil {
		return Options{} // reported before
	}
	return merged
}
