package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// placement is a range of memory slices.
type placement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

// partitions describes the partitioning of a GPU as the hardware reports it.
type partitions struct {
	Ordinal int    `json:"ordinal"`
	UUID    string `json:"uuid"`
	Minor   int    `json:"minor"`
	MIG     bool   `json:"mig"`
	// MemoryUsed counts bytes without the memory that the driver reserves.
	MemoryUsed float64 `json:"memoryUsed"`
	Processes  []struct {
		Memory      float64 `json:"memory"`
		GPUInstance int     `json:"gpuInstance"`
	} `json:"processes"`
	Load struct {
		// Totals count since the driver was loaded.
		Totals map[string]float64 `json:"totals"`
	} `json:"load"`
	Instances []struct {
		GPUInstance     int       `json:"gpuInstance"`
		ComputeInstance *int      `json:"computeInstance"`
		Profile         string    `json:"profile"`
		Placement       placement `json:"placement"`
		UUID            string    `json:"uuid"`
	} `json:"migDevices"`
}

// partitions returns the partitioning of the GPUs by index.
func (c *cluster) partitions() ([]partitions, error) {
	var state struct{ GPUs []partitions }
	out, err := c.run("", c.simgpu("state")...)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(out), &state); err != nil {
		return nil, fmt.Errorf("reading the state of the simulated GPUs: %w", err)
	}
	return state.GPUs, nil
}

// mustPartitions returns the partitioning of one GPU.
func (c *cluster) mustPartitions(t *testing.T, index int) partitions {
	t.Helper()
	gpus, err := c.partitions()
	require.NoError(t, err)
	return gpus[index]
}

// instances returns an error until a GPU has this number of instances, including incomplete ones.
func (c *cluster) instances(index, want int) error {
	gpus, err := c.partitions()
	if err == nil && len(gpus[index].Instances) != want {
		err = fmt.Errorf("GPU %d has %d instances, not %d: %+v", index, len(gpus[index].Instances), want, gpus[index].Instances)
	}
	return err
}

// migInParallel is inParallel for a test that leases the GPUs that are advertised as MIG devices.
func migInParallel(t *testing.T) *namespace {
	t.Helper()
	needs(t, partitionableDevices)
	c := open(t)
	t.Parallel()
	take(t, c.gpus.mig)
	c.advertisesMIG(t, startLimit)
	c.hasClasses(t, profileClasses...)
	c.leavesNoInstance(t)
	return newNamespace(t, c)
}

// migExclusive is exclusive for a test of MIG devices.
func migExclusive(t *testing.T) *namespace {
	t.Helper()
	needs(t, partitionableDevices)
	c := open(t)
	c.advertisesMIG(t, startLimit)
	c.hasClasses(t, profileClasses...)
	c.leavesNoInstance(t)
	return exclusive(t)
}

// leavesNoInstance checks at the end that no GPU has an instance. Cleanups that must run before that are registered after this call.
func (c *cluster) leavesNoInstance(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		for index := range c.gpus.size {
			eventually(t, startLimit, func() error { return c.instances(index, 0) })
		}
	})
}

// placements is the number of placements of all profiles on an H100.
const placements = 25

// advertisesMIG waits until all placements of GPUs that are advertised as MIG devices are published.
func (c *cluster) advertisesMIG(t *testing.T, within time.Duration) {
	t.Helper()
	want := (c.gpus.size - firstMIG) * placements
	eventually(t, within, func() error {
		n, err := c.advertised("mig")
		if err == nil && n != want {
			err = fmt.Errorf("%d MIG devices are published, not %d: is the chart installed with test/e2e/values.yaml?", n, want)
		}
		return err
	})
}

// migPod returns a pod with a MIG device of this class.
func migPod(name, class string, selectors ...string) workload {
	return workload{name: name, ref: "mig", request: request{class: class, selectors: selectors}}
}

// createMIG creates a pod with a MIG device of a profile on one GPU.
func (ns *namespace) createMIG(pod, profile string, index int) {
	ns.t.Helper()
	ns.create(ns.onGPU(pod, profile, index))
}

// onGPU returns a pod with a MIG device of a profile on one GPU.
func (ns *namespace) onGPU(pod, profile string, index int) workload {
	ns.t.Helper()
	const attribute = `device.attributes["gpu.prism.dev"].`
	return migPod(pod, "mig.gpu.prism.dev",
		fmt.Sprintf(attribute+"profile == %q", profile), fmt.Sprintf(attribute+"parentUUID == %q", ns.mustPartitions(ns.t, index).UUID))
}

// migDevice waits for the pod. It returns its MIG device, and checks that the pod sees exactly that device.
func (ns *namespace) migDevice(pod string) grant {
	ns.t.Helper()
	grants := ns.grantedTo(ns.ready(pod), "mig")
	require.Len(ns.t, grants, 1)
	ns.sees(pod, "main", grants...)
	return grants[0]
}

// waits checks that the scheduler finds no device for the pod.
func (ns *namespace) waits(pod string) {
	ns.t.Helper()
	assert.Contains(ns.t, ns.event(pod, "FailedScheduling", startLimit), "cannot allocate all claims")
	assert.Empty(ns.t, ns.pod(pod).Spec.NodeName)
}

// deleteWithClaim deletes a pod, and waits until its claim is gone, too.
func (ns *namespace) deleteWithClaim(pod, ref string) {
	ns.t.Helper()
	claim := ns.claimOf(ns.pod(pod), ref)
	ns.delete("pod", pod)
	eventually(ns.t, startLimit, func() error {
		err := ns.read(&resourceapi.ResourceClaim{}, "resourceclaim", claim.Name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("claim %s of pod %s: %w", claim.Name, pod, errStillAllocated))
	})
}

// stillWaits checks that a pod that waits for a whole GPU did not get it. It creates a new request for the same GPU, which the scheduler
// decides on and which waits too: by then the scheduler knows the released devices.
func (ns *namespace) stillWaits(pod string, index int) {
	ns.t.Helper()
	const later = "asks-for-it-now"
	ns.create(workload{name: later, ref: "gpu", request: request{
		class: gpuClass, selectors: []string{fmt.Sprintf(`device.attributes["gpu.prism.dev"].index == %d`, index)},
	}})
	ns.waits(later)
	assert.Empty(ns.t, ns.pod(pod).Spec.NodeName, "a whole GPU was allocated while a part of it is in use")
	ns.delete("pod", later)
}

// checkMIGDevice compares a MIG device in a status with the hardware.
func (ns *namespace) checkMIGDevice(g grant) {
	ns.t.Helper()
	gpu := ns.mustPartitions(ns.t, g.Index)
	require.True(ns.t, gpu.MIG, "GPU %d is in MIG mode", g.Index)
	for _, instance := range gpu.Instances {
		if instance.UUID == g.UUID {
			assert.Equal(ns.t, gpu.UUID, g.ParentUUID)
			assert.Equal(ns.t, instance.Profile, g.Profile)
			assert.Equal(ns.t, instance.Placement, g.Placement)
			return
		}
	}
	require.Failf(ns.t, "unknown MIG device", "the claim's status names %s, which GPU %d does not have: %+v", g.UUID, g.Index, gpu.Instances)
}

// capabilities returns the device nodes of a MIG device's two instances, with the node's numbers.
func (ns *namespace) capabilities(g grant) map[string]numbers {
	ns.t.Helper()
	root, gpu := ns.variable("PRISM_NODE_0_ROOT"), ns.mustPartitions(ns.t, g.Index)
	found := map[string]numbers{}
	for _, instance := range gpu.Instances {
		if instance.UUID != g.UUID {
			continue
		}
		of := fmt.Sprintf("proc/driver/nvidia/capabilities/gpu%d/mig/gi%d", gpu.Minor, instance.GPUInstance)
		for _, access := range []string{of + "/access", fmt.Sprintf("%s/ci%d/access", of, *instance.ComputeInstance)} {
			text, err := os.ReadFile(filepath.Join(root, access))
			require.NoError(ns.t, err)
			var minor uint32
			_, err = fmt.Sscanf(strings.TrimSpace(string(text)), "DeviceFileMinor: %d", &minor)
			require.NoError(ns.t, err, "%s", text)
			path := fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor)
			var stat unix.Stat_t
			require.NoError(ns.t, unix.Stat(root+path, &stat))
			require.Equal(ns.t, minor, unix.Minor(stat.Rdev))
			found[path] = numbers{unix.Major(stat.Rdev), minor}
		}
	}
	require.Len(ns.t, found, 2, "MIG device %s on GPU %d", g.UUID, g.Index)
	return found
}

// administrator returns a command line of the driver's nvidia-smi on the node.
func (c *cluster) administrator(args ...string) []string {
	const root = "/run/nvidia/driver"
	return c.onNode(append([]string{"env", "LD_LIBRARY_PATH=" + root + libraryDir, root + "/usr/bin/nvidia-smi"}, args...)...)
}
