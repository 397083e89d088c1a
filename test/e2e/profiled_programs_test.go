package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/test/images"
)

// matchesPrograms selects the programs of testdata/profile by their names, including shells.
const matchesPrograms = `{"match": {"regex": "/opt/(facts|script|train)|dies$", "useDefaultExcludes": false}, ` + ofSeveralContainers + `}`

// ofSeveralContainers is for pods of several containers: the earlier version removes the state of other containers' sessions.
const ofSeveralContainers = `"toolVersion": "` + images.LaterNsysVersion + `"`

// maxRecordings is how often a pod is run for its reports.
const maxRecordings = 3

// runsAs checks that containers with a profile of these fields exit and print as without one, that the claim has this number of reports,
// and that the reports of the ready containers are Ready. It returns all reports, which belong to one pod. On a busy machine nsys 2022.4.2
// sometimes fails at a process that exits soon: then runsAs runs another pod.
func (ns *namespace) runsAs(pod, fields string, reports int, ready []string, containers ...corev1.Container) []reportOf {
	ns.t.Helper()
	without := pod + "-without"
	ns.createProfiled(without, `{"enabled": false}`, sameHost, containers...)
	want := ns.exits(without)
	for i := 1; ; i++ {
		name := fmt.Sprintf("%s-%d", pod, i)
		ns.createProfiled(name, fields, sameHost, containers...)
		assert.Equal(ns.t, want, ns.exits(name), "exit codes")
		for container := range maps.Keys(want) {
			assert.Equal(ns.t, ns.lines(without, container), ns.lines(name, container), "output of %s", container)
		}
		its := ns.reportsOf(name, reports, "Ready", "Lost")
		failed := slices.DeleteFunc(slices.Clone(its), func(r reportOf) bool {
			return r.Status.State == "Ready" || !slices.Contains(ready, r.Spec.Container)
		})
		byNsys := slices.IndexFunc(failed, func(r reportOf) bool { return !strings.HasPrefix(r.Status.Message, "nsys exited") }) < 0
		if len(failed) > 0 && byNsys && i < maxRecordings {
			ns.t.Logf("nsys failed by itself: %+v", failed)
			continue
		}
		assert.Empty(ns.t, failed, "reports that are not Ready")
		assert.Empty(ns.t, ns.allReports("--field-selector", "spec.claim="+without), "reports of a claim without a profile")
		return its
	}
}

// lines returns the output of a container. It sorts it: the order of the runtime's two streams is random.
func (ns *namespace) lines(pod, container string) []string {
	ns.t.Helper()
	return slices.Sorted(strings.Lines(ns.do("logs", pod, "--container", container)))
}

// variables returns the environment variables that programs print.
func variables(more ...corev1.EnvVar) []corev1.EnvVar {
	return append([]corev1.EnvVar{{Name: "EMPTY", Value: ""}, {Name: "QUOTED", Value: "a \"b\"\n$c"}, {Name: "HOME", Value: "/tmp"}}, more...)
}

// TestProfile_Programs_RunAsWithout: interpreters, scripts, programs with another allocator or with a terminal, and programs that signals
// end get the same arguments, files, rights and limits under the profiler, print the same and exit with the same code.
func TestProfile_Programs_RunAsWithout(t *testing.T) {
	ns := profiled(t, 2)
	python := inPrograms("python", "python3", "/opt/facts.py", "an argument", "")
	python.Env, python.WorkingDir = variables(), "/tmp"
	terminal := inPrograms("terminal", "python3", "/opt/facts.py")
	terminal.Env, terminal.TTY = variables(), true
	jemalloc := inPrograms("jemalloc", "python3", "/opt/facts.py")
	jemalloc.Env = variables(corev1.EnvVar{Name: "LD_PRELOAD", Value: "libjemalloc.so.2"})
	script := inPrograms("script", "/opt/script.sh", "1", "2 3")
	ready := []string{"python", "terminal", "jemalloc", "script"}
	reports := ns.runsAs("programs", matchesPrograms, 4, ready, python, terminal, jemalloc, script)
	assert.Equal(t, "bash", ns.reportFrom(reports, "script").Spec.Process)
	pod := reports[0].Spec.Pod
	assert.Contains(t, ns.do("logs", pod, "--container", "jemalloc"), "jemalloc True")
	codes := ns.exits(pod)
	assert.Equal(t, map[string]int32{"python": 7, "terminal": 7, "jemalloc": 7, "script": 9}, codes)
}

// sameHost gives the pod a host name that does not depend on its own.
func sameHost(spec *corev1.PodSpec) { spec.Hostname = "host" }

// TestProfile_Restricted_RunsAsWithout: a user without rights, a read-only root without a folder for temporary files, processes that a
// signal ends, and processes of a launcher.
func TestProfile_Restricted_RunsAsWithout(t *testing.T) {
	ns := profiled(t, 2)
	yes, no, user := true, false, int64(1234)
	restricted := inPrograms("restricted", "python3", "/opt/facts.py")
	restricted.Env = variables()
	restricted.SecurityContext = &corev1.SecurityContext{
		RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &yes, ReadOnlyRootFilesystem: &yes, AllowPrivilegeEscalation: &no,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	signals := inPrograms("signals", "/opt/signals.sh")
	launcher := inPrograms("launcher", "torchrun", "1", "/opt/train.py")
	fields := `{"match": {"regex": "/opt/(facts|train)|dies$", "useDefaultExcludes": false, "maxSessions": 16}, ` + ofSeveralContainers + `}`
	// nsys may record nothing of a process that exits at once.
	ready := []string{"restricted", "launcher"}
	reports := ns.runsAs("restricted", fields, 4, ready, restricted, signals, launcher)
	for _, container := range ready {
		assert.Equal(t, "python3.11", ns.reportFrom(reports, container).Spec.Process)
	}
	assert.Equal(t, map[string]int32{"restricted": 7, "signals": 4, "launcher": 0}, ns.exits(reports[0].Spec.Pod))
}

// TestProfile_Distroless_Downloaded: a program in an image without a shell, with a read-only root, is recorded, and its report contains it.
func TestProfile_Distroless_Downloaded(t *testing.T) {
	ns := profiled(t, 2)
	yes, user := true, int64(65532)
	main := inPrograms("main", "/opt/facts", "an argument", "")
	main.Image, main.Env = images.DistrolessImage, append(variables(), corev1.EnvVar{Name: "STAY", Value: "2"}) // nsys may record no call of a process that exits at once
	main.SecurityContext = &corev1.SecurityContext{RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &yes, ReadOnlyRootFilesystem: &yes}
	reports := ns.runsAs("distroless", `{}`, 1, []string{"main"}, main)
	assert.Equal(t, "facts", reports[0].Spec.Process)
	assert.Equal(t, []string{"facts"}, exported(t, ns.downloads(reports[0])))
}

// TestProfile_NoLoader_RunsUnprofiled: programs that do not load libraries of the GNU C library run as without a profile, and the claim
// reports why they have no report. So do programs in a small image without the libraries that the profiler needs; their report contains the
// reason.
func TestProfile_NoLoader_RunsUnprofiled(t *testing.T) {
	ns := profiled(t, 3)
	inMinimal := func(name, program string) corev1.Container {
		container := inPrograms(name, program, "an argument", "")
		container.Image, container.Env = images.MinimalImage, variables()
		return container
	}
	static, musl, dynamic := inMinimal("static", "/opt/facts-static"), inMinimal("musl", "/opt/facts-musl"), inMinimal("dynamic", "/opt/facts")
	shell := corev1.Container{Name: "shell", Image: testImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", "echo $0; exit 5"}}
	shell.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	without := "no-loader-without"
	ns.createProfiled(without, `{"enabled": false}`, sameHost, static, musl, dynamic, shell)
	ns.createProfiled("no-loader", `{"match": {"regex": "."}}`, sameHost, static, musl, dynamic, shell)
	want := map[string]int32{"static": 5, "musl": 5, "dynamic": 5, "shell": 5}
	assert.Equal(t, want, ns.exits(without))
	assert.Equal(t, want, ns.exits("no-loader"))
	for name := range want {
		assert.Equal(t, ns.do("logs", without, "--container", name), ns.do("logs", "no-loader", "--container", name), name)
	}
	reasons := map[string]string{}
	for _, r := range ns.reportsOf("no-loader", 3, "Lost") {
		reasons[r.Spec.Container] = r.Status.Reason
	}
	// The image of the dynamic program lacks libgcc_s.so.1. Shells are excluded by default.
	assert.Equal(t, map[string]string{"static": "StaticOrMusl", "musl": "StaticOrMusl", "dynamic": "FellBackUnprofiled"}, reasons)
	// A claim keeps its status while its pod runs.
	shell.Command = []string{"sleep", "3600"}
	ns.createProfiled("stays", `{"match": {"regex": ".", "useDefaultExcludes": false}}`, nil, shell)
	ns.says("stays", "Profiling", metav1.ConditionFalse, "StaticOrMusl")
}
