package e2e

import (
	"fmt"
	"os"
	"strings"

	"github.com/stretchr/testify/require"
)

// applyPodByPod applies a manifest of demo/specs with one Job, and creates the Job's pods one after another, until ready pods are ready.
// It returns the Job, as "job.batch/name".
//
// A test that counts shares must not let pods that request shares of one device be scheduled at the same time: while kube-scheduler 1.35 to
// 1.37 stores an allocation, the claim is in its cache and still in its map of allocations in flight, and its consumed capacity is counted
// twice (claimTracker.GatherAllocatedState). A pod that is scheduled in that moment sees one free share less than exist: it gets another
// device, or waits for the next change of claims or ResourceSlices, or about 5 minutes. docs/sharing.md says so to users.
func (ns *namespace) applyPodByPod(spec string, ready int) (job string) {
	ns.t.Helper()
	manifest, err := os.ReadFile(ns.spec(spec))
	require.NoError(ns.t, err)
	head, tail, found := strings.Cut(string(manifest), "\n  parallelism: ")
	require.True(ns.t, found, "no Job with a parallelism in %s", spec)
	_, tail, _ = strings.Cut(tail, "\n")
	created, err := ns.run(head+"\n  parallelism: 1\n"+tail, ns.kubectl("--namespace", ns.name, "create", "--output=name", "--filename", "-")...)
	require.NoError(ns.t, err)
	for object := range strings.FieldsSeq(created) {
		if strings.HasPrefix(object, "job.batch/") {
			job = object
		}
	}
	require.NotEmpty(ns.t, job, "no Job in %s", spec)
	for n := range ready {
		ns.parallel(job, n+1)
		ns.do("wait", fmt.Sprintf("--for=jsonpath={.status.ready}=%d", n+1), "--timeout="+startLimit.String(), job)
	}
	return job
}

// parallel sets the parallelism of a Job.
func (ns *namespace) parallel(job string, pods int) {
	ns.t.Helper()
	ns.do("patch", job, "--patch", fmt.Sprintf(`{"spec":{"parallelism":%d}}`, pods))
}
