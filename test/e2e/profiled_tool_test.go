package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/test/images"
)

// eachOfTool returns a script that sends a signal to every process of the profiler in a container, and fails if there is none.
func eachOfTool(signal string) string {
	return `for process in /proc/[0-9]*; do
		case $(readlink $process/exe) in /run/prism/tool/*) kill -` + signal + ` ${process#/proc/} && sent=yes;; esac
	done; [ "$sent" ]`
}

// TestProfile_TwoVersions_ClaimChooses: each claim is recorded and imported by the version that it names, or by the highest. If a version
// is not installed, the refusal lists the installed ones.
func TestProfile_TwoVersions_ClaimChooses(t *testing.T) {
	ns := profiled(t, 3)
	container := inPrograms("main", "python3", "/opt/facts.py")
	ns.createProfiled("named", `{}`, nil, container)
	ns.createProfiled("highest", `{"toolVersion": null}`, nil, container)
	ns.createProfiled("none", `{"toolVersion": "2021.1.3"}`, nil, container)
	for pod, by := range map[string][2]string{
		"named": {images.NsysVersion, images.NsysRelease}, "highest": {images.LaterNsysVersion, images.LaterNsysRelease},
	} {
		assert.Equal(t, map[string]int32{"main": 7}, ns.exits(pod))
		r := ns.reportsOf(pod, 1, "Ready")[0]
		assert.Equal(t, by[0], r.Spec.Tool)
		assert.Equal(t, []string{"python3.11"}, exportedBy(t, by[1], ns.downloads(r)))
	}
	message := ns.says("none", "ProfilerReady", metav1.ConditionFalse, "ToolNotInstalled")
	for _, version := range []string{"2021.1.3", images.NsysVersion, images.LaterNsysVersion} {
		assert.Contains(t, message, version)
	}
}

// TestProfile_ToolKilled_ProcessGoesOn: the profiler's process is killed; the profiled process goes on, and its report is lost.
func TestProfile_ToolKilled_ProcessGoesOn(t *testing.T) {
	ns := profiled(t, 1)
	ns.records("tool-killed", `{}`)
	ns.do("exec", "tool-killed", "--", "bash", "-c", eachOfTool("KILL"))
	r := ns.reportsOf("tool-killed", 1, "Lost")[0]
	assert.Equal(t, "ReportLost", r.Status.Reason)
	ns.says("tool-killed", "ReportAvailable", metav1.ConditionFalse, "ReportLost")
	assert.Zero(t, ns.pod("tool-killed").Status.ContainerStatuses[0].RestartCount)
	ns.ends("tool-killed")
}

// TestProfile_ToolHangs_ProcessExits: the profiler's process hangs; the profiled process goes on, and its container exits with its code
// after the profiler's timeout.
func TestProfile_ToolHangs_ProcessExits(t *testing.T) {
	ns := profiled(t, 1)
	ns.records("tool-hangs", `{}`)
	ns.do("exec", "tool-hangs", "--", "bash", "-c", eachOfTool("STOP"))
	ns.ends("tool-hangs")
	assert.Equal(t, "ReportLost", ns.reportsOf("tool-hangs", 1, "Lost")[0].Status.Reason)
}

// TestProfile_ToolCannotStart_ProcessRunsOnce: the profiler cannot write to /dev/shm.
func TestProfile_ToolCannotStart_ProcessRunsOnce(t *testing.T) {
	ns := profiled(t, 1)
	program := untilEnd()
	program.VolumeMounts = []corev1.VolumeMount{{Name: "memory", MountPath: "/dev/shm", ReadOnly: true}}
	ns.createProfiled("no-memory", `{}`, func(spec *corev1.PodSpec) {
		memory := corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &memory}})
	}, program)
	ns.prints("no-memory", "main", "begins")
	assert.Equal(t, "FellBackUnprofiled", ns.reportsOf("no-memory", 1, "Lost")[0].Status.Reason)
	ns.says("no-memory", "Profiling", metav1.ConditionFalse, "FellBackUnprofiled")
	assert.Equal(t, "begins\n", ns.do("logs", "no-memory"), "it was started once")
	ns.ends("no-memory")
}
