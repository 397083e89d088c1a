package publish_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// sampleRequests are the requests of the claims in a manifest.
func sampleRequests(t *testing.T, file string) (requests []resourceapi.ExactDeviceRequest) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var object struct {
			Kind string
			Spec struct {
				resourceapi.ResourceClaimSpec
				Spec resourceapi.ResourceClaimSpec
			}
		}
		require.NoError(t, yaml.Unmarshal(document, &object), file)
		spec := object.Spec.ResourceClaimSpec
		if object.Kind == "ResourceClaimTemplate" {
			spec = object.Spec.Spec
		}
		for _, r := range spec.Devices.Requests {
			if r.Exactly != nil {
				requests = append(requests, *r.Exactly)
			}
		}
	}
	return requests
}

// TestSamples_AdminAccess_TolerateTaints: if a request does not tolerate the taint of a GPU that is about to be repaired, its monitoring
// ends.
func TestSamples_AdminAccess_TolerateTaints(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../demo/specs/*/*.yaml")
	require.NoError(t, err)
	found := 0
	for _, file := range files {
		for _, r := range sampleRequests(t, file) {
			if r.AdminAccess != nil && *r.AdminAccess {
				found++
				assert.Equal(t, []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}, r.Tolerations, file)
			}
		}
	}
	assert.Equal(t, 3, found)
}

// TestAdminAccess_GPUTainted_NeedsToleration: as docs/admin-access.md says. The sample gets both GPUs; without its toleration All gets none, and neither
// does the other GPU alone count as all.
func TestAdminAccess_GPUTainted_NeedsToleration(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 2)
	for name, rules := range map[string][]publish.TaintRule{
		"one GPU":  publish.CleanupTaints([]gpu.PendingCleanup{{GPU: n.GPUs[0].UUID}}),
		"conflict": publish.ConflictTaints(publish.ConflictDevicePlugin),
	} {
		s := newScheduler(t, published(n, publish.Options{DriverName: driverName, NodeName: nodeName, Taints: rules}))
		sample := sampleRequests(t, "../../../demo/specs/admin-access/pod.yaml")
		require.Len(t, sample, 1)
		assert.Len(t, s.allocate(sample[0]), 2, name)
		assert.Nil(t, s.allocate(all("gpu.prism.dev")), name)
	}
}

// TestAll_GPUInUse_None: All is all devices of the node or none, for requests without admin access.
func TestAll_GPUInUse_None(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, poolsOf(node(t, "h100-80", 2), nil))
	every := resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.prism.dev", AllocationMode: resourceapi.DeviceAllocationModeAll}
	assert.Len(t, s.wouldAllocate(s.allocator(), every), 2)
	require.Len(t, s.allocate(request("gpu.prism.dev", 1)), 1)
	assert.Nil(t, s.allocate(every))
}

// TestAll_MatchAttributeUnsatisfied_Error: a constraint that one node cannot satisfy is an error of the allocator, after which the
// scheduler tries no other node; with a count it is not. When Kubernetes fixes that, a statement in docs/troubleshooting.md is not true any
// more.
func TestAll_MatchAttributeUnsatisfied_Error(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 2)
	n.GPUs[0].PCI.NUMANode, n.GPUs[1].PCI.NUMANode = 0, 1
	s := newScheduler(t, poolsOf(n, nil))
	numa := resourceapi.FullyQualifiedName("resource.kubernetes.io/numaNode")
	every := resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.prism.dev", AllocationMode: resourceapi.DeviceAllocationModeAll}
	both := request("gpu.prism.dev", 2)
	for r, fails := range map[*resourceapi.ExactDeviceRequest]bool{&every: true, &both: false} {
		claim := &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim", UID: "claim"},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
				Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: r}}, Constraints: []resourceapi.DeviceConstraint{{MatchAttribute: &numa}},
			}},
		}
		results, err := s.allocator().Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, []*resourceapi.ResourceClaim{claim})
		assert.Empty(t, results)
		assert.Equal(t, fails, err != nil, "%v", err)
	}
}
