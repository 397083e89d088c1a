package claim_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/null"
)

const (
	driver = "gpu.prism.dev"
	pool   = "n0/gpu-aaaaaaaa"
)

// withNull plans claims of a node with a GPU that is advertised in every mode there is, and in one that only a test knows.
func withNull() (claim.Source, *gpu.GPU) {
	node := &gpu.Node{Driver: gpu.Driver{Version: "580.95.05"}, GPUs: []gpu.GPU{{
		UUID: "GPU-aaaaaaaa-0000-4000-8000-000000000000", Product: gpu.Product{Name: "NVIDIA H100 80GB HBM3", MIGCapable: true},
		MIG: &gpu.MIG{Profiles: []gpu.MIGProfile{{ID: 19, Name: "1g.10gb", Slices: 1, Placements: []gpu.Placement{{Start: 0, Size: 1}}}}},
	}}}
	gpu.AssignIDs(node.GPUs)
	g := &node.GPUs[0]
	layout := gpu.Layout{g.UUID: {
		Whole: true, TimeSlice: &gpu.Replicas{Count: 2}, MIG: []string{"1g.10gb"}, Extra: []gpu.Mode{null.Mode{}},
	}}
	return claim.Source{
		Driver: driver, NodeName: "n0", Families: append(claim.Families(), null.Claims{}),
		Advertised: func() (*gpu.Node, gpu.Layout, error) { return node, layout, nil },
	}, g
}

// allocated is a claim with a device, and with configuration of its class and of its own, in this order.
func allocated(device string, configs ...string) *resourceapi.ResourceClaim {
	rc := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", UID: "uid-1"}}
	rc.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "r", Driver: driver, Pool: pool, Device: device}},
	}}
	for i, raw := range configs {
		source := resourceapi.AllocationConfigSourceClass
		if i > 0 {
			source = resourceapi.AllocationConfigSourceClaim
		}
		rc.Status.Allocation.Devices.Config = append(rc.Status.Allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: source, DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(raw)},
			}},
		})
	}
	return rc
}

// The table contains every family: every device that the layout advertises can be prepared.
func TestFamilies_EveryAdvertisedDevice_Planned(t *testing.T) {
	t.Parallel()
	source, g := withNull()
	_, layout, err := source.Advertised()
	require.NoError(t, err)
	devices := layout.Of(g).Devices(g)
	require.Len(t, devices, 4)
	for _, d := range devices {
		plan, err := source.Resolve(allocated(string(d.Name())))
		require.NoError(t, err, d.Name())
		assert.Equal(t, d, plan.Results[0].Device)
	}
}

func TestResolve_NoFamilyForTheDevice_Refused(t *testing.T) {
	t.Parallel()
	source, _ := withNull()
	source.Families = claim.Families()
	_, err := source.Resolve(allocated("gpu-aaaaaaaa-null"))
	require.EqualError(t, err, `request "r", device gpu-aaaaaaaa-null: devices of type "null" are not supported by this version of the driver; `+
		`delete the pod so that it is scheduled again (not retryable)`)
}

// Every kind is merged by itself: the claim's fields are laid over the class's, and later ones over earlier ones.
func TestNull_OptionsOfAllKinds_MergedOnce(t *testing.T) {
	t.Parallel()
	source, _ := withNull()
	plan, err := source.Resolve(allocated("gpu-aaaaaaaa-null",
		`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"ProfilerConfig","enabled":false,"tool":"NsightSystems","captureEnvironment":true,"containers":["a","b"]}`,
		`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"ProfilerConfig","captureEnvironment":false,"containers":["c"]}`,
		`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUMetricsConfig","perProcess":true,"labels":{"team":"a"}}`,
		`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUMetricsConfig","perProcess":false}`,
		`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","enforceMemory":true}`,
	))
	require.NoError(t, err)
	require.Len(t, plan.Steps, 1)
	step := plan.Steps[0]
	assert.Equal(t, null.StepKind, step.Kind)
	assert.Equal(t, gpu.DeviceName("gpu-aaaaaaaa-null"), step.Device)
	assert.JSONEq(t, `{
		"GPU": {"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "GPUConfig", "enforceMemory": true},
		"Extensions": {
			"profile": {"Asked": true, "Config": {
				"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "ProfilerConfig", "enabled": false, "tool": "NsightSystems", "captureEnvironment": false, "containers": ["c"]
			}},
			"metrics": {"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "GPUMetricsConfig", "perProcess": false, "labels": {"team": "a"}}
		}
	}`, string(step.Args))
}

// Admission knows the family by its class.
func TestNull_ClaimWritten_CheckedAgainstItsFamily(t *testing.T) {
	t.Parallel()
	raw := `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","enforceMemory":true}`
	for class, want := range map[string]string{
		"null.gpu.prism.dev": "",
		"mps.gpu.prism.dev": `spec.devices.config[0].opaque.parameters: request "r": GPUConfig.enforceMemory is not supported for a device of type "mps": ` +
			`the memory limits of MPS are cooperative, as programs can lift them`,
	} {
		validator := claim.Validator{Driver: driver, Families: append(claim.Families(), null.Claims{})}
		err := validator.Claim("spec", &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}},
			Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(raw)}},
			}}},
		}})
		if want == "" {
			assert.NoError(t, err, class)
			continue
		}
		assert.EqualError(t, err, want, class)
	}
}

// TestNullExtension_ClaimWritten_ItsConfigurationChecked: admission reads kinds that package v1alpha1 does not know.
func TestNullExtension_ClaimWritten_ItsConfigurationChecked(t *testing.T) {
	t.Parallel()
	validator := claim.Validator{Driver: driver, Extensions: append(claim.Extensions("n0"), null.Planned())}
	for raw, want := range map[string]string{
		`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"NullConfig","text":"a"}`: "",
		`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"NullConfig"}`:            `spec.config[0].opaque.parameters: NullConfig: text: required`,
		`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"NullConfig","b":"a"}`: `spec.config[0].opaque.parameters: NullConfig: unknown field "b"; ` +
			`valid fields: kind, apiVersion, text`,
		`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"OtherConfig"}`: `spec.config[0].opaque.parameters: kind: unsupported value "OtherConfig"; ` +
			`supported values: GPUConfig, GPUMetricsConfig, NullConfig, ProfilerConfig`,
	} {
		err := validator.DeviceClass("gpu.prism.dev", &resourceapi.DeviceClassSpec{Config: []resourceapi.DeviceClassConfiguration{{
			DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(raw)}},
			},
		}}})
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, want)
	}
}
