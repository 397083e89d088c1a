package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/test/images"
)

// TestProfile_Namespaces_Profiled: in user namespaces, with processes that other containers see, and with the processes of the node, a
// process is profiled and exits as without. Commands that are executed in the container, and its probes, are not profiled.
func TestProfile_Namespaces_Profiled(t *testing.T) {
	ns := profiled(t, 3)
	no, yes := false, true
	waits := inPrograms("main", "python3", "-c", "import os, sys, time\nwhile not os.path.exists('/tmp/end'): time.sleep(0.05)\nsys.exit(3)")
	probe := &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 120, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
		Command: []string{"python3", "-c", "import os; exit('LD_PRELOAD' in os.environ)"},
	}}}
	waits.LivenessProbe, waits.ReadinessProbe = probe, probe
	for pod, change := range map[string]func(*corev1.PodSpec){
		"user-namespace": func(spec *corev1.PodSpec) { spec.HostUsers = &no },
		"shared-pids":    func(spec *corev1.PodSpec) { spec.ShareProcessNamespace = &yes },
		"host-pids":      func(spec *corev1.PodSpec) { spec.HostPID = true },
	} {
		ns.createProfiled(pod, `{"match": {"regex": "^python3", "maxSessions": 16}}`, change, waits)
	}
	for _, pod := range []string{"user-namespace", "shared-pids", "host-pids"} {
		ns.ready(pod)
		const executed = "import os; print(os.getppid(), [n for n in os.environ if 'NSYS' in n or 'QUADD' in n])"
		assert.Contains(t, ns.do("exec", pod, "--", "python3", "-c", executed), " []", "a command that is executed in %s", pod)
		code := "exit code 9"
		_, err := ns.try("exec", pod, "--", "python3", "-c", "exit(9)")
		require.Error(t, err)
		assert.Contains(t, err.Error(), code)
		require.Zero(t, ns.pod(pod).Status.ContainerStatuses[0].RestartCount)
		ns.do("exec", pod, "--", "touch", "/tmp/end")
		assert.Equal(t, map[string]int32{"main": 3}, ns.exits(pod), pod)
		r := ns.reportsOf(pod, 1, "Ready")[0]
		assert.Equal(t, []string{"python3.11"}, exported(t, ns.downloads(r)), pod)
	}
}

// retentionLimit is longer than a retention of three minutes and two sweeps of the plugin.
const retentionLimit = 2 * startLimit

// preloading is a pod with its own list of preloaded libraries.
type preloading struct {
	change func(*corev1.PodSpec)
	// list is the list that the container sees.
	list string
	// reason is why it is not profiled, if it is not.
	reason string
}

// mounted returns a change that mounts a volume with the files of the config map.
func mounted(path, subPath string, source corev1.VolumeSource) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "list", VolumeSource: source})
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "list", MountPath: path, SubPath: subPath}}
	}
}

// TestProfile_PreloadList_MergedOrUnprofiled: a list of the pod is kept, wherever it comes from, and nothing is written into a volume: with
// a volume at /etc the program runs without a profile, and the claim reports the reason.
func TestProfile_PreloadList_MergedOrUnprofiled(t *testing.T) {
	ns := profiled(t, 3)
	const library = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
	ns.do("create", "configmap", "list", "--from-literal=ld.so.preload="+library+"\n")
	list := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "list"}}}
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	listed := func(spec *corev1.PodSpec) {
		mounted("/etc", "", empty)(spec)
		writes := corev1.Container{Name: "writes", Image: testImage, ImagePullPolicy: corev1.PullNever}
		writes.Command, writes.VolumeMounts = []string{"sh", "-c", "echo " + library + " >/volume/ld.so.preload"}, []corev1.VolumeMount{{Name: "list", MountPath: "/volume"}}
		spec.InitContainers = []corev1.Container{writes}
	}
	for pod, c := range map[string]preloading{
		"sub-path":      {mounted("/etc/ld.so.preload", "ld.so.preload", list), "jemalloc True", ""},
		"etc-with-list": {listed, "jemalloc True", ""},
		"etc-empty":     {mounted("/etc", "", empty), "jemalloc False", "PreloadNotPossible"},
	} {
		ns.createProfiled(pod, `{}`, c.change, inPrograms("main", "bash", "-c", "python3 /opt/facts.py; echo code $?; sleep 3600"))
		ns.prints(pod, "main", "code 7")
		assert.Contains(t, ns.do("logs", pod), c.list, pod)
		if c.reason == "" {
			ns.reportsOf(pod, 1, "Ready")
			continue
		}
		message := ns.says(pod, "Profiling", metav1.ConditionFalse, c.reason)
		assert.Contains(t, message, "main")
		for _, r := range ns.allReports("--field-selector", "spec.claim="+pod) {
			assert.Equal(t, c.reason, r.Status.Reason)
		}
	}
}

// TestProfile_PathInContainer_Downloaded: reports that stay in the container are listed with their path, and downloaded while it runs.
func TestProfile_PathInContainer_Downloaded(t *testing.T) {
	ns := profiled(t, 1)
	const fields = `{"output": {"type": "ContainerPath", "path": "/tmp/reports-%{POD_FULLNAME}", "fileName": "{PROCESS_NAME}"}, "match": {"regex": "facts\\.py$"}}`
	ns.createProfiled("path", fields, nil, inPrograms("main", "bash", "-c", "python3 /opt/facts.py; echo ended $?; sleep 3600"))
	ns.prints("path", "main", "ended 7")
	r := ns.reportsOf("path", 1, "Ready", "Raw")[0]
	assert.True(t, strings.HasPrefix(r.Status.Path, "/tmp/reports-path/python3.11"), r.Status.Path)
	assert.Contains(t, ns.do("exec", "path", "--", "ls", "/tmp/reports-path"), "python3.11.nsys-rep")
	assert.Contains(t, ns.must(t, ns.kubectlPrism("list", "--claim", "path")...), "/tmp/reports-path")
	dir := t.TempDir()
	ns.must(t, ns.kubectlPrism("download", "--claim", "path", "--output", dir)...)
	exported(t, dir+"/python3.11.nsys-rep")
}

// TestProfile_RetentionPassed_ReportGone: a report outlives its pod and its claim. After its retention it is removed with all files of the
// claim on the node.
func TestProfile_RetentionPassed_ReportGone(t *testing.T) {
	ns := profiled(t, 1)
	ns.createProfiled("short", `{"output": {"retention": "3m"}, "match": {"regex": "facts\\.py$"}}`, nil, inPrograms("main", "python3", "/opt/facts.py"))
	assert.Equal(t, map[string]int32{"main": 7}, ns.exits("short"))
	folder := filepath.Join(ns.stateDirectory(), "profiles", ns.reportsOf("short", 1, "Ready")[0].Spec.ClaimUID)
	ns.delete("pod", "short")
	ns.delete("resourceclaim", "short")
	require.DirExists(t, folder)
	eventually(t, retentionLimit, func() error {
		found, err := ns.reports()
		if err == nil && len(found) > 0 {
			return errReports(found)
		}
		if _, gone := os.Stat(folder); gone == nil {
			return fmt.Errorf("%s is there", folder)
		}
		return err
	})
}

// TestProfile_NamespaceDeleted_ReportsGone: a namespace is deleted while one of its processes is recorded. It is soon gone with the files
// of its claim on the node, although reports cannot be deleted before their containers end.
func TestProfile_NamespaceDeleted_ReportsGone(t *testing.T) {
	ns := profiled(t, 1)
	ns.records("left", `{}`)
	folder := filepath.Dir(ns.inbox("left"))
	require.DirExists(t, folder)
	begin := time.Now()
	ns.must(t, ns.kubectl("delete", "--timeout", startLimit.String(), "namespace", ns.name)...)
	gone := time.Since(begin)
	eventually(t, startLimit, func() error {
		if _, err := os.Stat(folder); err == nil {
			return fmt.Errorf("%s is there", folder)
		}
		return nil
	})
	t.Logf("the namespace was gone after %.1f s, its claim's folder after %.1f s", gone.Seconds(), time.Since(begin).Seconds())
}

// TestProfile_Defaults_ByNamespace: pods in a namespace of a default in the chart are profiled without a request; a claim can opt out.
func TestProfile_Defaults_ByNamespace(t *testing.T) {
	ns := profiled(t, 2)
	ns.must(t, ns.kubectl("label", "namespace", ns.name, "e2e.prism.dev/profiled=yes")...)
	container := inPrograms("main", "python3", "/opt/facts.py", "by-default")
	plain := workload{name: "plain", ref: "gpu", named: true, image: images.ProgramsImage, command: container.Command}
	plain.request = request{class: gpuClass}
	ns.create(plain)
	ns.createProfiled("out", `{"enabled": false}`, nil, container)
	for _, pod := range []string{"plain", "out"} {
		assert.Equal(t, map[string]int32{"main": 7}, ns.exits(pod))
	}
	ns.reportsOf("plain", 1, "Ready")
	all := ns.allReports()
	require.Len(t, all, 1, "%v", errReports(all))
}
