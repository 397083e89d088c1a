package claim

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	perfmonB   = "gpu-bbbbbbbb-perfmon"
	noCounters = "ProfilerConfig.injection None records nothing without a GPUMetricsConfig with source NsightSystems"
	bySource   = "GPUMetricsConfig.source NsightSystems"
	addPerfmon = "add a request of class perfmon." + driverName + " for each GPU, and a constraint with matchAttribute: " + driverName + "/parentUUID for both"
	day        = int64(24 * 60 * 60)
)

var (
	nsight   = forMetrics(`"source":"NsightSystems"`)
	counterA = gpu.CounterGPU{UUID: uuidA, PCIAddress: "0000:3b:00.0"}
	counterB = gpu.CounterGPU{UUID: uuidB, PCIAddress: "0000:af:00.0"}
)

// counting is a node with a profiler whose GPUs have PCI addresses.
func counting(p *fakeProfiler) Source {
	n := node()
	n.GPUs[0].PCI.BusID, n.GPUs[1].PCI.BusID = counterA.PCIAddress, counterB.PCIAddress
	s := source(n)
	s.Extensions = extended(false, p)
	return s
}

// counted is a claim with these results and configurations.
func counted(r []resourceapi.DeviceRequestAllocationResult, configs ...resourceapi.DeviceAllocationConfiguration) *resourceapi.ResourceClaim {
	rc := allocated(r, configs...)
	rc.UID = aUID
	return rc
}

// ofClaim is a configuration of the claim; requests none means all.
func ofClaim(raw string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return config(fromClaim, driverName, raw, requests...)
}

func oneGPU() []resourceapi.DeviceRequestAllocationResult {
	return results(result("gpu", "gpu-aaaaaaaa"), reserves("counters", perfmonA))
}

func twoGPUs() []resourceapi.DeviceRequestAllocationResult {
	return results(result("b", "gpu-bbbbbbbb"), result("a", "gpu-aaaaaaaa"), reserves("counters-a", perfmonA), reserves("counters-b", perfmonB))
}

func wholeNode() []resourceapi.DeviceRequestAllocationResult {
	return results(monitors("see"), reserves("counters", perfmonB), reserves("counters", perfmonA))
}

// extendedResults lists the requests of the results with data of that kind.
func extendedResults(p *Plan, kind string) (requests []string) {
	for i := range p.Results {
		if p.Results[i].Extensions[kind] == struct{}{} {
			requests = append(requests, p.Results[i].Request)
		}
	}
	return requests
}

func TestResolve_Counters_Planned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rc   *resourceapi.ResourceClaim
		want gpu.CounterOptions
		// of are the requests whose counters are recorded, with those whose metrics are exported.
		of, with []string
	}{
		"one GPU": {
			counted(oneGPU(), ofClaim(nsight)),
			gpu.CounterOptions{GPUs: []gpu.CounterGPU{counterA}, FrequencyHz: 10000}, []string{"counters"}, []string{"gpu"},
		},
		"options of class and claim": {
			counted(oneGPU(), config(fromClass, driverName, forMetrics(`"source":"NsightSystems","metricSet":"ga100"`), "gpu"), ofClaim(forMetrics(`"frequencyHz":20000`))),
			gpu.CounterOptions{GPUs: []gpu.CounterGPU{counterA}, FrequencyHz: 20000, MetricSet: "ga100"}, []string{"counters"}, []string{"gpu"},
		},
		"two GPUs, in the claim's order": {
			counted(twoGPUs(), ofClaim(nsight)),
			gpu.CounterOptions{GPUs: []gpu.CounterGPU{counterB, counterA}, FrequencyHz: 10000}, []string{"counters-a", "counters-b"}, []string{"b", "a"},
		},
		"one of two GPUs": {
			counted(twoGPUs(), ofClaim(nsight, "a")),
			gpu.CounterOptions{GPUs: []gpu.CounterGPU{counterA}, FrequencyHz: 10000}, []string{"counters-a"}, []string{"a"},
		},
		"all GPUs of the node that answer": {
			counted(wholeNode(), ofClaim(forMetrics(`"source":"NsightSystems","frequencyHz":10,"metricSet":"ad10x"`))),
			gpu.CounterOptions{GPUs: []gpu.CounterGPU{counterA, counterB}, FrequencyHz: 10, MetricSet: "ad10x"}, []string{"counters", "counters"}, nil,
		},
		"a GPU and all of its node": {
			counted(append(wholeNode(), result("gpu", "gpu-bbbbbbbb")), ofClaim(nsight)),
			gpu.CounterOptions{GPUs: []gpu.CounterGPU{counterA, counterB}, FrequencyHz: 10000}, []string{"counters", "counters"}, []string{"gpu"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &fakeProfiler{}
			plan, err := counting(p).Resolve(c.rc)
			require.NoError(t, err)
			c.want.Seconds = day
			assert.Equal(t, &c.want, plan.counters())
			assert.Equal(t, c.of, extendedResults(plan, KindCounters))
			var with []string
			for i := range plan.Results {
				if m := metricsIn(&plan.Results[i]); m != nil {
					with = append(with, plan.Results[i].Request)
					assert.Empty(t, m.Source, "the exporter keeps its own source")
				}
			}
			assert.Equal(t, c.with, with)
			assert.Empty(t, extendedResults(plan, KindProfile), "nothing runs in the containers")
			assert.Empty(t, p.chosen)
			assert.Empty(t, plan.Steps, "counters need no step")
		})
	}
	plan, err := counting(&fakeProfiler{}).Resolve(counted(oneGPU(), ofClaim(forMetrics(`"source":"GPM"`))))
	require.NoError(t, err)
	assert.Nil(t, plan.counters(), "another source")
	assert.Empty(t, extendedResults(plan, KindCounters))
}

// TestResolve_Counters_RecordedAsJSON: the record of a claim has this form.
func TestResolve_Counters_RecordedAsJSON(t *testing.T) {
	t.Parallel()
	plan, err := counting(&fakeProfiler{}).Resolve(counted(oneGPU(), ofClaim(forMetrics(`"source":"NsightSystems","metricSet":"ga100"`))))
	require.NoError(t, err)
	raw, err := json.Marshal(plan.Extensions[KindCounters])
	require.NoError(t, err)
	assert.JSONEq(t, `{"gpus":[{"uuid":"`+string(uuidA)+`","pciAddress":"0000:3b:00.0"}],"frequencyHz":10000,"metricSet":"ga100","seconds":86400}`, string(raw))
}

// TestResolve_CountersWithProfilerConfig_Followed: the claim's ProfilerConfig decides how long counters are recorded, and whether processes
// are recorded too.
func TestResolve_CountersWithProfilerConfig_Followed(t *testing.T) {
	t.Parallel()
	broken := errors.New("not installed")
	for name, c := range map[string]struct {
		profiler *fakeProfiler
		results  []resourceapi.DeviceRequestAllocationResult
		// config is the claim's; want are the fields of the effective configuration besides the defaults.
		config, want string
		seconds      int64
		profiled     []string
		unprofiled   int
	}{
		"none":                    {nil, oneGPU(), "", `"injection":"None"`, day, nil, 0},
		"None":                    {nil, oneGPU(), forProfiler(`"injection":"None","start":"Manual"`), `"injection":"None","start":"Manual"`, day, nil, 0},
		"None, duration":          {nil, oneGPU(), forProfiler(`"injection":"None","duration":"1500ms"`), `"injection":"None","duration":"1500ms"`, 2, nil, 0},
		"None, short":             {nil, oneGPU(), forProfiler(`"injection":"None","duration":"1ms"`), `"injection":"None","duration":"1ms"`, 1, nil, 0},
		"None, whole node":        {nil, wholeNode(), forProfiler(`"injection":"None","duration":"5s"`), `"injection":"None","duration":"5s"`, 5, nil, 0},
		"None of one of two GPUs": {nil, twoGPUs(), "a" + forProfiler(`"injection":"None","duration":"5s"`), `"injection":"None","duration":"5s"`, 5, nil, 0},
		"policy":                  {&fakeProfiler{maxDuration: &metav1.Duration{Duration: time.Hour}}, oneGPU(), "", `"injection":"None","duration":"1h"`, 3600, nil, 0},
		"Preload":                 {nil, oneGPU(), forProfiler(`"duration":"2s"`), `"duration":"2s"`, 2, []string{"gpu"}, 0},
		"opted out":               {nil, oneGPU(), forProfiler(`"enabled":false,"duration":"2s"`), `"injection":"None"`, day, nil, 0},
		"defaults": {
			&fakeProfiler{defaults: []*v1alpha1.ProfilerConfig{profiled(t, `"start":"Manual"`)}}, oneGPU(), "", `"start":"Manual"`, day, []string{"gpu"}, 0,
		},
		"defaults, None": {
			&fakeProfiler{defaults: []*v1alpha1.ProfilerConfig{profiled(t, `"duration":"3s"`)}}, oneGPU(), forProfiler(`"injection":"None"`),
			`"injection":"None","duration":"3s"`, 3, nil, 0,
		},
		"defaults that the node cannot follow": {
			&fakeProfiler{defaults: []*v1alpha1.ProfilerConfig{profiled(t, `"duration":"3s"`)}, lacking: broken}, oneGPU(), "", `"injection":"None"`, day, nil, 1,
		},
		"defaults are not for the whole node": {
			&fakeProfiler{defaults: []*v1alpha1.ProfilerConfig{profiled(t, `"duration":"3s"`)}}, wholeNode(), "", `"injection":"None"`, day, nil, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := c.profiler
			if p == nil {
				p = &fakeProfiler{}
			}
			rc := counted(c.results, ofClaim(nsight))
			switch {
			case c.config != "" && c.config[0] == 'a':
				rc.Status.Allocation.Devices.Config = append(rc.Status.Allocation.Devices.Config, ofClaim(c.config[1:], "a"))
			case c.config != "":
				rc.Status.Allocation.Devices.Config = append(rc.Status.Allocation.Devices.Config, ofClaim(c.config))
			}
			plan, err := counting(p).Resolve(rc)
			require.NoError(t, err)
			want := profiled(t, c.want)
			want.ToolVersion = new(collectorVersion)
			want.Default()
			want.ClaimOverride = nil
			assert.True(t, equal(want, profileIn(plan)), "%v", profileIn(plan))
			assert.Equal(t, c.seconds, plan.counters().Seconds)
			assert.Equal(t, c.profiled, extendedResults(plan, KindProfile))
			assert.Len(t, p.unprofiled, c.unprofiled)
			assert.NotEmpty(t, p.counted)
			for _, chosen := range p.chosen {
				assert.Equal(t, collectorVersion, chosen, "processes are recorded with the version of the collector")
			}
			assert.Len(t, p.chosen, len(c.profiled)+c.unprofiled)
		})
	}
}

func TestResolve_Counters_Refused(t *testing.T) {
	t.Parallel()
	const ofGPU, out = `request "gpu", device gpu-aaaaaaaa: `, "; take it out of the ResourceClaim (not retryable)"
	const ofGPUa = `request "a", device gpu-aaaaaaaa: `
	const needs = bySource + " requires the perfmon device of GPU "
	const combined = "the combined configuration of DeviceClass, the cluster's defaults and ResourceClaim is invalid: ProfilerConfig: "
	off := &Refusal{Cause: "no collector", Fix: "set the chart's value profiler.collector.enabled", Mendable: true, Extension: KindCounters, Condition: "CollectorOff"}
	for name, c := range map[string]struct {
		profiler *fakeProfiler
		rc       *resourceapi.ResourceClaim
		want     string
	}{
		"no perfmon": {
			rc:   counted(results(result("gpu", "gpu-aaaaaaaa")), ofClaim(nsight)),
			want: ofGPU + needs + string(uuidA) + " in the same claim; " + addPerfmon + " (not retryable)",
		},
		"perfmon of another GPU": {
			rc:   counted(results(result("gpu", "gpu-aaaaaaaa"), reserves("counters", perfmonB)), ofClaim(nsight)),
			want: ofGPU + needs + string(uuidA) + " in the same claim; " + addPerfmon + " (not retryable)",
		},
		"one perfmon of two GPUs": {
			rc:   counted(results(result("gpu", "gpu-aaaaaaaa"), result("other", "gpu-bbbbbbbb"), reserves("counters", perfmonA)), ofClaim(nsight)),
			want: `request "other", device gpu-bbbbbbbb: ` + needs + string(uuidB) + " in the same claim; " + addPerfmon + " (not retryable)",
		},
		"one perfmon of the node": {
			rc:   counted(results(monitors("see"), reserves("counters", perfmonA)), ofClaim(nsight)),
			want: `request "see", device monitor: ` + needs + string(uuidB) + " in the same claim; add a request of class perfmon." + driverName + " with allocationMode: All (not retryable)",
		},
		"admin access": {
			rc:   counted(results(result("gpu", "gpu-aaaaaaaa", withAdmin), reserves("counters", perfmonA)), ofClaim(nsight)),
			want: ofGPU + adminMetrics + out,
		},
		"monitor with other options": {
			rc: counted(wholeNode(), ofClaim(forMetrics(`"source":"NsightSystems","labels":{"team":"a"}`))),
			want: `request "see", device monitor: ` + bySource + " for a monitor device supports only frequencyHz and metricSet: a monitor device has no metrics of its own" +
				out,
		},
		"monitor with Preload": {
			rc:   counted(wholeNode(), ofClaim(nsight), ofClaim(forProfiler(""))),
			want: `request "see", device monitor: ProfilerConfig is not supported for a monitor device, which only shows GPUs that other claims use` + out,
		},
		"for the perfmon": {rc: counted(oneGPU(), ofClaim(nsight, "counters")), want: `request "counters", device ` + perfmonA + ": GPUMetricsConfig" + ofPerfmon + out},
		"differing frequencies": {
			rc: counted(twoGPUs(), ofClaim(nsight, "b"), ofClaim(forMetrics(`"source":"NsightSystems","frequencyHz":100`), "a")),
			want: ofGPUa + `its frequencyHz or metricSet differs from the configuration of the earlier requests, but the counters of ` +
				`a claim are recorded together; give all requests the same GPUMetricsConfig, or use a claim for each (not retryable)`,
		},
		"differing sets": {
			rc: counted(twoGPUs(), ofClaim(nsight, "b"), ofClaim(forMetrics(`"source":"NsightSystems","metricSet":"ga100"`), "a")),
			want: ofGPUa + `its frequencyHz or metricSet differs from the configuration of the earlier requests, but the counters of ` +
				`a claim are recorded together; give all requests the same GPUMetricsConfig, or use a claim for each (not retryable)`,
		},
		"file as a set": {
			rc: counted(oneGPU(), ofClaim(forMetrics(`"source":"NsightSystems","metricSet":"file:/tmp/a.config"`), "gpu")),
			want: `request "gpu": opaque configuration of the ResourceClaim: GPUMetricsConfig: metricSet: must be 1 to 64 lower-case letters, digits, - and _, for ` +
				`example ga100, got "file:/tmp/a.config"; correct it and recreate the claim (not retryable)`,
		},
		"no collector": {
			profiler: &fakeProfiler{uncounted: off}, rc: counted(oneGPU(), ofClaim(nsight)),
			want: ofGPU + "no collector; set the chart's value profiler.collector.enabled (will be retried)",
		},
		"no collector, for the second GPU": {
			profiler: &fakeProfiler{uncounted: off}, rc: counted(twoGPUs(), ofClaim(nsight, "a")),
			want: ofGPUa + "no collector; set the chart's value profiler.collector.enabled (will be retried)",
		},
		"no collector, only defaults for processes": {
			profiler: &fakeProfiler{uncounted: off, defaults: []*v1alpha1.ProfilerConfig{profiled(t, "")}}, rc: counted(oneGPU(), ofClaim(nsight)),
			want: ofGPU + "no collector; set the chart's value profiler.collector.enabled (will be retried)",
		},
		"policy": {
			profiler: &fakeProfiler{denied: errors.New("not in this namespace")}, rc: counted(oneGPU(), ofClaim(nsight)),
			want: ofGPU + "not in this namespace; change the ProfilerConfig, or the chart's value profiler.policy (will be retried)",
		},
		"start of a class that a container would make": {
			rc:   counted(oneGPU(), config(fromClass, driverName, forProfiler(`"start":"CUDAProfilerAPI"`), "gpu"), ofClaim(nsight), ofClaim(forProfiler(`"injection":"None"`))),
			want: ofGPU + combined + "start: must be Immediate or Manual with injection None, got CUDAProfilerAPI; correct one of them (not retryable)",
		},
		"output in a container": {
			rc: counted(oneGPU(), config(fromClass, driverName, forProfiler(`"output":{"type":"ContainerPath","path":"/a"}`), "gpu"), ofClaim(nsight),
				ofClaim(forProfiler(`"injection":"None"`))),
			want: ofGPU + combined + "output.type: must be Node with injection None, got ContainerPath; correct one of them (not retryable)",
		},
		"None and Preload": {
			rc: counted(twoGPUs(), ofClaim(nsight), ofClaim(forProfiler(`"injection":"None"`), "b"), ofClaim(forProfiler(""), "a")),
			want: ofGPUa + `its ProfilerConfig differs from the configuration of the earlier requests, but all processes of a claim ` +
				`are profiled alike; give all requests the same ProfilerConfig, or use a claim for each (not retryable)`,
		},
		"None for a monitor without counters": {
			rc:   counted(wholeNode(), ofClaim(forProfiler(`"injection":"None"`))),
			want: `request "see", device monitor: ` + noCounters + "; set source: NsightSystems, or injection: Preload (not retryable)",
		},
		"None with admin access to a GPU": {
			rc:   counted(append(oneGPU(), result("debug", "gpu-bbbbbbbb", withAdmin)), ofClaim(nsight, "gpu"), ofClaim(forProfiler(`"injection":"None"`))),
			want: `request "debug", device gpu-bbbbbbbb: ` + adminProfiler + out,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := c.profiler
			if p == nil {
				p = &fakeProfiler{}
			}
			requireRefused(t, counting(p), c.rc, c.want)
			if p.uncounted != nil {
				assert.Empty(t, p.chosen, "the collector is asked first")
			}
		})
	}
	_, err := counting(&fakeProfiler{uncounted: off}).Resolve(counted(oneGPU(), ofClaim(nsight)))
	refusal, _ := errors.AsType[*Refusal](err)
	assert.Equal(t, []string{KindCounters, "CollectorOff"}, []string{refusal.Extension, refusal.Condition})
}

// TestResolve_CountersOfSharedDevice_Refused: other claims may use the GPU at any time.
func TestResolve_CountersOfSharedDevice_Refused(t *testing.T) {
	t.Parallel()
	n, layout := timeSliced()
	const shared = ", because other claims may use the GPU; it is supported for whole GPUs, and for a monitor device with adminAccess"
	for kind, r := range map[string]resourceapi.DeviceRequestAllocationResult{"mig": inA("r", migA+"19-6"), "timeslice": aShare("r", poolA, timeSliceA, "1")} {
		for source, out := range map[resourceapi.AllocationConfigSource]string{fromClaim: "ResourceClaim", fromClass: "DeviceClass"} {
			s := advertising(n, layout)
			s.Extensions = extended(false, &fakeProfiler{})
			requireRefused(t, s, counted(results(r, reserves("counters", perfmonA)), config(source, driverName, nsight)), `request "r", device `+r.Device+": "+bySource+
				` is not supported for a device of type "`+kind+`"`+shared+"; take it out of the "+out+" (not retryable)")
		}
	}
	share := result("r", "gpu-aaaaaaaa")
	share.ShareID = new(types.UID("share-1"))
	requireRefused(t, counting(&fakeProfiler{}), counted(results(share, reserves("counters", perfmonA)), ofClaim(nsight)),
		`request "r", device gpu-aaaaaaaa: `+bySource+" is not supported for a share of a GPU"+shared+"; request a whole GPU (not retryable)")
}

// TestResolve_CountersWithoutProfiler_Refused: the collector is of a version of the profiler.
func TestResolve_CountersWithoutProfiler_Refused(t *testing.T) {
	t.Parallel()
	requireRefused(t, source(node()), counted(oneGPU(), ofClaim(nsight)), `request "gpu", device gpu-aaaaaaaa: `+bySource+" requires the profiler, which does not run "+
		"on node n0: the chart's value profiler.tools is empty; set profiler.tools, or take the "+bySource+" out (will be retried)")
	_, err := counting(&fakeProfiler{}).Resolve(allocated(oneGPU(), ofClaim(nsight)))
	require.ErrorContains(t, err, `"uid-1" is no UID of a claim`)
}

// TestResolve_DefaultsArmOnDemand_ClaimThatAsksForNothingArmed: processes of claims that request no profile can be profiled later.
func TestResolve_DefaultsArmOnDemand_ClaimThatAsksForNothingArmed(t *testing.T) {
	t.Parallel()
	p := &fakeProfiler{defaults: []*v1alpha1.ProfilerConfig{profiled(t, `"arm":"OnDemand"`)}}
	plan, err := profiling(p).Resolve(counted(results(result("gpu", "gpu-aaaaaaaa"))))
	require.NoError(t, err)
	require.NotNil(t, profileIn(plan))
	assert.Equal(t, v1alpha1.ArmOnDemand, *profileIn(plan).Arm)
	assert.True(t, isProfiled(&plan.Results[0]))
}
