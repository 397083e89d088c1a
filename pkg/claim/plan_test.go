package claim

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	driverName = "gpu.prism.dev"
	nodeName   = "n0"
	uuidA      = gpu.UUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")
	uuidB      = gpu.UUID("GPU-bbbbbbbb-0000-4000-8000-000000000000")
	uuidC      = gpu.UUID("GPU-cccccccc-0000-4000-8000-000000000000")
)

// node has GPUs A and B; C is listed by the driver and does not answer.
func node() *gpu.Node {
	gpus := []gpu.GPU{{UUID: uuidA, Index: 0}, {UUID: uuidB, Index: 1, Minor: 1}}
	gpu.AssignIDs(gpus)
	return &gpu.Node{
		Driver: gpu.Driver{Version: "580.95.05"}, GPUs: gpus,
		Faults: []gpu.Fault{{Index: 2, UUID: uuidC, Err: gpu.ErrLost}, {Index: 3, Err: gpu.ErrTimeout}},
	}
}

func source(n *gpu.Node) Source {
	return Source{Driver: driverName, NodeName: nodeName, Additional: gpu.Additional{Monitor: true, Perfmon: true}, Advertised: func() (*gpu.Node, gpu.Layout, error) { return n, nil, nil }}
}

// result is an allocation result of this driver in the node's pool.
func result(request, device string, change ...func(*resourceapi.DeviceRequestAllocationResult)) resourceapi.DeviceRequestAllocationResult {
	r := resourceapi.DeviceRequestAllocationResult{Request: request, Driver: driverName, Pool: nodeName, Device: device}
	for _, c := range change {
		c(&r)
	}
	return r
}

// monitors is an allocation result of the node's monitor device.
func monitors(request string, change ...func(*resourceapi.DeviceRequestAllocationResult)) resourceapi.DeviceRequestAllocationResult {
	return result(request, "monitor", append([]func(*resourceapi.DeviceRequestAllocationResult){withAdmin, withPool(nodeName + "/monitor")}, change...)...)
}

func withAdmin(r *resourceapi.DeviceRequestAllocationResult) { r.AdminAccess = new(true) }

func withDriver(name string) func(*resourceapi.DeviceRequestAllocationResult) {
	return func(r *resourceapi.DeviceRequestAllocationResult) { r.Driver = name }
}

func withPool(name string) func(*resourceapi.DeviceRequestAllocationResult) {
	return func(r *resourceapi.DeviceRequestAllocationResult) { r.Pool = name }
}

func results(r ...resourceapi.DeviceRequestAllocationResult) []resourceapi.DeviceRequestAllocationResult {
	return r
}

func allocated(r []resourceapi.DeviceRequestAllocationResult, configs ...resourceapi.DeviceAllocationConfiguration) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", UID: "uid-1"},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: r, Config: configs},
		}},
	}
}

// config is an opaque configuration; requests none means all.
func config(from resourceapi.AllocationConfigSource, driver, raw string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{
		Source: from, Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(raw)},
		}},
	}
}

const (
	fromClass = resourceapi.AllocationConfigSourceClass
	fromClaim = resourceapi.AllocationConfigSourceClaim

	plainConfig     = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig"}`
	mpsConfig       = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":{"mps":{"activeThreadPercentage":50}}}`
	sharingConfig   = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":{"strategy":"TimeSlicing"}}`
	enforceConfig   = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","enforceMemory":true}`
	noEnforceConfig = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","enforceMemory":false}`
	forbidConfig    = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","claimOverride":"Forbidden"}`
	profilerConfig  = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"ProfilerConfig"}`
	metricsConfig   = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUMetricsConfig"}`
	unknownKind     = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"LaserConfig"}`
	unknownField    = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","laser":1}`
	unknownGroup    = `{"apiVersion":"gpu.nvidia.com/v1beta1","kind":"GpuConfig"}`
)

func TestResolve_AllocationResults_InTheClaimsOrder(t *testing.T) {
	t.Parallel()
	n := node()
	a, b := &n.GPUs[0], &n.GPUs[1]
	for name, c := range map[string]struct {
		rc   *resourceapi.ResourceClaim
		want []Result
	}{
		"one GPU": {
			rc:   allocated(results(result("gpu", "gpu-aaaaaaaa"))),
			want: []Result{{Request: "gpu", Pool: nodeName, Device: gpu.Whole{GPU: a}}},
		},
		"several GPUs and requests, in the claim's order": {
			rc: allocated(results(result("second", "gpu-bbbbbbbb"), result("first", "gpu-aaaaaaaa"))),
			want: []Result{
				{Request: "second", Pool: nodeName, Device: gpu.Whole{GPU: b}},
				{Request: "first", Pool: nodeName, Device: gpu.Whole{GPU: a}},
			},
		},
		"firstAvailable keeps the subrequest's name": {
			rc:   allocated(results(result("gpu/big", "gpu-aaaaaaaa"))),
			want: []Result{{Request: "gpu/big", Pool: nodeName, Device: gpu.Whole{GPU: a}}},
		},
		"other drivers' results and configurations are none of ours": {
			rc: allocated(results(
				result("net", "nic-0", withDriver("net.example.com"), withPool("elsewhere")), result("gpu", "gpu-aaaaaaaa")),
				config(fromClaim, "net.example.com", `not even JSON`)),
			want: []Result{{Request: "gpu", Pool: nodeName, Device: gpu.Whole{GPU: a}}},
		},
		"a claim with only other drivers' results": {rc: allocated(results(result("net", "nic-0", withDriver("net.example.com"))))},
		"admin access to a monitor and to a whole GPU, beside its owner": {
			rc: allocated(results(
				monitors("see"), result("debug", "gpu-aaaaaaaa", withAdmin), result("use", "gpu-aaaaaaaa"))),
			want: []Result{
				{Request: "see", Pool: nodeName + "/monitor", Admin: true, Device: gpu.Monitor{}},
				{Request: "debug", Pool: nodeName, Admin: true, Device: gpu.Whole{GPU: a}},
				{Request: "use", Pool: nodeName, Device: gpu.Whole{GPU: a}},
			},
		},
		"share and consumed capacity": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa", func(r *resourceapi.DeviceRequestAllocationResult) {
				r.ShareID = new(types.UID("share-1"))
				r.AdminAccess = new(false)
				r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("2048Mi")}
			}))),
			want: []Result{{
				Request: "gpu", Pool: nodeName, Device: gpu.Whole{GPU: a}, ShareID: "share-1", Consumed: map[string]string{"memory": "2Gi"},
			}},
		},
		"configurations that change nothing": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa")),
				config(fromClaim, driverName, noEnforceConfig), config(fromClass, driverName, plainConfig, "gpu"),
				resourceapi.DeviceAllocationConfiguration{Source: fromClass}),
			want: []Result{{Request: "gpu", Pool: nodeName, Device: gpu.Whole{GPU: a}}},
		},
		"a class that forbids overriding, and a claim that sets nothing": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa")),
				config(fromClaim, driverName, plainConfig), config(fromClass, driverName, forbidConfig)),
			want: []Result{{Request: "gpu", Pool: nodeName, Device: gpu.Whole{GPU: a}}},
		},
		"a configuration for another request": {
			rc: allocated(results(result("gpu/big", "gpu-aaaaaaaa")),
				config(fromClaim, driverName, sharingConfig, "other"), config(fromClaim, driverName, sharingConfig, "gpu/small")),
			want: []Result{{Request: "gpu/big", Pool: nodeName, Device: gpu.Whole{GPU: a}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := source(n).Resolve(c.rc)
			require.NoError(t, err)
			want := &Plan{UID: "uid-1", Namespace: "default", Name: "one", Results: c.want}
			assert.Empty(t, cmp.Diff(want, plan))
		})
	}
}

// requireRefused requires that the claim gets no plan, for this reason.
func requireRefused(t *testing.T, s Source, rc *resourceapi.ResourceClaim, want string, why ...any) {
	t.Helper()
	plan, err := s.Resolve(rc)
	assert.Nil(t, plan, why...)
	refusal, ok := errors.AsType[*Refusal](err)
	require.True(t, ok, "%v is no *Refusal", err)
	assert.Equal(t, want, refusal.Error(), why...)
}

func TestResolve_NotPossible_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node *gpu.Node
		rc   *resourceapi.ResourceClaim
		want string
	}{
		"not allocated": {
			rc:   &resourceapi.ResourceClaim{},
			want: "the claim is not allocated; wait for the scheduler (will be retried)",
		},
		"foreign pool": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa", withPool("n1")))),
			want: `request "gpu", device gpu-aaaaaaaa: it is in pool "n1", which is not of node n0; ` +
				`delete the pod so that it is scheduled again (not retryable)`,
		},
		"no driver": {
			node: &gpu.Node{},
			rc:   allocated(results(result("gpu", "gpu-aaaaaaaa"))),
			want: `request "gpu", device gpu-aaaaaaaa: no NVIDIA driver is loaded on node n0; ` +
				`install or load the NVIDIA driver on the node (will be retried)`,
		},
		"lost GPU": {
			rc: allocated(results(result("gpu", "gpu-cccccccc"))),
			want: `request "gpu", device gpu-cccccccc: GPU GPU-cccccccc-0000-4000-8000-000000000000 of node n0 does not answer: GPU is lost; ` +
				`reset the GPU or drain the node (will be retried)`,
		},
		"monitoring a lost GPU": {
			rc: allocated(results(result("see", "gpu-cccccccc", withAdmin))),
			want: `request "see", device gpu-cccccccc: GPU GPU-cccccccc-0000-4000-8000-000000000000 of node n0 does not answer: GPU is lost; ` +
				`reset the GPU or drain the node (will be retried)`,
		},
		"unknown device": {
			rc: allocated(results(result("gpu", "gpu-dddddddd"))),
			want: `request "gpu", device gpu-dddddddd: node n0 does not advertise this device now; ` +
				`if it does not come back, delete the pod so that it is scheduled again (will be retried)`,
		},
		"monitor without admin access": {
			rc: allocated(results(monitors("see", func(r *resourceapi.DeviceRequestAllocationResult) { r.AdminAccess = new(false) }))),
			want: `request "see", device monitor: a monitor device shows GPUs that other claims use, so it can be requested with adminAccess only; ` +
				`set adminAccess: true on the request, in a namespace labelled resource.kubernetes.io/admin-access=true (not retryable)`,
		},
		"monitor of another name": {
			rc: allocated(results(monitors("see", func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "gpu-aaaaaaaa" }))),
			want: `request "see", device gpu-aaaaaaaa: pool "n0/monitor" has no such device; delete the pod so that it is scheduled again ` +
				`(not retryable)`,
		},
		"monitor of a GPU, of an earlier version": {
			rc: allocated(results(result("see", "gpu-aaaaaaaa-monitor", withAdmin))),
			want: `request "see", device gpu-aaaaaaaa-monitor: GPU GPU-aaaaaaaa-0000-4000-8000-000000000000 does not advertise it now: the node's ` +
				`configuration or the devices on the GPU changed; it advertises: gpu; delete the pod so that it is scheduled again (not retryable)`,
		},
		"one GPU twice": {
			rc: allocated(results(result("first", "gpu-aaaaaaaa"), result("second", "gpu-aaaaaaaa"))),
			want: `request "second", device gpu-aaaaaaaa: GPU GPU-aaaaaaaa-0000-4000-8000-000000000000 was also allocated to request "first" of the same claim; ` +
				`delete the claim so that it is allocated again (not retryable)`,
		},
		"enforceMemory of a monitor": {
			rc: allocated(results(monitors("see")), config(fromClaim, driverName, enforceConfig)),
			want: `request "see", device monitor: GPUConfig.enforceMemory is not supported for a monitor device, which only shows GPUs that other claims use; ` +
				`take it out of the ResourceClaim (not retryable)`,
		},
		"ProfilerConfig without profiler": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa")), config(fromClaim, driverName, profilerConfig)),
			want: `request "gpu", device gpu-aaaaaaaa: ProfilerConfig requires the profiler, which does not run on node n0: ` +
				`the chart's value profiler.tools is empty; set profiler.tools, or take the ProfilerConfig out (will be retried)`,
		},
		"the class forbids what the claim, listed before it, sets": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa")),
				config(fromClaim, driverName, noEnforceConfig), config(fromClass, driverName, forbidConfig)),
			want: `request "gpu", device gpu-aaaaaaaa: GPUConfig: enforceMemory` + forbidden,
		},
		"claimOverride in a claim": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa")), config(fromClaim, driverName, forbidConfig)),
			want: `request "gpu", device gpu-aaaaaaaa: GPUConfig: claimOverride: must not be set by a ResourceClaim; ` +
				`only a DeviceClass may set it (not retryable)`,
		},
		"unknown kind, for a request that has no result": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa")), config(fromClaim, driverName, unknownKind, "other", "gpu")),
			want: `request "other": opaque configuration of the ResourceClaim: kind: unsupported value "LaserConfig"; ` +
				`supported values: GPUConfig, GPUMetricsConfig, ProfilerConfig; correct it and recreate the claim (not retryable)`,
		},
		"unknown field, for all requests": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa")), config(fromClass, driverName, unknownField)),
			want: `request "gpu": opaque configuration of the DeviceClass: GPUConfig: unknown field "laser"; ` +
				`valid fields: kind, apiVersion, sharing, enforceMemory, claimOverride; correct it and recreate the claim (not retryable)`,
		},
		"unknown field, for all of several requests": {
			rc: allocated(results(result("a", "gpu-aaaaaaaa"), result("b", "gpu-bbbbbbbb")), config(fromClass, driverName, unknownField)),
			want: `opaque configuration of the DeviceClass: GPUConfig: unknown field "laser"; ` +
				`valid fields: kind, apiVersion, sharing, enforceMemory, claimOverride; correct it and recreate the claim (not retryable)`,
		},
		"another driver's dialect": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa")), config(fromClaim, driverName, unknownGroup)),
			want: `request "gpu": opaque configuration of the ResourceClaim: apiVersion: unsupported value "gpu.nvidia.com/v1beta1"; supported values: gpu.prism.dev/v1alpha1; ` +
				`kind: unsupported value "GpuConfig"; supported values: GPUConfig, GPUMetricsConfig, ProfilerConfig; ` +
				`correct it and recreate the claim (not retryable)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := c.node
			if n == nil {
				n = node()
			}
			requireRefused(t, source(n), c.rc, c.want)
		})
	}
}

func TestRefusal_Error_OneSentence(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]Refusal{
		"cause (not retryable)":                             {Cause: "cause"},
		"cause; fix (will be retried)":                      {Cause: "cause", Fix: "fix", Transient: true},
		`request "r": cause; fix (not retryable)`:           {Request: "r", Cause: "cause", Fix: "fix"},
		`device d: cause; fix (not retryable)`:              {Device: "d", Cause: "cause", Fix: "fix"},
		`request "r", device d: cause; fix (not retryable)`: {Request: "r", Device: "d", Cause: "cause", Fix: "fix"},
	} {
		assert.Equal(t, want, r.Error())
	}
}

func TestResolve_SeveralResults_NodeReadOnce(t *testing.T) {
	t.Parallel()
	n, asked := node(), 0
	s := Source{Driver: driverName, NodeName: nodeName, Advertised: func() (*gpu.Node, gpu.Layout, error) { asked++; return n, nil, nil }}
	_, err := s.Resolve(allocated(results(result("a", "gpu-aaaaaaaa"), result("b", "gpu-bbbbbbbb"))))
	require.NoError(t, err)
	assert.Equal(t, 1, asked)
}

func TestAllocationKeys_OtherDriversResults_LeftOut(t *testing.T) {
	t.Parallel()
	s := source(node())
	assert.Empty(t, s.AllocationKeys(&resourceapi.ResourceClaim{}))
	rc := allocated(results(
		result("net", "nic-0", withDriver("net.example.com")),
		result("gpu/big", "gpu-gone", withPool("n1"), withAdmin),
		result("share", "gpu-aaaaaaaa", func(r *resourceapi.DeviceRequestAllocationResult) { r.ShareID = new(types.UID("s")) })))
	assert.Equal(t, []AllocationKey{
		{Request: "gpu/big", Pool: "n1", Device: "gpu-gone", Admin: true},
		{Request: "share", Pool: nodeName, Device: "gpu-aaaaaaaa", ShareID: "s"},
	}, s.AllocationKeys(rc))
}
