package e2e

import (
	"fmt"
	"os"
	"strings"

	"github.com/stretchr/testify/require"
)

// applyPodByPod creates what a manifest of demo/specs with one Job describes, but the Job's pods one after another, until so many are ready.
// It returns the Job, as "job.batch/name".
//
// Pods that ask for shares of one device must not be scheduled at the same time in a test that counts them: while kube-scheduler 1.35 to
// 1.37 stores an allocation, the claim is in its cache and still in its map of allocations in flight, and the capacity that it consumes is
// summed up over both (claimTracker.GatherAllocatedState). A pod that is scheduled in that moment finds a share less than there are: it gets
// another device, or waits for the next change of claims or ResourceSlices, or about 5 minutes. docs/sharing.md says so to users.
func (ns *namespace) applyPodByPod(spec string, ready int) (job string) {
	ns.t.Helper()
	manifest, err := os.ReadFile(ns.spec(spec))
	require.NoError(ns.t, err)
	head, tail, found := strings.Cut(string(manifest), "\n  parallelism: ")
	require.True(ns.t, found, "%s has no Job with a parallelism", spec)
	_, tail, _ = strings.Cut(tail, "\n")
	created, err := ns.run(head+"\n  parallelism: 1\n"+tail, ns.kubectl("--namespace", ns.name, "create", "--output=name", "--filename", "-")...)
	require.NoError(ns.t, err)
	for object := range strings.FieldsSeq(created) {
		if strings.HasPrefix(object, "job.batch/") {
			job = object
		}
	}
	require.NotEmpty(ns.t, job, "%s has no Job", spec)
	for n := range ready {
		ns.parallel(job, n+1)
		ns.do("wait", fmt.Sprintf("--for=jsonpath={.status.ready}=%d", n+1), "--timeout="+startLimit.String(), job)
	}
	return job
}

// parallel lets a Job have so many pods at once.
func (ns *namespace) parallel(job string, pods int) {
	ns.t.Helper()
	ns.do("patch", job, "--patch", fmt.Sprintf(`{"spec":{"parallelism":%d}}`, pods))
}
