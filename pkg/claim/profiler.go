package claim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Profiler is what a node profiles processes with.
type Profiler interface {
	// The patterns of a claim are compiled by it.
	Patterns
	// Defaults are the cluster's defaults for a claim, later ones over earlier ones. They must not be changed. The error says why a default
	// that must not be left out cannot be decided now: claims that do not opt out are refused.
	Defaults(rc *resourceapi.ResourceClaim) ([]*v1alpha1.ProfilerConfig, error)
	// Limit sets the limits of the cluster's policy that a merged configuration of a claim leaves open, and returns why the policy does not
	// allow it.
	Limit(namespace string, config *v1alpha1.ProfilerConfig) error
	// Choose sets the version of the tool in a configuration that has every default, and returns why none of the node can profile so; a
	// *Refusal may say what to change. software: CUDA can be traced in software only, as on a MIG device or with MPS.
	Choose(config *v1alpha1.ProfilerConfig, software bool) error
	// Unprofiled reports that the processes of a claim are not profiled, although only the cluster's defaults ask for that.
	Unprofiled(rc *resourceapi.ResourceClaim, cause error)
}

const (
	// adminProfiler is why a claim with admin access is not profiled, monitorProfiler why a monitor device is not.
	adminProfiler = "ProfilerConfig is not supported with adminAccess: processes are profiled in the containers of the claim that " +
		"uses the GPU"
	monitorProfiler = "ProfilerConfig is not supported for a monitor device, which only shows GPUs that other claims use"
	fixProfiler     = "correct the ProfilerConfig"
)

// supportedProfiler names what of a configuration no node can do yet.
func supportedProfiler(c *v1alpha1.ProfilerConfig) error {
	refuse := func(field string, value any, supported string) error {
		return fmt.Errorf("%s.%s %v is not supported by this version of the driver; %s", v1alpha1.KindProfilerConfig, field, value, supported)
	}
	values := func(all ...string) string { return "supported values: " + strings.Join(all, ", ") }
	switch {
	case is(c.Tool, v1alpha1.ToolNsightCompute):
		return refuse("tool", *c.Tool, values(string(v1alpha1.ToolNsightSystems)))
	case is(c.Injection, v1alpha1.InjectionNRI), is(c.Injection, v1alpha1.InjectionNone):
		return refuse("injection", *c.Injection, values(string(v1alpha1.InjectionPreload)))
	case is(c.Mode, v1alpha1.ModeLaunch):
		return refuse("mode", *c.Mode, values(string(v1alpha1.ModeProfile)))
	case is(c.Start, v1alpha1.StartManual):
		return refuse("start", *c.Start,
			values(string(v1alpha1.StartImmediate), string(v1alpha1.StartCUDAProfilerAPI), string(v1alpha1.StartNVTX)))
	case is(c.CaptureOutput, true):
		return refuse("captureOutput", true, "the output of a process stays in the log of its container")
	case c.Output != nil && c.Output.Upload != nil:
		return refuse("output", "upload", "reports are downloaded with kubectl prism profile download")
	}
	return nil
}

// is reports whether an option is set to that value.
func is[T comparable](option *T, value T) bool { return option != nil && *option == value }

// defaults are the cluster's defaults for a claim; none where processes are not profiled.
func (s Source) defaults(rc *resourceapi.ResourceClaim) (configs []*v1alpha1.ProfilerConfig, undecided error) {
	if s.Profiler == nil {
		return nil, nil
	}
	configs, err := s.Profiler.Defaults(rc)
	if err != nil {
		return nil, &Refusal{
			Cause: fmt.Sprintf("a default for profiles with failurePolicy FailClosed cannot be decided now: %v", err), Transient: true, Err: err,
			Fix: "a claim opts out with a ProfilerConfig that has enabled: false",
		}
	}
	return configs, nil
}

// withDefaults lays the cluster's defaults over what the class of a result sets.
func (o Options) withDefaults(defaults []*v1alpha1.ProfilerConfig, r *Result) (Options, error) {
	if r.Admin || r.Device.Type() == gpu.TypeMonitor {
		return o, nil
	}
	var err error
	for _, config := range defaults {
		if o.Profiler, err = v1alpha1.MergeProfiler(o.Profiler, config, v1alpha1.FromDefaults); err != nil {
			return o, r.refuseMendable("correct the chart's value profiler.defaults", "%v", err)
		}
	}
	return o, nil
}

// profile sets how the processes of the claim are profiled: all results that are profiled must agree. undecided is why not every default
// is known that the claim cannot be prepared without.
func (s Source) profile(plan *Plan, rc *resourceapi.ResourceClaim, options []Options, undecided error) error {
	checked := newPatterns()
	if s.Profiler != nil {
		checked.compile = s.Profiler.Compile
	}
	for i := range plan.Results {
		r, config := &plan.Results[i], options[i].Profiler
		switch {
		case config != nil && is(config.Enabled, false):
			continue
		case undecided != nil && !r.Admin && r.Device.Type() != gpu.TypeMonitor:
			return r.refusal(undecided, "")
		case config == nil:
			continue
		}
		effective, err := s.effective(plan, r, config, checked)
		if err == nil && plan.Profile != nil && !equal(plan.Profile, effective) {
			err = r.refuse("give all requests the same ProfilerConfig, or use a claim for each",
				"its ProfilerConfig is not that of the requests before it, and the processes of a claim are profiled alike")
		}
		switch {
		case err == nil:
			plan.Profile, r.Profiled = effective, true
		case options[i].asksProfile || is(config.FailurePolicy, v1alpha1.FailClosed):
			return err
		default:
			s.Profiler.Unprofiled(rc, err)
		}
	}
	return nil
}

// effective is a merged configuration with every default and limit, if the node can profile so.
func (s Source) effective(plan *Plan, r *Result, merged *v1alpha1.ProfilerConfig, checked *patterns) (*v1alpha1.ProfilerConfig, error) {
	switch {
	case s.Profiler == nil:
		return nil, forProfile(r.refuseMendable("set profiler.tools, or take the ProfilerConfig out",
			"ProfilerConfig requires the profiler, which does not run on node %s: the chart's value profiler.tools is empty", s.NodeName), toolNotInstalled)
	case r.Admin:
		return nil, r.refuse("take it out of the ResourceClaim", adminProfiler)
	case !claimUID.MatchString(plan.UID):
		return nil, r.refuse("", "ProfilerConfig: %q is no UID of a claim, after which the directory of its reports is named", plan.UID)
	}
	config, err := v1alpha1.MergeProfiler(merged, nil, v1alpha1.FromClaim) // a copy
	if err != nil {
		return nil, r.refuse("", "%v", err)
	}
	config.ClaimOverride = nil
	if err := s.Profiler.Limit(plan.Namespace, config); err != nil {
		return nil, forProfile(r.refusal(err, "change the ProfilerConfig, or the chart's value profiler.policy"), notAllowed)
	}
	config.Default()
	config.ClaimOverride = nil // it has had its effect
	if err := config.Validate(); err != nil {
		return nil, r.refuse("correct one of them",
			"what the DeviceClass, the cluster's defaults and the ResourceClaim set together is invalid: %v", err)
	}
	if err := checked.check(config); err != nil {
		return nil, r.refuse(fixProfiler, "%v", err)
	}
	_, mig := r.Device.(gpu.MIGDevice)
	if err := s.Profiler.Choose(config, mig || r.MPS != nil); err != nil {
		return nil, forProfile(r.refusal(err, fixProfiler), toolNotInstalled)
	}
	return config, nil
}

// The reasons of condition ProfilerReady for which a claim is refused.
const (
	notAllowed       = "NotAllowed"
	toolNotInstalled = "ToolNotInstalled"
)

// forProfile is the refusal with a reason, unless it has one.
func forProfile(err error, reason string) error {
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok || refusal.Profile != "" {
		return err
	}
	about := *refusal
	about.Profile = reason
	return &about
}

// equal compares what is written: quantities and durations may have the same value in several forms.
func equal(a, b *v1alpha1.ProfilerConfig) bool {
	one, errOne := json.Marshal(a)
	other, errOther := json.Marshal(b)
	return errOne == nil && errOther == nil && bytes.Equal(one, other)
}

// refusal is an error as a refusal of the result; one that is no *Refusal gets that fix.
func (r *Result) refusal(err error, fix string) error {
	cause, ok := errors.AsType[*Refusal](err)
	if !ok {
		return r.refuseMendable(fix, "%v", err)
	}
	about := *cause
	about.Request, about.Device = r.Request, string(r.Device.Name())
	return &about
}
