package claim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Profiler is the profiling tool of a node.
type Profiler interface {
	// The patterns of a claim are compiled by it.
	Patterns
	// Defaults are the cluster's defaults for a claim, later ones over earlier ones. They must not be changed. The error says why a default
	// that must not be left out cannot be decided now: claims that do not opt out are refused.
	Defaults(rc *resourceapi.ResourceClaim) ([]*v1alpha1.ProfilerConfig, error)
	// Limit sets the limits of the cluster's policy that a merged configuration of a claim leaves open, and returns why the policy does not
	// allow it.
	Limit(namespace string, config *v1alpha1.ProfilerConfig) error
	// Counters sets the version of the node's collector in a configuration with every default, and returns why the collector cannot record
	// the counters of GPUs so; a *Refusal may say how to fix it.
	Counters(config *v1alpha1.ProfilerConfig) error
	// Choose sets the version of the tool in a configuration with every default, and returns why none of the node can profile so; a
	// *Refusal may say how to fix it. software: CUDA can be traced in software only, as on a MIG device or with MPS. It is not called if
	// nothing runs in containers.
	Choose(config *v1alpha1.ProfilerConfig, software bool) error
	// Unprofiled reports that the processes of a claim are not profiled, although only the cluster's defaults ask for that.
	Unprofiled(rc *resourceapi.ResourceClaim, cause error)
}

const (
	// adminProfiler is why a claim with admin access is not profiled.
	adminProfiler = "ProfilerConfig is not supported with adminAccess: processes are profiled in the containers of the claim that " +
		"uses the GPU"
	fixProfiler = "correct the ProfilerConfig"
)

// supportedProfiler names the parts of a configuration that no node can do yet.
func supportedProfiler(c *v1alpha1.ProfilerConfig) error {
	refuse := func(field string, value any, supported string) error {
		return fmt.Errorf("%s.%s %v is not supported by this version of the driver; %s", v1alpha1.KindProfilerConfig, field, value, supported)
	}
	const values = "supported values: "
	switch {
	case is(c.Tool, v1alpha1.ToolNsightCompute):
		return refuse("tool", *c.Tool, values+string(v1alpha1.ToolNsightSystems))
	case is(c.Injection, v1alpha1.InjectionNRI):
		return refuse("injection", *c.Injection, fmt.Sprintf("%s%s, %s", values, v1alpha1.InjectionPreload, v1alpha1.InjectionNone))
	case is(c.CaptureOutput, true):
		return refuse("captureOutput", true, "the output of a process stays in the log of its container")
	case c.Output != nil && c.Output.Upload != nil:
		return refuse("output", "upload", "reports are downloaded with kubectl prism profile download")
	}
	return nil
}

// is reports whether an option is set to that value.
func is[T comparable](option *T, value T) bool { return option != nil && *option == value }

// KindProfile is the kind of the extension that profiles processes. Its data of a claim is a *v1alpha1.ProfilerConfig with every default
// filled in, which also applies to the claim's counters. Its data of a result is an empty object: processes of containers that use the
// result are profiled.
const KindProfile = "profile"

// ProfileExtension plans ProfilerConfig.
type ProfileExtension struct {
	// Profiler is the node's profiling tool; nil: there is none.
	Profiler Profiler
	// NodeName is the node's, for errors.
	NodeName string
	// Policy returns why the cluster's policy does not allow the claim's own settings, when the claim is written; nil: nothing is known
	// of a policy. It may change the configuration.
	Policy func(config *v1alpha1.ProfilerConfig) error
}

// ProfileOptions are the merged ProfilerConfig of a result.
type ProfileOptions struct {
	Config *v1alpha1.ProfilerConfig
	// Asked: class or claim ask for a profile, not only the cluster's defaults.
	Asked bool
}

// Kind is KindProfile.
func (ProfileExtension) Kind() string { return KindProfile }

// Reads a ProfilerConfig.
func (ProfileExtension) Reads(config v1alpha1.Config) bool {
	_, ok := config.(*v1alpha1.ProfilerConfig)
	return ok
}

// Supports accepts the options that some node can do. For a monitor device it accepts those of counters, for a perfmon device none.
func (ProfileExtension) Supports(config v1alpha1.Config, device gpu.DeviceType) error {
	c, ok := config.(*v1alpha1.ProfilerConfig)
	if !ok {
		return unsupportedKind(config.Kind())
	}
	counters := device == gpu.TypeMonitor && is(c.Injection, v1alpha1.InjectionNone)
	if !device.UsesGPU() && !counters && !is(c.Enabled, false) {
		return notForAdditional(v1alpha1.KindProfilerConfig, device)
	}
	return supportedProfiler(c)
}

// Merge overlays fields as v1alpha1.MergeProfiler does.
func (ProfileExtension) Merge(merged any, config v1alpha1.Config, from v1alpha1.Source) (any, error) {
	o, _ := merged.(ProfileOptions)
	c, ok := config.(*v1alpha1.ProfilerConfig)
	if !ok {
		return nil, unsupportedKind(config.Kind())
	}
	var err error
	o.Config, err = v1alpha1.MergeProfiler(o.Config, c, from)
	o.Asked = o.Asked || from != v1alpha1.FromDefaults && !is(c.Enabled, false)
	return o, err
}

// Forbidden forbids everything but opting out, and options of counters, which a monitor device is for.
func (ProfileExtension) Forbidden(merged any) error {
	if o, _ := merged.(ProfileOptions); o.Config == nil || is(o.Config.Enabled, false) || is(o.Config.Injection, v1alpha1.InjectionNone) {
		return nil
	}
	return errors.New(adminProfiler)
}

// Check checks the patterns of the configurations of one object, of which it compiles at most maxPatterns.
func (ProfileExtension) Check() func(config v1alpha1.Config) error {
	checked := newPatterns()
	return func(config v1alpha1.Config) error {
		c, _ := config.(*v1alpha1.ProfilerConfig)
		return checkPatterns(c, checked)
	}
}

// checkPatterns names the first pattern of a configuration that processes cannot be matched with.
func checkPatterns(c *v1alpha1.ProfilerConfig, checked *patterns) error {
	if c == nil {
		return nil
	}
	if err := checked.check(c.Match); err != nil {
		return fmt.Errorf("%s.match.%w", v1alpha1.KindProfilerConfig, err)
	}
	return nil
}

// Validate returns why the cluster's policy does not allow the claim's own settings of its profile. The cluster's defaults may change the
// class's settings, so Plan checks those.
func (e ProfileExtension) Validate(merged Options, own func() (Options, error), _ int64) error {
	if config := OptionsOf[ProfileOptions](merged, KindProfile).Config; e.Policy == nil || config == nil || is(config.Enabled, false) {
		return nil
	}
	claimed, err := own()
	config := OptionsOf[ProfileOptions](claimed, KindProfile).Config
	if err != nil || config == nil {
		return nil //nolint:nilerr // merging reports the error
	}
	return e.Policy(config)
}

// Defaults are the cluster's for a claim; none if processes are not profiled.
func (e ProfileExtension) Defaults(rc *resourceapi.ResourceClaim) (overlay func(*Result, any) (any, error), undecided error) {
	if e.Profiler == nil {
		return nil, nil
	}
	configs, err := e.Profiler.Defaults(rc)
	if err != nil {
		return nil, &Refusal{
			Cause: fmt.Sprintf("a default for profiles with failurePolicy FailClosed cannot be decided now: %v", err), Transient: true, Err: err,
			Fix: "a claim opts out with a ProfilerConfig that has enabled: false",
		}
	}
	if len(configs) == 0 {
		return nil, nil
	}
	return func(r *Result, merged any) (any, error) {
		var err error
		for _, config := range configs {
			if merged, err = e.Merge(merged, config, v1alpha1.FromDefaults); err != nil {
				return nil, r.refuseMendable("correct the chart's value profiler.defaults", "%v", err)
			}
		}
		return merged, nil
	}, nil
}

// Plan sets how the processes of the claim are profiled, and how its counters are recorded: all results with a configuration must agree.
// undecided is why not every default is known that the claim cannot be prepared without.
func (e ProfileExtension) Plan(plan *Plan, rc *resourceapi.ResourceClaim, options []Options, undecided error) error {
	checked := newPatterns()
	if e.Profiler != nil {
		checked.compile = e.Profiler.Compile
	}
	var agreed *v1alpha1.ProfilerConfig
	for i := range plan.Results {
		r, o := &plan.Results[i], OptionsOf[ProfileOptions](options[i], KindProfile)
		switch {
		case o.Config != nil && is(o.Config.Enabled, false):
			continue
		case undecided != nil && !r.Admin && r.Device.Type().UsesGPU():
			return r.refusal(undecided, "")
		case o.Config == nil:
			continue
		}
		effective, err := e.effective(plan, r, o.Config, checked)
		if err == nil && agreed != nil && !equal(agreed, effective) {
			err = r.refuse("give all requests the same ProfilerConfig, or use a claim for each",
				"its ProfilerConfig differs from the configuration of the earlier requests, but all processes of a claim are profiled alike")
		}
		switch {
		case err == nil:
			agreed = effective
			extendProfile(plan, r, effective)
		case o.Asked || is(o.Config.FailurePolicy, v1alpha1.FailClosed):
			return err
		default:
			e.Profiler.Unprofiled(rc, err)
		}
	}
	return e.planCounters(plan, options, agreed, checked)
}

// effective is a merged configuration with every default and limit, if the node can profile so.
func (e ProfileExtension) effective(plan *Plan, r *Result, merged *v1alpha1.ProfilerConfig, checked *patterns) (*v1alpha1.ProfilerConfig, error) {
	if err := e.admit(plan, r, merged); err != nil {
		return nil, err
	}
	config, err := v1alpha1.MergeProfiler(merged, nil, v1alpha1.FromClaim) // a copy
	if err != nil {
		return nil, r.refuse("", "%v", err)
	}
	config.ClaimOverride = nil
	if err := e.Profiler.Limit(plan.Namespace, config); err != nil {
		return nil, forProfile(r.refusal(err, "change the ProfilerConfig, or the chart's value profiler.policy"), notAllowed)
	}
	config.Default()
	config.ClaimOverride = nil // it has had its effect
	if err := config.Validate(); err != nil {
		return nil, r.refuse("correct one of them",
			"the combined configuration of DeviceClass, the cluster's defaults and ResourceClaim is invalid: %v", err)
	}
	if err := checkPatterns(config, checked); err != nil {
		return nil, r.refuse(fixProfiler, "%v", err)
	}
	if plan.counters() != nil {
		if err := e.Profiler.Counters(config); err != nil {
			return nil, r.refusal(err, fixProfiler)
		}
	}
	if is(config.Injection, v1alpha1.InjectionNone) {
		return config, nil
	}
	_, mig := r.Device.(gpu.MIGDevice)
	if err := e.Profiler.Choose(config, mig || r.throughServer()); err != nil {
		return nil, forProfile(r.refusal(err, fixProfiler), toolNotInstalled)
	}
	return config, nil
}

// admit refuses a profile that the node or the device does not allow, whatever the settings are.
func (e ProfileExtension) admit(plan *Plan, r *Result, merged *v1alpha1.ProfilerConfig) error {
	none := is(merged.Injection, v1alpha1.InjectionNone)
	_, monitors := r.Device.(gpu.Monitor)
	counters := monitors && none
	subject := v1alpha1.KindProfilerConfig
	if plan.counters() != nil {
		subject = requestsCounters
	}
	switch {
	case e.Profiler == nil:
		return forProfile(r.refuseMendable(fmt.Sprintf("set profiler.tools, or take the %s out", subject),
			"%s requires the profiler, which does not run on node %s: the chart's value profiler.tools is empty", subject, e.NodeName), toolNotInstalled)
	case none && plan.counters() == nil:
		return r.refuse(fixNone, uncountedNone)
	case r.Admin && !counters:
		return r.refuse("take it out of the ResourceClaim", adminProfiler)
	case !claimUID.MatchString(plan.UID):
		return r.refuse("", "ProfilerConfig: %q is no UID of a claim, after which the directory of its reports is named", plan.UID)
	}
	return nil
}

// The reasons of condition ProfilerReady for which a claim is refused.
const (
	notAllowed       = "NotAllowed"
	toolNotInstalled = "ToolNotInstalled"
)

// forProfile is the refusal with a reason, unless it has one.
func forProfile(err error, reason string) error {
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok || refusal.Condition != "" {
		return err
	}
	about := *refusal
	about.Extension, about.Condition = KindProfile, reason
	return &about
}

// equal compares the written configurations: one quantity or duration can be written in several forms.
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
