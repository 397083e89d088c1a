package check

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// The conditions of a device.
const (
	conditionReady     = "Ready"
	conditionProfiler  = "ProfilerReady"
	conditionProfiling = "Profiling"
	conditionReport    = "ReportAvailable"
)

// claim returns the verdict of one claim of a container.
func (f *Facts) claim(u use, of *corev1.Container) Claim {
	c := Claim{Name: u.claim, ResourceClaim: u.object, Request: u.request}
	object := f.Claims[u.object]
	switch {
	case u.object == "":
		c.verdict = Verdict{Depends, "the ResourceClaim of claim " + u.claim + " is not created yet", "check again when it exists"}
		return c
	case object == nil:
		why := f.Unreadable["claim/"+u.object]
		c.verdict = Verdict{Depends, fmt.Sprintf("ResourceClaim %s cannot be read: %s", u.object, why), ""}
		return c
	case allocated(object) && !f.hasDevice(object, u.request):
		c.verdict = Verdict{No, fmt.Sprintf("ResourceClaim %s requests no device of driver %s", u.object, f.Driver),
			"use a claim of a DeviceClass of that driver"}
		return c
	}
	status := f.status(object, u.request)
	c.Conditions = status.conditions
	config, refusal := status.profile, (*Verdict)(nil)
	c.From = "effective, from the status of the claim"
	if config == nil {
		config, c.From, refusal = f.merged(object, u.request)
	}
	if config != nil {
		config.Default()
		config.ClaimOverride = nil
	}
	c.Config = config
	switch {
	case status.failed != "":
		c.verdict = Verdict{No, fmt.Sprintf("ResourceClaim %s cannot be prepared: %s", u.object, status.failed), ""}
	case refusal != nil:
		c.verdict = *refusal
	case status.profile == nil && f.NoProfiler:
		c.verdict = Verdict{No, "the chart of Prism is installed without profiler.tools", "an administrator can set it"}
	case status.prepared && status.profile == nil && !status.ready():
		c.verdict = f.unprofiled(u.object, config)
	default:
		c.verdict = f.configured(u, of, config, status.conditions)
	}
	return c
}

// configured returns the verdict for a container whose claim is or will be configured like this; nil: no known configuration.
func (f *Facts) configured(u use, of *corev1.Container, config *v1alpha1.ProfilerConfig, conditions []metav1.Condition) Verdict {
	switch {
	case config == nil && f.Rules == nil:
		return Verdict{Depends, fmt.Sprintf("neither ResourceClaim %s nor its DeviceClass has a ProfilerConfig, and the defaults of the cluster are "+
			"not visible to you", u.object), "add a ProfilerConfig to the claim"}
	case config == nil:
		return Verdict{No, fmt.Sprintf("neither ResourceClaim %s nor its DeviceClass nor the defaults of the cluster have a ProfilerConfig for it",
			u.object), "add a ProfilerConfig to the claim"}
	case !*config.Enabled:
		return Verdict{No, fmt.Sprintf("the ProfilerConfig of ResourceClaim %s has enabled: false", u.object),
			"remove it from the claim, or set enabled: true"}
	case *config.Injection == v1alpha1.InjectionNone:
		return uninjected(u.object)
	case !selects(config.Containers, of.Name):
		return Verdict{No, fmt.Sprintf("containers in the ProfilerConfig of ResourceClaim %s lists only: %s", u.object, strings.Join(config.Containers, ", ")),
			"add " + of.Name + " to containers"}
	}
	if v := byConditions(conditions); v != nil {
		return *v
	}
	return matches(config.Match, of)
}

// selects reports whether globs match a name; without globs every name matches.
func selects(globs []string, name string) bool {
	return globs == nil || slices.ContainsFunc(globs, func(glob string) bool {
		ok, err := path.Match(glob, name)
		return ok && err == nil
	})
}

// unprofiled explains why a claim was prepared without a profile.
func (f *Facts) unprofiled(object string, config *v1alpha1.ProfilerConfig) Verdict {
	switch {
	case config == nil:
		return Verdict{No, fmt.Sprintf("ResourceClaim %s was prepared without a ProfilerConfig", object),
			"add one to the claim and create the pod again: the profile is fixed when a claim is prepared"}
	case !*config.Enabled:
		return Verdict{No, fmt.Sprintf("the ProfilerConfig of ResourceClaim %s has enabled: false", object), "create the claim again without it"}
	case *config.Injection == v1alpha1.InjectionNone:
		return uninjected(object)
	}
	return Verdict{No, fmt.Sprintf("ResourceClaim %s was prepared without its profile, which only the defaults of the cluster request", object),
		"the log of prism-kubelet-plugin on the node says why"}
}

// uninjected explains why a claim that records only counters is not profiled.
func uninjected(object string) Verdict {
	return Verdict{No, fmt.Sprintf("the ProfilerConfig of ResourceClaim %s has injection: None, so only the counters of its GPUs are recorded", object),
		"create the claim again with injection: Preload"}
}

func allocated(object *resourceapi.ResourceClaim) bool { return object.Status.Allocation != nil }

// hasDevice reports whether a device of the driver is allocated to the claim, or to that request of it.
func (f *Facts) hasDevice(object *resourceapi.ResourceClaim, request string) bool {
	return slices.ContainsFunc(object.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Driver == f.Driver && isRequest(r.Request, request)
	})
}

// isRequest reports whether a result is for a request, or for one of its alternatives.
func isRequest(of, request string) bool {
	return request == "" || of == request || strings.HasPrefix(of, request+"/")
}

// deviceStatus is the driver's status of a claim's devices.
type deviceStatus struct {
	// prepared is set if there is a status; failed is the reason of a failed preparation.
	prepared   bool
	failed     string
	profile    *v1alpha1.ProfilerConfig
	conditions []metav1.Condition
}

// ready reports whether the driver profiles processes; the status omits long configurations.
func (s deviceStatus) ready() bool {
	return meta.FindStatusCondition(s.conditions, conditionProfiler) != nil
}

// status reads the status of the devices of a request.
func (f *Facts) status(object *resourceapi.ResourceClaim, request string) (s deviceStatus) {
	if object.Status.Allocation == nil {
		return s
	}
	wanted := map[string]bool{}
	for _, r := range object.Status.Allocation.Devices.Results {
		if r.Driver == f.Driver && isRequest(r.Request, request) {
			wanted[r.Pool+"/"+r.Device] = true
		}
	}
	for i := range object.Status.Devices {
		device := &object.Status.Devices[i]
		if device.Driver != f.Driver || !wanted[device.Pool+"/"+device.Device] {
			continue
		}
		if ready := meta.FindStatusCondition(device.Conditions, conditionReady); ready != nil {
			s.prepared = s.prepared || ready.Status == metav1.ConditionTrue
			if ready.Status == metav1.ConditionFalse && s.failed == "" {
				s.failed = ready.Message
			}
		}
		if s.profile == nil {
			s.profile = profileOf(device)
		}
		s.collect(device)
	}
	return s
}

// collect adds the conditions of a device that are about profiles.
func (s *deviceStatus) collect(device *resourceapi.AllocatedDeviceStatus) {
	for _, name := range []string{conditionProfiler, conditionProfiling, conditionReport} {
		condition := meta.FindStatusCondition(device.Conditions, name)
		if condition != nil && meta.FindStatusCondition(s.conditions, name) == nil {
			s.conditions = append(s.conditions, *condition)
		}
	}
}

// profileOf returns the effective configuration in the data of a device, or nil if it is missing or unreadable.
func profileOf(device *resourceapi.AllocatedDeviceStatus) *v1alpha1.ProfilerConfig {
	var data struct {
		Profiler *v1alpha1.ProfilerConfig `json:"profiler"`
	}
	if device.Data == nil || json.Unmarshal(device.Data.Raw, &data) != nil {
		return nil
	}
	return data.Profiler
}
