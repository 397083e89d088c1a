package claim

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// TestValidator_Counters_JudgedWhenWritten: whatever no allocation can change is refused when a claim is written.
func TestValidator_Counters_JudgedWhenWritten(t *testing.T) {
	t.Parallel()
	const at, inConfig = "spec.devices.requests: ", "spec.devices.config[0].opaque.parameters: "
	const missing = bySource + " requires the perfmon device of each GPU in the same claim; "
	const gpuRequest, perfmonRequest = `{name: gpu, exactly: {deviceClassName: gpu.prism.dev}}`, `{name: counters, exactly: {deviceClassName: perfmon.gpu.prism.dev}}`
	const monitorRequest = `{name: see, exactly: {deviceClassName: monitor.gpu.prism.dev, adminAccess: true}}`
	const all = `{name: counters, exactly: {deviceClassName: perfmon.gpu.prism.dev, allocationMode: All}}`
	none := forProfiler(`"injection":"None"`)
	for name, c := range map[string]struct {
		requests string
		configs  []string
		want     string
	}{
		"with a perfmon":      {gpuRequest + "," + perfmonRequest, []string{nsight}, ""},
		"None with a perfmon": {gpuRequest + "," + perfmonRequest, []string{nsight, none}, ""},
		"without a perfmon":   {gpuRequest, []string{nsight}, at + `request "gpu": ` + missing + addPerfmon},
		"counters by a class of other devices": {
			`{name: gpu, exactly: {deviceClassName: count.gpu.prism.dev}}, ` + gpuRequest, []string{forMetrics("")}, "",
		},
		"a class that may be of perfmon devices":   {gpuRequest + `, {name: r, exactly: {deviceClassName: mine}}`, []string{nsight}, ""},
		"an alternative with a perfmon":            {gpuRequest + `, {name: r, firstAvailable: [{name: a, deviceClassName: perfmon.gpu.prism.dev}]}`, []string{nsight}, ""},
		"a MIG device":                             {`{name: gpu, exactly: {deviceClassName: mig.gpu.prism.dev}}, ` + perfmonRequest, []string{nsight}, inConfig + `request "gpu": ` + bySource + ` is not supported for a device of type "mig", because other claims may use the GPU; it is supported for whole GPUs, and for a monitor device with adminAccess`},
		"a whole GPU as an alternative":            {`{name: r, firstAvailable: [{name: a, deviceClassName: mig.gpu.prism.dev}, {name: b, deviceClassName: gpu.prism.dev}]}, ` + perfmonRequest, []string{nsight}, ""},
		"the node":                                 {monitorRequest + "," + all, []string{forMetrics(`"source":"NsightSystems","frequencyHz":100`), none}, ""},
		"the node without perfmons, by its class":  {monitorRequest, nil, ""},
		"the node without perfmons":                {monitorRequest, []string{nsight}, at + `request "see": ` + missing + "add a request of class perfmon.gpu.prism.dev with allocationMode: All"},
		"the node with other options":              {monitorRequest + "," + all, []string{forMetrics(`"source":"NsightSystems","perProcess":true`)}, inConfig + `request "see": ` + bySource + " for a monitor device supports only frequencyHz and metricSet: a monitor device has no metrics of its own"},
		"a GPU with admin access":                  {`{name: gpu, exactly: {deviceClassName: gpu.prism.dev, adminAccess: true}}, ` + perfmonRequest, []string{nsight}, at + `request "gpu": ` + adminMetrics},
		"a perfmon with admin access":              {gpuRequest + `, {name: counters, exactly: {deviceClassName: perfmon.gpu.prism.dev, adminAccess: true}}`, []string{nsight}, at + `request "counters": ` + adminPerfmon},
		"None without counters":                    {gpuRequest, []string{none}, at + `request "gpu": ` + noCounters + "; set source: NsightSystems, or injection: Preload"},
		"None without counters, not enabled":       {gpuRequest, []string{forProfiler(`"injection":"None","enabled":false`)}, ""},
		"None, and a class that requests counters": {`{name: gpu, exactly: {deviceClassName: count.gpu.prism.dev}}, ` + perfmonRequest, []string{none}, ""},
		"None, and a class that is not known":      {`{name: gpu, exactly: {deviceClassName: unread}}`, []string{none}, ""},
		"options without the source":               {gpuRequest, []string{forMetrics(`"metricSet":"ga100"`)}, at + `request "gpu": GPUMetricsConfig.metricSet requires source NsightSystems`},
		"options, and the source by the class":     {`{name: gpu, exactly: {deviceClassName: count.gpu.prism.dev}}, ` + perfmonRequest, []string{forMetrics(`"frequencyHz":100`)}, ""},
		"options, and a class that is not known":   {`{name: gpu, exactly: {deviceClassName: unread}}`, []string{forMetrics(`"frequencyHz":100`)}, ""},
		"a start that no container makes":          {gpuRequest + "," + perfmonRequest, []string{forProfiler(`"injection":"None","start":"CUDAProfilerAPI"`)}, inConfig + "ProfilerConfig: start: must be Immediate or Manual with injection None, got CUDAProfilerAPI"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := &resourceapi.ResourceClaimSpec{}
			require.NoError(t, yaml.UnmarshalStrict([]byte("devices: {requests: ["+c.requests+"]}"), spec))
			for _, raw := range c.configs {
				spec.Devices.Config = append(spec.Devices.Config, resourceapi.DeviceClaimConfiguration{DeviceConfiguration: ofClaim(raw).DeviceConfiguration})
			}
			err := Validator{Driver: driverName, Class: countingClasses}.Claim("spec", spec)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}

// TestValidator_NoneForAnotherRequestThanCounters_Allowed: a ProfilerConfig is for the claim, whichever of its requests it names.
func TestValidator_NoneForAnotherRequestThanCounters_Allowed(t *testing.T) {
	t.Parallel()
	spec := &resourceapi.ResourceClaimSpec{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(`devices: {requests: [{name: a, exactly: {deviceClassName: gpu.prism.dev}}, `+
		`{name: b, exactly: {deviceClassName: gpu.prism.dev}}, {name: counters, exactly: {deviceClassName: perfmon.gpu.prism.dev}}]}`), spec))
	spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{
		{Requests: []string{"a"}, DeviceConfiguration: ofClaim(nsight).DeviceConfiguration},
		{Requests: []string{"b"}, DeviceConfiguration: ofClaim(forProfiler(`"injection":"None"`)).DeviceConfiguration},
	}
	require.NoError(t, Validator{Driver: driverName, Class: countingClasses}.Claim("spec", spec))
}

// countingClasses are the classes of a cluster, two of which request counters. "unread" is not known.
func countingClasses(name string) *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{}
	switch name {
	case "unread":
		return nil
	case "count.gpu.prism.dev", "monitor.gpu.prism.dev":
		class.Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: ofClaim(nsight).DeviceConfiguration}}
	}
	return class
}
