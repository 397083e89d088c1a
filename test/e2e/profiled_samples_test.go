package e2e

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The tests use the samples of NVIDIA's DevTools Sidecar Injector that profile processes.

// processesOf returns the processes of reports, by container, in order.
func processesOf(reports []reportOf) map[string][]string {
	its := map[string][]string{}
	for _, r := range reports {
		its[r.Spec.Container] = append(its[r.Spec.Container], r.Status.File)
	}
	for _, names := range its {
		slices.Sort(names)
	}
	return its
}

// TestProfile_Demo_Recorded: the example of the demo.
func TestProfile_Demo_Recorded(t *testing.T) {
	ns := profiled(t, 1)
	ns.apply("profile-training/pod.yaml")
	assert.Equal(t, map[string]int32{"main": 0}, ns.exits("training"))
	ns.reportsOf("training", 1, "Ready")
}

// TestProfile_Samples_Lookahead: the default pattern of the injector profiles processes outside the folders of tools.
func TestProfile_Samples_Lookahead(t *testing.T) {
	ns := profiled(t, 1)
	const fields = `{
		"match": {"regex": "^(?!/bin/)(?!/sbin/)(?!/usr/bin/)(?!/usr/sbin/)(?!.*nsys( |$))(?!.*cat( |$))(?!.*nohup( |$)).*$", "useDefaultExcludes": false},
		"output": {"fileName": "auto_{PROCESS_NAME}_%{POD_FULLNAME}_%{CONTAINER_NAME}"}}`
	const script = `/usr/bin/python3 -c 'print("in a folder of tools")'; cat /dev/null; /usr/bin/env true; python3 -c 'print("profiled")'; exit 2`
	ns.createProfiled("lookahead", fields, nil, inPrograms("main", "/bin/bash", "-c", script))
	assert.Equal(t, map[string]int32{"main": 2}, ns.exits("lookahead"))
	assert.Equal(t, "in a folder of tools\nprofiled\n", ns.do("logs", "lookahead"))
	found := processesOf(ns.reportsOf("lookahead", 1, "Ready"))
	assert.Equal(t, map[string][]string{"main": {"auto_python3.11_lookahead_main.nsys-rep"}}, found)
}

// TestProfile_Samples_Torchrun: the pattern for torchrun profiles the launcher, and its report contains the processes that it starts. A
// pattern for these processes profiles each, with its rank in the name of the report. Without slots the others run unprofiled.
func TestProfile_Samples_Torchrun(t *testing.T) {
	ns := profiled(t, 3)
	launcher := inPrograms("main", "/usr/bin/python3", "/usr/local/bin/torchrun", "2", "/opt/train.py")
	for pod, fields := range map[string]string{
		"launcher": `{"match": {"regex": "^/usr/bin/python3 /usr/local/bin/torchrun.*$"}, "output": {"fileName": "{PROCESS_NAME}"}}`,
		"ranks":    `{"match": {"regex": "python3 /opt/train\\.py"}, "output": {"fileName": "{PROCESS_NAME}_rank{RANK}"}}`,
		"one-slot": `{"match": {"regex": "python3 /opt/train\\.py", "maxSessions": 1}}`,
	} {
		ns.createProfiled(pod, fields, nil, launcher)
	}
	for pod, want := range map[string][]string{
		"launcher": {"python3.11.nsys-rep"}, "ranks": {"python3.11_rank0.nsys-rep", "python3.11_rank1.nsys-rep"},
	} {
		assert.Equal(t, map[string]int32{"main": 1}, ns.exits(pod), "the exit code of a rank")
		assert.Contains(t, ns.do("logs", pod), "ranks exited with [0, 1]")
		reports := ns.reportsOf(pod, len(want), "Ready")
		assert.Equal(t, map[string][]string{"main": want}, processesOf(reports))
		assert.NotEmpty(t, exported(t, ns.downloads(reports[0])))
	}
	assert.Equal(t, map[string]int32{"main": 1}, ns.exits("one-slot"))
	reasons := map[string]int{}
	reports := ns.reportsOf("one-slot", 2, "Ready", "Lost")
	for _, r := range reports {
		reasons[r.Status.State+" "+r.Status.Reason]++
	}
	assert.Equal(t, []string{"Lost SlotsTaken", "Ready "}, slices.Sorted(maps.Keys(reasons)))
}

// TestProfile_Samples_Ranges: a recording waits for its range, and reports that. A process that never reaches the range runs as without a
// profile. If two ranges are recorded, each has its own report.
func TestProfile_Samples_Ranges(t *testing.T) {
	ns := profiled(t, 3)
	program := inPrograms("main", "python3", "/opt/nvtx.py")
	ns.createProfiled("nvtx", `{"start": "NVTX", "nvtxRange": "step@*", "trace": ["nvtx", "osrt"], "match": {"regex": "nvtx\\.py$"}}`, nil, program)
	ns.createProfiled("cuda", `{"start": "CUDAProfilerAPI", "trace": ["cuda", "osrt"], "match": {"regex": "nvtx\\.py$"}}`, nil, program)
	ns.createProfiled("ranges", `{"start": "NVTX", "nvtxRange": "step@*", "captureRange": "Repeat", "maxRanges": 2, "trace": ["nvtx", "osrt"],
		"match": {"regex": "nvtx\\.py"}, "output": {"fileName": "{POD}"}}`, nil, inPrograms("main", "python3", "/opt/nvtx.py", "3"))
	for _, pod := range []string{"nvtx", "cuda", "ranges"} {
		ns.prints(pod, "main", "waits")
		ns.says(pod, "Profiling", metav1.ConditionFalse, "RangeNotReached")
		ns.do("exec", pod, "--", "touch", "/tmp/begin")
		ns.prints(pod, "main", "ended the range")
	}
	r := ns.reportsOf("nvtx", 1, "Ready")[0]
	require.Positive(t, r.Status.Size, "the report of the range, while the process goes on")
	ns.says("nvtx", "ReportAvailable", metav1.ConditionTrue, "Ready")
	assert.Equal(t, map[string][]string{"main": {"ranges.1.nsys-rep", "ranges.2.nsys-rep"}}, processesOf(ns.reportsOf("ranges", 2, "Ready")))
	for _, pod := range []string{"nvtx", "cuda", "ranges"} {
		assert.NotNil(t, ns.pod(pod).Status.ContainerStatuses[0].State.Running)
		ns.do("exec", pod, "--", "touch", "/tmp/end")
		assert.Equal(t, map[string]int32{"main": 6}, ns.exits(pod))
	}
	lost := ns.reportsOf("cuda", 1, "Lost")[0]
	assert.Equal(t, "RangeNotReached", lost.Status.Reason, "it never reached the range")
}

// TestProfile_TwoClaims_OneWins: if a container has two profiles, one records, and the reports of both say so; the program runs once.
func TestProfile_TwoClaims_OneWins(t *testing.T) {
	ns := profiled(t, 2)
	second := workload{name: "second", ref: "gpu", named: true}
	second.request = request{class: gpuClass, driver: driverName, config: profileConfig(t, `{}`)}
	ns.createClaim(second)
	container := inPrograms("main", "python3", "/opt/facts.py")
	container.Resources.Claims = append(container.Resources.Claims, corev1.ResourceClaim{Name: "second"})
	ns.createProfiled("first", `{}`, func(spec *corev1.PodSpec) {
		spec.ResourceClaims = append(spec.ResourceClaims, corev1.PodResourceClaim{Name: "second", ResourceClaimName: &second.name})
	}, container)
	assert.Equal(t, map[string]int32{"main": 7}, ns.exits("first"))
	var both []reportOf
	eventually(t, reportLimit, func() (err error) {
		both, err = ns.reports()
		if err == nil && (len(both) != 2 || both[0].Status.State != "Ready" && both[1].Status.State != "Ready") {
			err = errReports(both)
		}
		return err
	})
	ofClaim, reasons := map[string]bool{}, map[string]string{}
	for _, r := range both {
		ofClaim[r.Spec.Claim], reasons[r.Status.State] = true, r.Status.Reason
	}
	assert.Equal(t, map[string]string{"Ready": "SeveralProfiles", "Lost": "OtherProfileWon"}, reasons)
	assert.Equal(t, map[string]bool{"first": true, "second": true}, ofClaim)
}
