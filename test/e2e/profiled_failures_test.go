package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// untilEnd returns a container whose process exits with 3 when a file exists.
func untilEnd() corev1.Container {
	return inPrograms("main", "python3", "-c", "import os, sys, time\nprint('begins', flush=True)\nwhile not os.path.exists('/tmp/end'): time.sleep(0.05)\nsys.exit(3)")
}

// records creates a pod whose process is recorded until ends creates its file.
func (ns *namespace) records(pod, fields string) {
	ns.t.Helper()
	ns.createProfiled(pod, fields, nil, untilEnd())
	ns.prints(pod, "main", "begins")
	ns.reportsOf(pod, 1, "Recording")
}

// ends ends the process of such a pod.
func (ns *namespace) ends(pod string) {
	ns.t.Helper()
	ns.do("exec", pod, "--", "touch", "/tmp/end")
	assert.Equal(ns.t, map[string]int32{"main": 3}, ns.exits(pod), pod)
}

// TestProfile_ContainerKilled_Lost: a container is killed with all its processes.
func TestProfile_ContainerKilled_Lost(t *testing.T) {
	ns := profiled(t, 1)
	ns.records("killed", `{}`)
	ns.must(t, ns.onNode("kill", "-KILL", ns.pid(t, ns.pod("killed")))...)
	assert.Equal(t, map[string]int32{"main": 137}, ns.exits("killed"))
	assert.Equal(t, "ReportLost", ns.reportsOf("killed", 1, "Lost")[0].Status.Reason)
}

// TestProfile_OutOfMemory_AsWithout: a container that exceeds its memory limit ends as without a profile.
func TestProfile_OutOfMemory_AsWithout(t *testing.T) {
	ns := profiled(t, 1)
	greedy := inPrograms("main", "python3", "-c", "keep = []\nwhile True: keep.append(bytearray(16 << 20))")
	greedy.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}
	ns.createProfiled("greedy", `{}`, nil, greedy)
	assert.Equal(t, map[string]int32{"main": 137}, ns.exits("greedy"))
	ns.reportsOf("greedy", 1, "Ready", "Lost")
}

// TestProfile_InboxFilled_Truncated: a container that fills its folder of recordings loses its files there; other claims are recorded as
// before.
func TestProfile_InboxFilled_Truncated(t *testing.T) {
	ns := profiled(t, 2)
	ns.records("fills", `{"output": {"maxBytes": "32Mi"}}`)
	ns.do("exec", "fills", "--", "dd", "if=/dev/zero", "of=/run/prism/results/filling", "bs=1M", "count=64")
	ns.records("beside", `{"output": {"maxBytes": "32Mi"}}`)
	message := ns.says("fills", "Profiling", metav1.ConditionFalse, "StoreFull")
	t.Log(message)
	eventually(t, reportLimit, func() error {
		info, err := os.Stat(filepath.Join(ns.inbox("fills"), "filling"))
		if err == nil && info.Size() > 0 {
			err = fmt.Errorf("the file still has %d bytes", info.Size())
		}
		return err
	})
	ns.ends("fills")
	ns.ends("beside")
	ns.reportsOf("beside", 1, "Ready")
}

// TestProfile_PluginGone_RecordingGoesOn: while the plugin of a node is killed, replaced, or hangs, processes are recorded, and the list
// reports that the node does not respond. The plugin finds the report later.
func TestProfile_PluginGone_RecordingGoesOn(t *testing.T) {
	ns := profiledExclusive(t)
	ns.records("recorded", `{}`)
	plugin := ns.freshPlugin(t)
	ns.must(t, ns.onNode("kill", "-KILL", ns.pid(t, plugin))...)
	eventually(t, startLimit, func() error { return ns.restarted(plugin) })
	ns.reportsOf("recorded", 1, "Recording")
	ns.freshPlugin(t)
	ns.reportsOf("recorded", 1, "Recording")

	plugin = ns.plugin(t)
	hung := ns.pid(t, plugin)
	goesOn := ns.onNode("kill", "-CONT", hung)
	goOn := func() { _, _ = ns.run("", goesOn...) } // the kubelet restarts a plugin that hangs for long
	t.Cleanup(goOn)
	ns.must(t, ns.onNode("kill", "-STOP", hung)...)
	_, err := ns.reports()
	require.ErrorContains(t, err, "nodes "+nodeName+" are silent")
	assert.Contains(t, ns.stderrOf("get", "reports.profiles.gpu.prism.dev"), nodeName, "the warning")
	ns.ends("recorded")
	if _, err := ns.reports(); ns.restarted(plugin) != nil {
		require.ErrorContains(t, err, "nodes "+nodeName+" are silent", "still")
	}

	goOn()
	r := ns.reportsOf("recorded", 1, "Ready")[0]
	var content []byte
	eventually(t, startLimit, func() (err error) { // if a node did not respond, the controller asks it again 15 s later
		content, err = ns.content(r)
		return err
	})
	assert.NotEmpty(t, exported(t, ns.saves(r, content)))
}

// TestProfile_NodeWithoutPlugin_NamespaceMadeAgain: a node without a pod of the plugin is reported as silent. It does not block the
// deletion of a namespace, but an Event reports the reports that stay there. A user of a later namespace with the same name sees none of
// them, and the node removes them.
func TestProfile_NodeWithoutPlugin_NamespaceMadeAgain(t *testing.T) {
	ns := profiledExclusive(t)
	team := newNamespace(t, ns.cluster)
	team.createProfiled("former", `{}`, nil, inPrograms("main", "python3", "/opt/facts.py"))
	assert.Equal(t, map[string]int32{"main": 7}, team.exits("former"))
	former := team.reportsOf("former", 1, "Ready")[0]
	folder := filepath.Dir(team.inbox("former"))
	team.delete("pods,resourceclaims", "--all")
	lease := driverName + "." + nodeName
	ns.must(t, ns.kubectl("get", "lease", lease, "--namespace", system)...)
	ns.withoutPlugin(func() {
		_, err := team.reports()
		require.ErrorContains(t, err, "nodes "+nodeName+" are silent")
		_, err = team.try("get", "reports.profiles.gpu.prism.dev", former.Metadata.Name)
		require.ErrorContains(t, err, "these nodes did not answer: "+nodeName)
		ns.must(t, ns.kubectl("delete", "--timeout", startLimit.String(), "namespace", team.name)...)
		eventually(t, startLimit, func() error { return ns.reportsLeft(lease, team.name) })
	})
	require.DirExists(t, folder)
	ns.must(t, ns.kubectl("create", "namespace", team.name)...)
	tenant := team.userWith("tenant", "edit", team)
	list := strings.TrimSuffix(contentPath(team.name, ""), "//content")
	eventually(t, reportLimit, func() error {
		var found struct {
			Items       []reportOf `json:"items"`
			SilentNodes []string   `json:"silentNodes"`
		}
		raw, err := ns.run("", append(tenant, "get", "--raw", list)...)
		if err == nil {
			err = json.Unmarshal([]byte(raw), &found)
		}
		require.Empty(t, found.Items)
		if err == nil && len(found.SilentNodes) > 0 {
			err = fmt.Errorf("nodes %v are silent", found.SilentNodes)
		}
		return err
	})
	for _, path := range []string{list + "/" + former.Metadata.Name, contentPath(team.name, former.Metadata.Name)} {
		_, err := ns.run("", append(tenant, "get", "--raw", path)...)
		require.ErrorContains(t, err, "not found", path)
	}
	eventually(t, reportLimit, func() error {
		if _, err := os.Stat(folder); err == nil {
			return fmt.Errorf("%s is there", folder)
		}
		return nil
	})
}

// withoutPlugin calls do while the node has no pod of the plugin.
func (ns *namespace) withoutPlugin(do func()) {
	ns.t.Helper()
	patch := func(nodeSelector string) {
		ns.must(ns.t, ns.kubectl("patch", "daemonset", pluginName, "--namespace", system, "--patch",
			`{"spec": {"template": {"spec": {"nodeSelector": {"e2e.prism.dev/plugin": `+nodeSelector+`}}}}}`)...)
	}
	ns.t.Cleanup(func() {
		patch("null")
		ns.plugin(ns.t)
	})
	patch(`"none"`)
	eventually(ns.t, startLimit, func() error {
		var pods corev1.PodList
		err := ns.get(&pods, "pods", "--namespace", system, "--selector", pluginSelector)
		if err == nil && len(pods.Items) > 0 {
			err = errors.New("the pod of the plugin is still there")
		}
		return err
	})
	do()
	patch("null")
	ns.plugin(ns.t)
}

// reportsLeft returns an error until an Event about the Lease of the node names the namespace.
func (ns *namespace) reportsLeft(lease, of string) error {
	var events corev1.EventList
	err := ns.get(&events, "events", "--namespace", system, "--field-selector", "reason=ReportsLeft,involvedObject.name="+lease)
	for i := range events.Items {
		if strings.Contains(events.Items[i].Message, of) {
			return nil
		}
	}
	return errors.Join(err, fmt.Errorf("no Event about Lease %s names namespace %s", lease, of))
}

// stderrOf returns the stderr of a successful kubectl.
func (ns *namespace) stderrOf(args ...string) string {
	ns.t.Helper()
	const script = `said=$("$@" 2>&1 >/dev/null) && printf %s "$said" || { printf %s "$said" >&2; exit 1; }`
	line := append([]string{"sh", "-c", script, "sh"}, ns.kubectl(append([]string{"--namespace", ns.name}, args...)...)...)
	return ns.must(ns.t, line...)
}

// TestProfile_ControllersGone_RecordingGoesOn: without controllers processes are recorded, and a list fails with the message that the API
// does not answer. The reports are listed when the controllers are back.
func TestProfile_ControllersGone_RecordingGoesOn(t *testing.T) {
	ns := profiledExclusive(t)
	ns.controllers(t, 0)
	back := func() { ns.controllers(t, 2) }
	t.Cleanup(back)
	ns.createProfiled("alone", `{}`, nil, inPrograms("main", "python3", "/opt/facts.py"))
	assert.Equal(t, map[string]int32{"main": 7}, ns.exits("alone"))
	eventually(t, startLimit, func() error {
		_, err := ns.reports()
		if err == nil {
			return errors.New("the list is answered without a controller")
		}
		return nil
	})
	_, err := ns.run("", ns.kubectlPrism("list")...)
	require.Error(t, err)
	t.Log(err)
	assert.Contains(t, err.Error(), "controller", "the part that does not answer")
	back()
	eventually(t, startLimit, func() error {
		_, err := ns.reports()
		return err
	})
	ns.reportsOf("alone", 1, "Ready")
}

// TestProfile_Policy_Refused: a configuration that the cluster's policy forbids is refused by name, when it is written, and when a pod
// starts whose claim is older than the policy. The plugin needs no restart.
func TestProfile_Policy_Refused(t *testing.T) {
	ns := profiledExclusive(t)
	other := newNamespace(t, ns.cluster)
	plugin := ns.plugin(t).UID
	values := filepath.Join(t.TempDir(), "values.yaml")
	text := "profiler: {policy: {namespaces: [" + ns.name + "], maxBytes: 64Mi, maxRetention: 1h}}\n"
	require.NoError(t, os.WriteFile(values, []byte(text), 0o600))
	const fits = `"output": {"maxBytes": "32Mi", "retention": "30m"}`
	cases := map[string]struct {
		ns     *namespace
		fields string
		parts  []string
	}{
		"bytes":     {ns, `{"output": {"maxBytes": "65Mi", "retention": "30m"}}`, []string{"maxBytes", "64Mi", "profiler.policy.maxBytes"}},
		"retention": {ns, `{"output": {"maxBytes": "32Mi", "retention": "2h"}}`, []string{"retention", "1h", "profiler.policy.maxRetention"}},
		"elsewhere": {other, `{` + fits + `}`, []string{"namespace", other.name, "profiler.policy.namespaces"}},
	}
	for pod, c := range cases {
		claim, _ := profiledObjects(t, pod, c.fields)
		require.NoError(t, c.ns.createObject(claim))
	}
	ns.helm(t, "upgrade", "prism", filepath.Join(ns.root, "deployments/helm/prism"), "--reuse-values", "--values", values)
	t.Cleanup(func() { ns.helm(t, "rollback", "prism") })
	for pod, c := range cases {
		claim, object := profiledObjects(t, pod, c.fields, untilEnd())
		require.NoError(t, c.ns.createObject(object))
		c.ns.isRefusedFor(pod, c.parts...)
		c.ns.delete("resourceclaim", pod)
		c.ns.isDenied(pod, c.ns.createObject(claim), c.parts...)
	}
	claim, _ := profiledObjects(t, "args", `{"args": ["--sampling-trigger=timer"], `+fits+`}`)
	ns.isDenied("args", ns.createObject(claim), "ProfilerConfig.args", "profiler.policy.args")
	ns.createProfiled("allowed", `{`+fits+`}`, nil, inPrograms("main", "python3", "/opt/facts.py"))
	assert.Equal(t, map[string]int32{"main": 7}, ns.exits("allowed"))
	ns.reportsOf("allowed", 1, "Ready")
	assert.Equal(t, plugin, ns.plugin(t).UID, "the plugin applies the policy without a restart")
}

// isRefusedFor checks that a pod, whose claim has the same name, was refused with a message with these parts, and that the claim contains
// it.
func (ns *namespace) isRefusedFor(pod string, parts ...string) {
	ns.t.Helper()
	message := ns.event(pod, prepareFailed, startLimit)
	ns.t.Log(message)
	for _, part := range parts {
		assert.Contains(ns.t, message, part, pod)
	}
	ns.says(pod, "ProfilerReady", metav1.ConditionFalse, "NotAllowed")
	ns.notStarted(ns.pod(pod))
	ns.delete("pod", pod)
}
