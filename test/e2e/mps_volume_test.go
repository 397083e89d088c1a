package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownShmClaim is a claim for one GPU with this configuration.
const ownShmClaim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec:
  devices:
    requests: [{name: gpu, exactly: {deviceClassName: gpu.prism.dev}}]
    config:
    - opaque:
        driver: gpu.prism.dev
        parameters: {apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig%s}
`

// ownShmPod is a pod with its own volume at /dev/shm: name, claim, sizeLimit.
const ownShmPod = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "` + testImage + `"
    imagePullPolicy: Never
    command: [sleep, "3600"]
    resources: {claims: [{name: gpu}]}
    volumeMounts: [{name: memory, mountPath: /dev/shm}]
  volumes: [{name: memory, emptyDir: {medium: Memory, sizeLimit: %[3]s}}]
  resourceClaims: [{name: gpu, resourceClaimName: %[2]s}]
`

// shmKiB returns the size of /dev/shm in a container, as df prints it.
func (ns *namespace) shmKiB(pod string) string {
	ns.t.Helper()
	return ns.do("exec", pod, "--", "sh", "-c", "df -k /dev/shm | tail -1 | awk '{print $2}'")
}

// TestMPSOwnShm_LargeEnough_Stays: a smaller volume fails the container, with a message that is also in the claim's condition. Without MPS
// the volume stays, whatever its size.
func TestMPSOwnShm_LargeEnough_Stays(t *testing.T) {
	ns := mpsInClaim(t)
	require.NoError(t, ns.createText(fmt.Sprintf(ownShmClaim, "with-mps", ", sharing: {strategy: MPS}")))
	require.NoError(t, ns.createText(fmt.Sprintf(ownShmPod, "large", "with-mps", "1536Mi")))
	uuid := ns.grantedTo(ns.ready("large"), "gpu")[0].UUID
	assert.Equal(t, "1572864\n", ns.shmKiB("large"))
	assert.Equal(t, "own\n", ns.do("exec", "large", "--", "sh", "-c", "touch /dev/shm/own && ls /dev/shm"))
	assert.Contains(t, ns.do("exec", "large", "--", "env"), "CUDA_MPS_PIPE_DIRECTORY=/run/prism/mps\n")

	require.NoError(t, ns.createText(fmt.Sprintf(ownShmPod, "small", "with-mps", "64Mi")))
	const sentence = "the pod's volume at /dev/shm has size 64Mi, and a container that uses a GPU with MPS requires 1Gi there: " +
		"set sizeLimit of the volume to 1Gi or more, or remove it from the container"
	assert.Contains(t, ns.event("small", "Failed", startLimit), sentence)
	condition := ns.says("with-mps", "Ready", metav1.ConditionFalse, "ContainerRefused")
	assert.Equal(t, `container "main" of pod "small": `+sentence, condition)
	ns.do("wait", "--for=jsonpath={.status.containerStatuses[0].state.terminated.reason}=StartError", "--timeout="+startLimit.String(), "pod/small")
	ns.delete("pod", "small", "large")
	ns.delete("resourceclaim", "with-mps")
	ns.released(uuid)

	require.NoError(t, ns.createText(fmt.Sprintf(ownShmClaim, "without-mps", "")))
	require.NoError(t, ns.createText(fmt.Sprintf(ownShmPod, "without-mps", "without-mps", "64Mi")))
	ns.ready("without-mps")
	assert.Equal(t, "65536\n", ns.shmKiB("without-mps"))
	require.NoError(t, ns.silence())
}
