package claim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// capacityRequest is a request for a whole GPU with a capacity.
func capacityRequest(name, class, capacity, value string) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class}
	if capacity != "" {
		exactly.Capacity = &resourceapi.CapacityRequirements{
			Requests: map[resourceapi.QualifiedName]resource.Quantity{resourceapi.QualifiedName(capacity): resource.MustParse(value)},
		}
	}
	return resourceapi.DeviceRequest{Name: name, Exactly: exactly}
}

// TestResolve_NVIDIAConsumableShares_Refused: a claim that was written for a part of a GPU's memory does not get the whole GPU.
func TestResolve_NVIDIAConsumableShares_Refused(t *testing.T) {
	t.Parallel()
	const fix = "; request the class timeslice.gpu.nvidia.com or mps.gpu.nvidia.com for a share, and a GPU of at least some memory by a selector on its " +
		"capacity (not retryable)"
	const refused = `request "r", device gpu-bbbbbbbb: capacity.requests.memory 10Gi is less than the 80Gi of the GPU, which is not shared by memory ` +
		"under the class gpu.nvidia.com" + fix
	for name, c := range map[string]struct {
		request resourceapi.DeviceRequest
		driver  string
		admin   bool
		want    string
	}{
		"part of the memory":           {capacityRequest("r", nvidiaDriver, "memory", "10Gi"), nvidiaDriver, false, refused},
		"qualified":                    {capacityRequest("r", nvidiaDriver, nvidiaDriver+"/memory", "10Gi"), nvidiaDriver, false, refused},
		"all of the memory":            {capacityRequest("r", nvidiaDriver, "memory", "80Gi"), nvidiaDriver, false, ""},
		"no memory":                    {capacityRequest("r", nvidiaDriver, "", ""), nvidiaDriver, false, ""},
		"of another request":           {capacityRequest("other", nvidiaDriver, "memory", "10Gi"), nvidiaDriver, false, ""},
		"admin access":                 {capacityRequest("r", nvidiaDriver, "memory", "10Gi"), nvidiaDriver, true, ""},
		"the least, of another driver": {capacityRequest("r", driverName, "memory", "10Gi"), driverName, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := nvidiaSource(false)
			s.Driver = c.driver
			node, layout, err := s.Advertised()
			require.NoError(t, err)
			for i := range node.GPUs {
				node.GPUs[i].Capacity.MemoryBytes = 80 << 30
			}
			s = advertising(node, layout)
			s.Driver = c.driver
			change := []func(*resourceapi.DeviceRequestAllocationResult){withDriver(c.driver)}
			if c.admin {
				change = append(change, withAdmin)
			}
			rc := allocated(results(result("r", "gpu-bbbbbbbb", change...)))
			rc.Spec.Devices.Requests = []resourceapi.DeviceRequest{c.request}
			plan, err := s.Resolve(rc)
			if c.want != "" {
				require.EqualError(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.Len(t, plan.Results, 1)
		})
	}
}

// TestValidator_NVIDIAConsumableShares_Refused: no whole GPU has shares, so such a pod would stay Pending.
func TestValidator_NVIDIAConsumableShares_Refused(t *testing.T) {
	t.Parallel()
	spec := &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{capacityRequest("r", nvidiaDriver, "shares", "1")}}}
	require.EqualError(t, Validator{Driver: nvidiaDriver}.Claim("spec", spec), `spec.devices.requests: request "r": capacity.requests.shares 1: a whole GPU has `+
		"no shares: "+shareFix)
	require.NoError(t, Validator{Driver: driverName}.Claim("spec", spec), "requests of other drivers are not ours")
	spec.Devices.Requests[0] = capacityRequest("r", "timeslice."+nvidiaDriver, "shares", "1")
	require.NoError(t, Validator{Driver: nvidiaDriver}.Claim("spec", spec))
}
