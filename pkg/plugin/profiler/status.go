package profiler

import (
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/conditions"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
)

var _ driver.Refusing = (*Extension)(nil)

// conditionReady reports whether the processes of a claim can be profiled.
const conditionReady = "ProfilerReady"

// conditionTypes are the types of conditions about profiles.
var conditionTypes = []string{conditionReady, "Profiling", "ReportAvailable"}

// maxProfileData limits the profile in the data of a device: the API server stores 10 KiB, including other data.
const maxProfileData = 8 << 10

// Keys in the data of a device besides its identity, in which "profile" is the profile of a MIG device.
const profilerKey, libraryKey = "profiler", "profilerLibrary"

// StatusData returns how processes are profiled: the effective ProfilerConfig, omitted if it is too long, and the digest of the library
// that is loaded into them.
func (p *Extension) StatusData(_ *gpu.Node, r *checkpoint.Record, _ *checkpoint.Result) map[string]any {
	data := effective(r)
	if digest := p.hook.Library(r.Claim.UID); data != nil && digest != "" {
		data[libraryKey] = digest
	}
	return data
}

// effective returns the ProfilerConfig of a record for the data of a device; nil if it is too long.
func effective(r *checkpoint.Record) map[string]any {
	profile := r.Extensions[claim.KindProfile]
	if len(profile) > maxProfileData {
		return nil
	}
	return map[string]any{profilerKey: profile}
}

// StatusConditions returns the conditions of a record's profile.
func (p *Extension) StatusConditions(r *checkpoint.Record) []kube.Condition {
	return p.conditions(r)
}

// ConditionTypes returns the types of conditions about profiles.
func (*Extension) ConditionTypes() []string { return conditionTypes }

// ConditionTypes returns the types of conditions about profiles, which an earlier process may have set.
func (*Off) ConditionTypes() []string { return conditionTypes }

// RefusedCondition returns ProfilerReady.
func (*Extension) RefusedCondition() string { return conditionReady }

// RefusedCondition returns ProfilerReady.
func (*Off) RefusedCondition() string { return conditionReady }

// StatusData returns how processes would have been profiled.
func (*Off) StatusData(_ *gpu.Node, r *checkpoint.Record, _ *checkpoint.Result) map[string]any {
	return effective(r)
}

// StatusConditions returns none.
func (*Off) StatusConditions(*checkpoint.Record) []kube.Condition { return nil }

// conditions returns the conditions of a record's profiled devices.
func (p *Extension) conditions(r *checkpoint.Record) (all []kube.Condition) {
	if !plan.Profiled(r) {
		return nil
	}
	config, err := p.decoded.configs.Of(r)
	if err != nil {
		p.logger.Error(err, "Reading the profile of a claim for its conditions failed", "claim", klog.KRef(r.Claim.Namespace, r.Claim.Name))
		return nil
	}
	reports, stopped := p.store.Of(r.Claim.UID)
	missing := p.withoutTool(r.Claim.UID)
	state := conditions.State{Claim: r.Claim.Name, Config: config, Reports: reports, Stopped: stopped, ToolMissing: missing}
	for _, c := range conditions.Of(state) {
		all = append(all, kube.Condition{Type: c.Type, True: c.True, Reason: c.Reason, Message: c.Message})
	}
	return all
}
