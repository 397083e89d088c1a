package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMPSExtendedResource: a configuration file for a fork of the device plugin has the same effect as there: two pods with shares of 2 GiB
// of GPU 0, a third waits, a request for two is refused, and the other GPUs are whole.
func TestMPSExtendedResource(t *testing.T) {
	needs(t, extendedResources)
	c := open(t)
	t.Cleanup(func() {
		c.advertises(t, c.gpus.size, startLimit)
		c.advertisesMIG(t, startLimit)
	})
	c.withValues(t, "mps-extended-resource/values.yaml")
	ns := mpsExclusive(t)
	ns.configured(t, "gpu-2gb")
	ns.advertises(t, ns.gpus.size-1, startLimit)
	eventually(t, startLimit, func() error {
		n, err := ns.advertised("mps")
		if err == nil && n != 1 {
			err = fmt.Errorf("%d GPUs are advertised as MPS shares, not 1", n)
		}
		return err
	})
	ns.waitForNames(t, startLimit, "nvidia.com/gpu", "nvidia.com/gpu-2gb")
	ns.parallel(ns.applyPodByPod("mps-extended-resource/job.yaml", 2), 3)
	var running, pending []string
	eventually(t, startLimit, func() error {
		if running, pending = ns.podsOf("gpu-2gb"); len(pending) != 1 {
			return fmt.Errorf("%d pods of the job are pending, not 1", len(pending))
		}
		return nil
	})
	require.Len(t, running, 2)
	for _, pod := range running {
		grants := ns.requested(pod)
		assert.Equal(t, "mps", grants[0].Type)
		assert.Equal(t, 0, grants[0].Index)
		ns.limitedTo(pod, "main", 2048)
	}
	assert.Contains(t, ns.event(pending[0], "FailedScheduling", startLimit), "cannot allocate all claims")

	const tooLarge = "request for 'nvidia.com/gpu-2gb: 2' too large: maximum request size for shared resources is 1"
	eventually(t, startLimit, func() error {
		if err := ns.requests("nvidia.com/gpu-2gb", 2); err == nil || !strings.Contains(err.Error(), tooLarge) {
			return fmt.Errorf("the request was not refused as it should be: %w", err)
		}
		return nil
	})
	ns.create(limited("whole", "nvidia.com/gpu", 2))
	status := ns.ready("whole").Status.ExtendedResourceClaimStatus
	for _, g := range ns.granted(status.ResourceClaimName) {
		assert.Equal(t, "gpu", g.Type)
		assert.NotEqual(t, 0, g.Index)
	}
	ns.do("exec", running[0], "--", "touch", "/tmp/end")
	ns.do("wait", "--for=condition=Ready", "--timeout="+startLimit.String(), "pod/"+pending[0])
	require.NoError(t, ns.silence())
}

// withValues adds a file of demo/specs to the values of the installed chart until the end of the test.
func (c *cluster) withValues(t *testing.T, spec string) {
	t.Helper()
	c.helm(t, "upgrade", "prism", filepath.Join(c.root, "deployments/helm/prism"), "--reuse-values",
		"--values", filepath.Join(c.root, "demo/specs", spec))
	t.Cleanup(func() {
		c.helm(t, "rollback", "prism")
		c.plugin(t)
	})
	c.plugin(t)
}

// TestMPSServiceDisabled_Reported: for mode mps without the service, the plugin reports the missing value of the chart. The GPUs are still
// allocated in their other modes.
func TestMPSServiceDisabled_Reported(t *testing.T) {
	ns := mpsExclusive(t)
	ns.withValue(t, "mps.enabled=false")
	notices(t, "there is no service", func() error { return ns.mpsTainted(true) })
	t.Log(ns.warned("MPSUnavailable", "mps.enabled"))
	ns.create(mpsPod("waits", sharedGPUs[0], ""))
	ns.waits("waits")
	ns.createShare("time-sliced", sharedGPUs[0])
	ns.share("time-sliced", "share")
	ns.delete("pod", "time-sliced", "waits")

	ns.create(workload{name: "in-claim", ref: "gpu", request: request{class: gpuClass, driver: driverName, config: `{
		"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "GPUConfig", "sharing": {"strategy": "MPS"}}`}})
	message := ns.event("in-claim", prepareFailed, startLimit)
	t.Log(message)
	assert.Contains(t, message, "mps.enabled")
}

// mpsOfNVIDIA checks the two manifests for NVIDIA's driver that share with MPS. The directory of the service depends on the driver name, so
// the test renews the service.
func (ns *namespace) mpsOfNVIDIA() {
	ns.t.Helper()
	ns.apply("nvidia-driver/mps.yaml")
	whole := ns.grantedTo(ns.ready("mps-pod"), "shared-gpu")
	ns.apply("nvidia-driver/mps-mig.yaml")
	mig := ns.grantedTo(ns.ready("mps-mig-pod"), "shared-mig")
	require.Len(ns.t, mig, 1)
	for _, container := range []string{"mps-ctr0", "mps-ctr1"} {
		ns.sees("mps-pod", container, whole...)
		ns.limitedTo("mps-pod", container, 10*1024)
		assert.Contains(ns.t, ns.allocates("mps-pod", container, 0), "multiprocessors 66,", "half of 132")
		ns.sees("mps-mig-pod", container, mig...)
		ns.limitedTo("mps-mig-pod", container, 6*1024)
	}
	daemons, err := ns.controlDaemons(nvidiaDriver)
	require.NoError(ns.t, err)
	assert.Len(ns.t, daemons, 2)
	ns.delete("pod", "mps-pod", "mps-mig-pod")
	eventually(ns.t, startLimit, func() error {
		daemons, err := ns.controlDaemons(nvidiaDriver)
		if err == nil && len(daemons) > 0 {
			err = fmt.Errorf("control daemons still run: %+v", daemons)
		}
		return errors.Join(err, ns.computeMode(whole[0].UUID, modeDefault))
	})
}
