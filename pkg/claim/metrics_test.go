package claim

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	aUID         = "6f0c1d2e-0000-4000-8000-00000000000a"
	metricsStart = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUMetricsConfig"`
	allBefore    = "Basic, Utilization, Memory, Power, Clocks, PCIe, NVLink, ECC, Throttle, Processes"
	onMIGBefore  = "Basic, Memory, Power, Clocks, PCIe, NVLink, ECC, Throttle, Processes"
)

// forMetrics is a GPUMetricsConfig with these fields.
func forMetrics(fields string) string {
	if fields == "" {
		return metricsStart + "}"
	}
	return metricsStart + "," + fields + "}"
}

// TestMetricsSets_API_Same: the API, which imports no package of Prism, lists the same sets in the same order.
func TestMetricsSets_API_Same(t *testing.T) {
	t.Parallel()
	assert.ErrorContains(t, (&v1alpha1.GPUMetricsConfig{Sets: []v1alpha1.MetricsSet{""}}).Validate(), "supported values: "+strings.Join(gpu.MetricsSets, ", "))
	var sets []v1alpha1.MetricsSet
	for _, set := range gpu.MetricsSets {
		sets = append(sets, v1alpha1.MetricsSet(set))
	}
	assert.NoError(t, (&v1alpha1.GPUMetricsConfig{Sets: sets}).Validate())
}

// ofCapability is the node with GPU A of that compute capability.
func ofCapability(capability, architecture string) *gpu.Node {
	n := node()
	n.GPUs[0].Product.ComputeCapability, n.GPUs[0].Product.Architecture = capability, architecture
	return n
}

// asking is a claim for GPU A with these configurations of class and claim.
func asking(class, claim string) *resourceapi.ResourceClaim {
	rc := allocated(results(result("gpu", "gpu-aaaaaaaa")), config(fromClass, driverName, class), config(fromClaim, driverName, claim))
	rc.UID = aUID
	return rc
}

func TestResolve_Metrics_MergedByField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		class, claim string
		want         gpu.MetricsOptions
	}{
		"nothing set": {"", "", gpu.MetricsOptions{}},
		"class alone": {`"sets":["Memory"],"interval":"5s","perProcess":true`, "",
			gpu.MetricsOptions{Sets: []string{"Memory"}, Interval: 5e9, PerProcess: true}},
		"claim over class": {`"sets":["Memory"],"interval":"5s","perProcess":true,"source":"GPM","exposeInContainer":true`,
			`"sets":["Power","Clocks"],"interval":"2s","perProcess":false,"source":"NVML"`,
			gpu.MetricsOptions{Source: "NVML", Sets: []string{"Power", "Clocks"}, Interval: 2e9, ExposeInContainer: true}},
		"labels by name": {`"labels":{"team":"a","stage":"test"}`, `"labels":{"team":"b"}`,
			gpu.MetricsOptions{Labels: map[string]string{"team": "b", "stage": "test"}}},
		"set without effect": {"", `"exposeInContainer":false`, gpu.MetricsOptions{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := source(ofCapability("9.0", "Hopper"))
			s.Extensions = extended(true, nil)
			plan, err := s.Resolve(asking(forMetrics(c.class), forMetrics(c.claim)))
			require.NoError(t, err)
			assert.Equal(t, &c.want, metricsIn(&plan.Results[0]))
			assert.Empty(t, plan.Steps, "metrics need no step")
			assert.Empty(t, plan.Preconditions)
		})
	}
	plan, err := source(node()).Resolve(allocated(results(result("gpu", "gpu-aaaaaaaa"))))
	require.NoError(t, err)
	assert.Nil(t, metricsIn(&plan.Results[0]), "without a configuration")
}

// TestResolve_MetricsNotThere_Refused: the error names the supported values.
func TestResolve_MetricsNotThere_Refused(t *testing.T) {
	t.Parallel()
	ampere := ofCapability("8.0", "Ampere")
	const fix = "; change GPUMetricsConfig, or request a GPU of architecture Hopper or later (not retryable)"
	const later = " requires source NsightSystems; set it, or remove the option (not retryable)"
	for name, c := range map[string]struct {
		node         *gpu.Node
		class, claim string
		want         string
	}{
		"source GPM before Hopper": {ampere, "", `"source":"GPM"`, "GPUMetricsConfig.source GPM is not supported on GPU " + string(uuidA) +
			" (architecture Ampere), which has no GPU performance monitoring; sources there: NVML" + fix},
		"Pipelines before Hopper": {ampere, `"sets":["Basic","Pipelines"]`, "", "GPUMetricsConfig.sets: Pipelines is not supported on GPU " +
			string(uuidA) + " (architecture Ampere), which has no GPU performance monitoring; sets there: " + allBefore + fix},
		"Pipelines and NVML, of two objects": {nil, `"sets":["Pipelines"]`, `"source":"NVML"`,
			"the combined configuration of DeviceClass and ResourceClaim is invalid: GPUMetricsConfig: sets[0]: Pipelines requires source GPM, got " +
				"source NVML; change one of them; correct one of the two (not retryable)"},
		"a short interval, of two objects": {nil, `"source":"GPM","interval":"200ms"`, `"source":"NVML"`,
			"the combined configuration of DeviceClass and ResourceClaim is invalid: GPUMetricsConfig: interval: must be between 1s and 5m0s, got 200ms; " +
				"correct one of the two (not retryable)"},
		"exposeInContainer without exporter": {nil, "", `"exposeInContainer":true`, "GPUMetricsConfig.exposeInContainer requires prism-exporter, " +
			"which does not run on node n0: the chart's value exporter.enabled is false; set exporter.enabled: true, or take exposeInContainer out of " +
			"GPUMetricsConfig (will be retried)"},
		"frequencyHz": {nil, "", `"frequencyHz":1000`, "GPUMetricsConfig.frequencyHz" + later},
		"metricSet":   {nil, `"metricSet":"ga100"`, "", "GPUMetricsConfig.metricSet" + later},
		"frequencyHz with another source": {nil, `"source":"NsightSystems","frequencyHz":1000`, `"source":"GPM"`,
			"the combined configuration of DeviceClass and ResourceClaim is invalid: GPUMetricsConfig: frequencyHz: has no effect with source GPM; remove it or " +
				"set source to NsightSystems; correct one of the two (not retryable)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := c.node
			if n == nil {
				n = ofCapability("9.0", "Hopper")
			}
			requireRefused(t, source(n), asking(forMetrics(c.class), forMetrics(c.claim)), `request "gpu", device gpu-aaaaaaaa: `+c.want)
		})
	}
}

func TestResolve_ExposeInContainerWithoutUID_Refused(t *testing.T) {
	t.Parallel()
	s := source(node())
	s.Extensions = extended(true, nil)
	for _, uid := range []string{"uid-1", "", "../" + aUID[3:], aUID + "/..", strings.ToUpper(aUID), aUID + "\n"} {
		rc := asking(forMetrics(""), forMetrics(`"exposeInContainer":true`))
		rc.UID = types.UID(uid)
		_, err := s.Resolve(rc)
		require.ErrorContains(t, err, "is no UID of a claim", uid)
	}
}

// Utilization of MIG devices comes from GPM alone.
func TestLacking_UtilizationOfMIGDevice_NeedsGPM(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		capability, source string
		want               string
	}{
		"Hopper":             {"9.0", "", ""},
		"Hopper, GPM":        {"9.0", "GPM", ""},
		"not reported":       {"", "", ""},
		"Hopper, NVML alone": {"9.0", "NVML", ", with source NVML; sets there: " + onMIGBefore},
		"Ampere":             {"8.0", "", ", which has no GPU performance monitoring; sets there: " + onMIGBefore},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &ofCapability(c.capability, "A").GPUs[0]
			asked := &gpu.MetricsOptions{Source: c.source, Sets: []string{"Basic", "Utilization"}, PerProcess: true}
			err := metricsLacking(asked, gpu.MIGDevice{GPU: g})
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, "GPUMetricsConfig.sets: Utilization is not supported on a MIG device of GPU "+string(uuidA)+
					" (architecture A)"+c.want)
			}
			assert.NoError(t, metricsLacking(asked, gpu.Whole{GPU: g}))
		})
	}
}

// forMonitor refuses options of metrics for a monitor device.
const forMonitor = "GPUMetricsConfig is not supported for a monitor device, which only shows GPUs that other claims use"

// TestResolve_MetricsWithAdminAccess_ClaimRefusedClassIgnored: nothing is attributed to a claim that only sees GPUs.
func TestResolve_MetricsWithAdminAccess_ClaimRefusedClassIgnored(t *testing.T) {
	t.Parallel()
	const out = "; take it out of the ResourceClaim (not retryable)"
	for device, c := range map[string]struct {
		result resourceapi.DeviceRequestAllocationResult
		want   string
	}{
		"gpu-aaaaaaaa": {result("see", "gpu-aaaaaaaa", withAdmin), adminMetrics},
		"monitor":      {monitors("see"), forMonitor},
	} {
		requireRefused(t, source(node()), allocated(results(c.result), config(fromClaim, driverName, metricsConfig)), `request "see", device `+device+`: `+c.want+out)
		plan, err := source(node()).Resolve(allocated(results(c.result), config(fromClass, driverName, metricsConfig)))
		require.NoError(t, err)
		assert.Nil(t, metricsIn(&plan.Results[0]))
	}
}

// Configuration that is wrong for every device is refused when it is written.
func TestValidator_Metrics_JudgedWhenWritten(t *testing.T) {
	t.Parallel()
	class := &resourceapi.DeviceClass{}
	class.Name = "fast.example.com"
	class.Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: config(fromClass, driverName,
		forMetrics(`"sets":["Pipelines"]`)).DeviceConfiguration}}
	v := Validator{Driver: driverName, Class: func(name string) *resourceapi.DeviceClass {
		if name == class.Name {
			return class
		}
		return nil
	}}
	const at = `spec.devices.config[0].opaque.parameters: request "r": `
	for name, c := range map[string]struct {
		class, fields string
		admin         bool
		want          string
	}{
		"options":      {"gpu." + driverName, `"sets":["Memory"],"labels":{"team":"a"},"exposeInContainer":true`, false, ""},
		"monitor":      {"monitor." + driverName, "", true, at + forMonitor},
		"admin access": {"gpu." + driverName, "", true, at + adminMetrics},
		"short interval": {"gpu." + driverName, `"interval":"500ms"`, false,
			"spec.devices.config[0].opaque.parameters: GPUMetricsConfig: interval: must be between 1s and 5m0s, got 500ms"},
		"does not fit the class": {class.Name, `"source":"NVML"`, false, `spec.devices.requests: request "r": the combined configuration of DeviceClass ` +
			`and ResourceClaim is invalid: GPUMetricsConfig: sets[0]: Pipelines requires source GPM, got source NVML; change one of them`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
				Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: c.class, AdminAccess: &c.admin}}},
				Config: []resourceapi.DeviceClaimConfiguration{
					{DeviceConfiguration: config(fromClaim, driverName, forMetrics(c.fields)).DeviceConfiguration},
				},
			}}
			err := v.Claim("spec", spec)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
	require.NoError(t, v.DeviceClass(class.Name, &class.Spec))
	require.EqualError(t, v.DeviceClass("monitor."+driverName, &class.Spec), "spec.config[0].opaque.parameters: "+forMonitor)
}
