package check_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	profiles "github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/profile/check"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/rules"
)

const driver = "gpu.prism.dev"

// opaque is a ProfilerConfig for the driver.
func opaque(t *testing.T, config string) resourceapi.DeviceConfiguration {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: ProfilerConfig\n" + config))
	require.NoError(t, err)
	return resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: raw}},
	}
}

// facts returns facts of a pod whose container main runs a command with claim gpu; class and claim contain these configurations.
func facts(t *testing.T, class, claim string, command ...string) *check.Facts {
	t.Helper()
	f := &check.Facts{
		Driver: driver, Rules: &rules.Rules{}, Unreadable: map[string]string{},
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", Labels: map[string]string{"app": "train"}},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "main", Image: "img", Command: command, Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
				}},
				ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("train-gpu")}},
			},
		},
		Claims: map[string]*resourceapi.ResourceClaim{"train-gpu": {
			ObjectMeta: metav1.ObjectMeta{Name: "train-gpu"},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
				{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "c"}},
			}}},
		}},
		Classes: map[string]*resourceapi.DeviceClass{"c": {}},
	}
	if class != "" {
		f.Classes["c"].Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: opaque(t, class)}}
	}
	if claim != "" {
		f.Claims["train-gpu"].Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: opaque(t, claim)}}
	}
	return f
}

// prepare allocates the claim and adds the driver's status of its device.
func prepare(t *testing.T, f *check.Facts, profile string, conditions ...metav1.Condition) {
	t.Helper()
	object := f.Claims["train-gpu"]
	object.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "r", Driver: driver, Pool: "n", Device: "gpu-0"}},
	}}
	status := resourceapi.AllocatedDeviceStatus{Driver: driver, Pool: "n", Device: "gpu-0", Conditions: conditions}
	if profile != "" {
		raw, err := json.Marshal(map[string]any{"uuid": "x", "profile": "1g.10gb", "profiler": json.RawMessage(opaque(t, profile).Opaque.Parameters.Raw)})
		require.NoError(t, err)
		status.Data = &runtime.RawExtension{Raw: raw}
	}
	object.Status.Devices = []resourceapi.AllocatedDeviceStatus{status}
}

func condition(of string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: of, Status: status, Reason: reason, Message: message}
}

var ready = condition("Ready", metav1.ConditionTrue, "Prepared", "")

// TestPod_Situations_OneSentence: the answer, its reason and the remedy.
func TestPod_Situations_OneSentence(t *testing.T) {
	python := []string{"python3", "train.py"}
	const regex = "match: {regex: '^python.*train'}"
	const uninjected = "profiled: no, because the ProfilerConfig of ResourceClaim train-gpu has injection: None, so only the counters of its GPUs are recorded; " +
		"create the claim again with injection: Preload"
	counters := func(f *check.Facts) {
		devices := &f.Claims["train-gpu"].Spec.Devices
		raw := []byte(`{"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "GPUMetricsConfig", "source": "NsightSystems"}`)
		devices.Config = append(devices.Config, resourceapi.DeviceClaimConfiguration{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: raw}},
		}})
	}
	for name, c := range map[string]struct {
		class, claim string
		command      []string
		change       func(f *check.Facts)
		want         string
	}{
		"no claim": {"", "", python, func(f *check.Facts) { f.Pod.Spec.Containers[0].Resources.Claims = nil },
			"profiled: no, because the container uses no claim, and only containers with a claim of driver gpu.prism.dev are profiled; " +
				"name a claim with a ProfilerConfig in resources.claims of the container"},
		"no config": {"", "", python, nil, "profiled: no, because neither ResourceClaim train-gpu nor its DeviceClass nor the defaults of the cluster " +
			"have a ProfilerConfig for it; add a ProfilerConfig to the claim"},
		"no config, defaults not visible": {"", "", python, func(f *check.Facts) { f.Rules = nil }, "profiled: depends, because neither ResourceClaim " +
			"train-gpu nor its DeviceClass has a ProfilerConfig, and the defaults of the cluster are not visible to you; add a ProfilerConfig to the claim"},
		"matches": {"", regex, python, nil, "profiled: yes, because processes that match ^python.*train are profiled, and the command of the container " +
			"qualifies: python3 train.py"},
		"class alone": {"trace: [cuda]", "", python, nil, "profiled: yes, because the first process that is not excluded is profiled, and the command " +
			"of the container qualifies: python3 train.py"},
		"class and claim": {regex, "match: {exclude: [train]}", python, nil, "profiled: depends, because processes that match ^python.*train are " +
			"profiled, and the command of the container does not qualify; only processes that it starts can be profiled: python3 train.py; change match to profile " +
			"the command itself"},
		"opted out": {regex, "enabled: false", python, nil, "profiled: no, because the ProfilerConfig of ResourceClaim train-gpu has enabled: false; " +
			"remove it from the claim, or set enabled: true"},
		"forbidden by class": {"claimOverride: Forbidden", "enabled: false", python, nil, "profiled: no, because the node will refuse the claim: " +
			"ResourceClaim train-gpu: ProfilerConfig: enabled: must not be set by the claim: claimOverride of the DeviceClass is Forbidden; remove it or " +
			"use another class; correct the ProfilerConfig"},
		"other containers": {"", "containers: [side-*]", python, nil, "profiled: no, because containers in the ProfilerConfig of ResourceClaim train-gpu " +
			"lists only: side-*; add main to containers"},
		"containers by glob": {"", "containers: [m*]", python, nil, "profiled: yes, because the first process that is not excluded is profiled, and the " +
			"command of the container qualifies: python3 train.py"},
		"entrypoint unknown": {"", regex, nil, nil, "profiled: depends, because processes that match ^python.*train are profiled, and the pod does not show the entrypoint of " +
			"image img"},
		"shell": {"", regex, []string{"/bin/sh", "/run.sh"}, nil, "profiled: depends, because processes that match ^python.*train are profiled, and sh is " +
			"excluded by default; only processes that it starts can be profiled: /bin/sh /run.sh; change match to profile the command itself"},
		"script": {"", regex, []string{"bash", "-ec", "cd /x && A=1 exec python3 train.py --x"}, nil, "profiled: yes, because processes that match " +
			"^python.*train are profiled, and a command in the script of the container qualifies: python3 train.py --x"},
		"path unknown": {"", "match: {regex: '/python3$', target: Executable}", python, nil, "profiled: depends, because processes that match /python3$ " +
			"are profiled, and the path of python3 in the image is not known"},
		"pattern refused": {"", `match: {regex: '(a)\1'}`, python, nil, ""},
		"not supported": {"", "tool: NsightCompute", python, nil, "profiled: no, because the node will refuse the claim: spec.devices.config[0].opaque." +
			"parameters: request \"r\": ProfilerConfig.tool NsightCompute is not supported by this version of the driver; supported values: NsightSystems; correct " +
			"the configuration"},
		"not valid together": {"start: NVTX\nnvtxRange: a", "start: Immediate", python, nil, ""},
		"policy": {"", "args: [--cuda-memory-usage=true]", python, nil, "profiled: no, because ProfilerConfig.args are not allowed: profiler.policy.args is Deny; change the " +
			"ProfilerConfig, or ask an administrator to change profiler.policy"},
		"no profiler": {"", regex, python, func(f *check.Facts) { f.Rules, f.NoProfiler = nil, true }, "profiled: no, because the chart of Prism is " +
			"installed without profiler.tools; an administrator can set it"},
		"claim unreadable": {"", regex, python, func(f *check.Facts) { f.Claims, f.Unreadable["claim/train-gpu"] = nil, "forbidden" },
			"profiled: depends, because ResourceClaim train-gpu cannot be read: forbidden"},
		"class unreadable": {regex, "", python, func(f *check.Facts) { f.Classes, f.Unreadable["class/c"] = nil, "forbidden" },
			"profiled: depends, because DeviceClass c cannot be read: forbidden; check again when the claim is allocated: its status then contains the " +
				"configuration of the class"},
		"from a template": {"", regex, python, func(f *check.Facts) {
			f.Pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("t")}
		}, "profiled: depends, because the ResourceClaim of claim gpu is not created yet; check again when it exists"},
		"other request": {"", "", python, func(f *check.Facts) {
			f.Claims["train-gpu"].Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{Requests: []string{"other"}, DeviceConfiguration: opaque(t, regex)}}
			f.Pod.Spec.Containers[0].Resources.Claims[0].Request = "r"
		}, "profiled: no, because neither ResourceClaim train-gpu nor its DeviceClass nor the defaults of the cluster have a ProfilerConfig for it; " +
			"add a ProfilerConfig to the claim"},
		"defaults of the cluster": {"", "", python, func(f *check.Facts) {
			parsed, err := rules.Parse([]byte("defaults: [{podSelector: {matchLabels: {app: train}}, config: {}}, {namespaceSelector: {}, config: {duration: 1s}}]"))
			require.NoError(t, err)
			f.Rules, f.NamespaceLabels = parsed, func() (map[string]string, error) { return nil, errors.New("forbidden") }
		}, "profiled: yes, because the first process that is not excluded is profiled, and the command of the container qualifies: python3 train.py"},
		"counters": {"", "injection: None", python, counters, uninjected},
		"counters, prepared": {"", "injection: None", python, func(f *check.Facts) {
			counters(f)
			prepare(t, f, "", ready)
			f.Claims["train-gpu"].Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{
				{Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: opaque(t, "injection: None")},
			}
		}, uninjected},
		"nothing to record": {"", "injection: None", python, nil, ""},
		"other driver": {"", regex, python, func(f *check.Facts) { prepare(t, f, "", ready); f.Driver = "gpu.example.com" },
			"profiled: no, because ResourceClaim train-gpu requests no device of driver gpu.example.com; use a claim of a DeviceClass of that driver"},
		"refused by the node": {"", regex, python, func(f *check.Facts) {
			prepare(t, f, "", condition("Ready", metav1.ConditionFalse, "Failed", "no tool 9.9 (will be retried)"))
		}, "profiled: no, because ResourceClaim train-gpu cannot be prepared: no tool 9.9 (will be retried)"},
		"prepared without": {"", "", python, func(f *check.Facts) { prepare(t, f, "", ready); f.Rules = nil }, "profiled: no, because ResourceClaim " +
			"train-gpu was prepared without a ProfilerConfig; add one to the claim and create the pod again: the profile is fixed when a claim is prepared"},
		"effective config": {"", "enabled: false", python, func(f *check.Facts) { prepare(t, f, regex, ready); f.Rules = nil }, "profiled: yes, because " +
			"processes that match ^python.*train are profiled, and the command of the container qualifies: python3 train.py"},
		"not ready": {"", regex, python, func(f *check.Facts) {
			prepare(t, f, regex, ready, condition("ProfilerReady", metav1.ConditionFalse, report.ReasonToolNotInstalled, "2022.4.2 is not installed."))
		}, "profiled: no, because ProfilerReady is False with reason ToolNotInstalled: 2022.4.2 is not installed; set another toolVersion, or ask an " +
			"administrator for profiler.tools"},
		"recording": {"", regex, nil, func(f *check.Facts) {
			prepare(t, f, regex, ready, condition("ProfilerReady", metav1.ConditionTrue, "Configured", ""),
				condition("Profiling", metav1.ConditionTrue, "Recording", "1 process"))
		}, "profiled: yes, because Profiling is True with reason Recording: 1 process"},
		"nothing matched": {"", regex, python, func(f *check.Facts) {
			prepare(t, f, regex, ready, condition("Profiling", metav1.ConditionFalse, report.ReasonNoProcessMatched, ""))
		}, "profiled: no, because Profiling is False with reason NoProcessMatched; compare match with the command lines of the processes, for example " +
			"with kubectl exec POD -- ps -ef"},
		"report there": {"", regex, nil, func(f *check.Facts) {
			prepare(t, f, regex, ready, condition("Profiling", metav1.ConditionFalse, report.ReasonNoProcessMatched, ""),
				condition("ReportAvailable", metav1.ConditionTrue, "Ready", ""))
		}, "profiled: yes, because ReportAvailable is True with reason Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(t, c.class, c.claim, c.command...)
			if c.change != nil {
				c.change(f)
			}
			got := check.Pod(f).Containers[0].Verdict
			if c.want == "" {
				assert.Equal(t, check.No, got.Profiled)
				assert.Contains(t, got.Because, "the node will refuse the claim: ")
				return
			}
			assert.Equal(t, c.want, got.String())
		})
	}
}

func TestPod_Result_HasClaimsConfigsAndReports(t *testing.T) {
	f := facts(t, "trace: [cuda]", "duration: 2m", "python3")
	f.Rules = nil
	f.Pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
	f.Reports = &profiles.ReportList{Items: []profiles.Report{{Spec: profiles.ReportSpec{Container: "main"}, Status: profiles.ReportStatus{State: "Ready"}}}}
	result := check.Pod(f)
	require.Len(t, result.Containers, 2)
	assert.Equal(t, check.No, result.Containers[0].Profiled)
	main := result.Containers[1]
	require.Len(t, main.Claims, 1)
	assert.Equal(t, "merged from DeviceClass c, ResourceClaim train-gpu", main.Claims[0].From)
	assert.Equal(t, []v1alpha1.Trace{"cuda"}, main.Claims[0].Config.Trace)
	assert.Equal(t, map[string]int{"Ready": 1}, main.Reports)
	var out bytes.Buffer
	require.NoError(t, result.Print(&out))
	assert.Contains(t, out.String(), "Pod team/train\nContainer setup\n  profiled: no, because")
	assert.Contains(t, out.String(), "  reports Ready: 1\n  claim gpu, ResourceClaim train-gpu\n    ProfilerConfig, merged from DeviceClass c, ResourceClaim train-gpu:\n"+
		"      apiVersion: gpu.prism.dev/v1alpha1\n")
	assert.Contains(t, out.String(), "Note: policy and defaults of the cluster are not visible to you; ")
}

func TestPod_ExtendedResource_ItsClaimCounts(t *testing.T) {
	f := facts(t, "", "trace: [cuda]", "python3")
	f.Pod.Spec.Containers[0].Resources.Claims, f.Pod.Spec.ResourceClaims = nil, nil
	f.Pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "train-gpu",
		RequestMappings:   []corev1.ContainerExtendedResourceRequest{{ContainerName: "main", ResourceName: "nvidia.com/gpu", RequestName: "r"}},
	}
	assert.Equal(t, check.Yes, check.Pod(f).Containers[0].Profiled)
	assert.True(t, check.UsesClaim(f.Pod, "main", "train-gpu"))
	assert.False(t, check.UsesClaim(f.Pod, "sidecar", "train-gpu"))
}

// TestUsesClaim_Containers_ByTheirOwnClaims: not every container uses every claim of the pod.
func TestUsesClaim_Containers_ByTheirOwnClaims(t *testing.T) {
	pod := facts(t, "", "trace: [cuda]", "python3").Pod
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Resources: pod.Spec.Containers[0].Resources}}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar"})
	for _, c := range []struct {
		container, claim string
		want             bool
	}{
		{"main", "train-gpu", true},
		{"setup", "train-gpu", true},
		{"sidecar", "train-gpu", false},
		{"main", "other", false},
		{"main", "", false},
		{"", "train-gpu", false},
	} {
		assert.Equal(t, c.want, check.UsesClaim(pod, c.container, c.claim), c)
	}
}

func TestPod_SeveralClaims_OneProfileWins(t *testing.T) {
	f := facts(t, "", "trace: [cuda]", "python3")
	f.Pod.Spec.Containers[0].Resources.Claims = append(f.Pod.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: "other"})
	f.Pod.Spec.ResourceClaims = append(f.Pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "other", ResourceClaimName: new("train-gpu")})
	assert.Contains(t, check.Pod(f).Containers[0].Because, "(2 claims of the container request a profile: one of them applies")
}
