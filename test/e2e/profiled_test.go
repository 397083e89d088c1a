package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/test/images"
)

const (
	profilerName     = "prism-profiler"
	profilerSelector = "app.kubernetes.io/component=profiler"
	reportsVersion   = "profiles.gpu.prism.dev/v1alpha1"
	// toolLimit limits the time until a version of the profiler is installed and proven on a node, reportLimit the time until the report of
	// a process that exited can be downloaded, on a busy machine.
	toolLimit, reportLimit = 2 * startLimit, 2 * startLimit
	// exitLimit limits the time in which the containers of a profiled pod start and exit. On a machine that runs other tests at the same
	// time, nsys may take the whole startTimeout of profilerValues to start and a minute to end, for each of the two processes that a
	// container runs one after another.
	exitLimit = startLimit + 2*(45*time.Second+time.Minute)
)

// profilerValues are the chart's values in these tests. One of the defaults is for namespaces with a label.
const profilerValues = `profiler:
  tools:
  - {version: ` + images.NsysVersion + `, image: "` + images.NsysImage + `", path: /` + images.NsysDirectory + `}
  - {version: ` + images.LaterNsysVersion + `, image: "` + images.LaterNsysImage + `", path: /` + images.NsysDirectory + `}
  startTimeout: 45s # of a machine that runs other tests beside it
  defaults:
  - namespaceSelector: {matchLabels: {e2e.prism.dev/profiled: "yes"}}
    config: {captureEnvironment: true, trace: [osrt], match: {regex: 'facts\.py by-default'}}
`

// profiled begins a test whose pods are profiled, in parallel with others. The first such test installs the profiler.
func profiled(t *testing.T, gpus int) *namespace {
	t.Helper()
	open(t).hasProfiler(t)
	return withDiagnostics(inParallel(t, gpus))
}

// profiledExclusive is profiled for a test that disturbs others.
func profiledExclusive(t *testing.T) *namespace {
	t.Helper()
	open(t).hasProfiler(t)
	return withDiagnostics(exclusive(t))
}

// hasProfiler installs the profiler, or skips the test if Debian's packages are not available.
func (c *cluster) hasProfiler(t *testing.T) {
	t.Helper()
	err := profilerInstalled()
	if errors.Is(err, images.ErrNotAvailable) {
		t.Skip(err)
	}
	require.NoError(t, err, "installing the profiler; %s", c.profilerLogs())
}

// profilerInstalled loads the images, installs the profiler with the chart, and waits until the node has proven it.
var profilerInstalled = sync.OnceValue(func() error {
	c, err := connected()
	if err != nil {
		return err
	}
	var archives []string
	for _, name := range []string{images.NsysImage, images.LaterNsysImage, images.ProgramsImage, images.MinimalImage, images.DistrolessImage} {
		archive, err := images.Archive(context.Background(), c.root, name)
		if err != nil {
			return err
		}
		archives = append(archives, archive)
	}
	if _, err := c.run("", c.localcluster(append([]string{"load-image"}, archives...)...)...); err != nil {
		return err
	}
	upgrade := c.helmLine("upgrade", "prism", filepath.Join(c.root, "deployments/helm/prism"), "--reuse-values", "--values", "-")
	if _, err := c.run(profilerValues, upgrade...); err != nil {
		return err
	}
	for _, what := range []string{"daemonset/" + pluginName, "daemonset/" + profilerName, "deployment/" + controllerName} {
		if _, err := c.run("", c.kubectl("rollout", "status", "--namespace", system, what, "--timeout="+startLimit.String())...); err != nil {
			return err
		}
	}
	available := c.kubectl("wait", "--for=condition=Available", "--timeout="+startLimit.String(), "apiservice/v1alpha1.profiles.gpu.prism.dev")
	if _, err := c.run("", available...); err != nil {
		return err
	}
	limit := time.After(toolLimit)
	for {
		err := errors.Join(c.toolProven(), c.reportsDiscovered())
		if err == nil {
			return nil
		}
		select {
		case <-limit:
			return fmt.Errorf("after %s: %w", toolLimit, err)
		case <-time.After(interval):
		}
	}
})

// toolProven returns an error until the node has the manifests of both versions of the profiler.
func (c *cluster) toolProven() error {
	manifests, err := filepath.Glob(filepath.Join(c.stateDirectory(), "tools", "[0-9]*-*", "manifest.json"))
	if err == nil && len(manifests) != 2 {
		err = fmt.Errorf("these versions of the profiler are installed on the node: %v", manifests)
	}
	return err
}

// reportsDiscovered returns an error until the API server lists the API of reports, some time after it is available.
func (c *cluster) reportsDiscovered() error {
	resources, err := c.run("", c.kubectl("api-resources", "--api-group=profiles.gpu.prism.dev", "--output=name")...)
	if err == nil && !strings.Contains(resources, "reports.profiles.gpu.prism.dev") {
		err = errors.New("the API server does not list the API of reports")
	}
	return err
}

// stateDirectory returns the plugin's state directory on the node.
func (c *cluster) stateDirectory() string {
	return filepath.Join(c.variable("PRISM_NODE_0_ROOT"), "var/lib", driverName)
}

// withDiagnostics makes a failed test print the logs of the profiler.
func withDiagnostics(ns *namespace) *namespace {
	ns.t.Cleanup(func() {
		if !ns.t.Failed() {
			return
		}
		ns.t.Log(ns.profilerLogs())
		out, err := ns.try("get", "reports.profiles.gpu.prism.dev", "--output=yaml")
		ns.t.Logf("reports: %v\n%s", err, out)
		out, err = ns.run("", "sh", "-c", `cd "$0" && ls -lR . | head -n 200; tail -n 30 */inbox/s*/note */inbox/s*/nsys.log; cat */spool/*.failed`,
			filepath.Join(ns.stateDirectory(), "profiles"))
		ns.t.Logf("profiles on the node: %v\n%s", err, out)
	})
	return ns
}

// profilerLogs returns the logs of the profiler's containers: installers of a version, and importers of reports.
func (c *cluster) profilerLogs() string {
	var text strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "--selector", profilerSelector, "--output=wide"},
		{"describe", "pods", "--selector", profilerSelector},
		{"logs", "--selector", profilerSelector, "--all-containers", "--prefix", "--tail=100"},
		{"logs", "--selector", "app.kubernetes.io/component=controller", "--prefix", "--tail=60"},
	} {
		out, err := c.run("", c.kubectl(append([]string{"--namespace", system}, args...)...)...)
		fmt.Fprintf(&text, "kubectl %s: %v\n%s\n", strings.Join(args, " "), err, out)
	}
	return text.String()
}

// profileConfig returns a ProfilerConfig with these fields, a JSON object. Its processes are recorded without a GPU.
func profileConfig(t *testing.T, fields string) string {
	t.Helper()
	config := map[string]any{
		"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "ProfilerConfig", "captureEnvironment": true, "trace": []string{"osrt"},
		"toolVersion": images.NsysVersion,
	}
	require.NoError(t, json.Unmarshal([]byte(fields), &config))
	text, err := json.Marshal(config)
	require.NoError(t, err)
	return string(text)
}

// inPrograms returns a container of images.ProgramsImage with the claim of the pod.
func inPrograms(name string, command ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: images.ProgramsImage, ImagePullPolicy: corev1.PullNever, Command: command,
		Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
	}
}

// createProfiled creates a claim with a ProfilerConfig of these fields, and a pod with the same name and these containers, after a change
// of its spec.
func (ns *namespace) createProfiled(pod, fields string, change func(*corev1.PodSpec), containers ...corev1.Container) {
	ns.t.Helper()
	claim, object := profiledObjects(ns.t, pod, fields, containers...)
	if change != nil {
		change(&object.Spec)
	}
	for _, one := range []any{claim, object} {
		require.NoError(ns.t, ns.createObject(one))
	}
}

// profiledCPU is the request of each container. Pods without requests get a weight of 2 together. The other pods, including the importers,
// get 81. So nsys, which may take a minute to write a report, was starved for that long.
const profiledCPU = "30m"

// profiledObjects returns a claim with a ProfilerConfig of these fields, and a pod with the same name and these containers.
func profiledObjects(t *testing.T, pod, fields string, containers ...corev1.Container) (claim any, object *corev1.Pod) {
	t.Helper()
	w := workload{name: pod, ref: "gpu", named: true, grace: 30}
	w.request = request{class: gpuClass, driver: driverName, config: profileConfig(t, fields)}
	object = w.pod()
	object.Spec.Containers = nil
	for _, container := range containers {
		container.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(profiledCPU)}
		object.Spec.Containers = append(object.Spec.Containers, container)
	}
	return w.objects()[0], object
}

// createObject creates one object.
func (ns *namespace) createObject(object any) error {
	ns.t.Helper()
	text, err := json.Marshal(object)
	require.NoError(ns.t, err)
	return ns.createText(string(text))
}

// reportOf is a report in an answer of the API server.
type reportOf struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Claim     string `json:"claim"`
		ClaimUID  string `json:"claimUID"`
		Pod       string `json:"pod"`
		Container string `json:"container"`
		Node      string `json:"node"`
		Process   string `json:"process"`
		PID       int    `json:"pid"`
		Tool      string `json:"tool"`
	} `json:"spec"`
	Status struct {
		State   string `json:"state"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
		File    string `json:"file"`
		Path    string `json:"path"`
		Size    int64  `json:"size"`
		SHA256  string `json:"sha256"`
	} `json:"status"`
}

// reports lists the reports of a namespace, with selectors of kubectl.
func (ns *namespace) reports(selectors ...string) ([]reportOf, error) {
	var list struct {
		Items       []reportOf `json:"items"`
		SilentNodes []string   `json:"silentNodes"`
	}
	err := ns.read(&list, append([]string{"reports"}, selectors...)...)
	if err == nil && len(list.SilentNodes) > 0 {
		err = fmt.Errorf("nodes %s are silent", strings.Join(list.SilentNodes, ", "))
	}
	return list.Items, err
}

// allReports lists reports when all nodes respond. If a node does not answer in time on a busy machine, it counts as silent in all lists
// for a while.
func (ns *namespace) allReports(selectors ...string) []reportOf {
	ns.t.Helper()
	var found []reportOf
	eventually(ns.t, reportLimit, func() (err error) {
		found, err = ns.reports(selectors...)
		return err
	})
	return found
}

// reportsOf waits until a claim has this number of reports, each in one of these final states.
func (ns *namespace) reportsOf(claim string, count int, states ...string) []reportOf {
	ns.t.Helper()
	var found []reportOf
	eventually(ns.t, reportLimit, func() (err error) {
		found, err = ns.reports("--field-selector", "spec.claim="+claim)
		if err != nil {
			return err
		}
		for _, r := range found {
			if !slices.Contains(states, r.Status.State) {
				return errReports(found)
			}
		}
		if len(found) != count {
			return fmt.Errorf("claim %s must have %d reports: %w", claim, count, errReports(found))
		}
		return err
	})
	return found
}

// reportFrom finds the only report of a container.
func (ns *namespace) reportFrom(reports []reportOf, container string) reportOf {
	ns.t.Helper()
	var its []reportOf
	for _, r := range reports {
		if r.Spec.Container == container {
			its = append(its, r)
		}
	}
	require.Len(ns.t, its, 1, "reports of container %s", container)
	return its[0]
}

// says waits until every device of the claim has a condition with this status and reason, and returns its message.
func (ns *namespace) says(claim, condition string, status metav1.ConditionStatus, reason string) string {
	ns.t.Helper()
	var message string
	eventually(ns.t, reportLimit, func() error {
		devices := ns.claim(claim).Status.Devices
		if len(devices) == 0 {
			return fmt.Errorf("missing status of claim %s", claim)
		}
		for i := range devices {
			found := meta.FindStatusCondition(devices[i].Conditions, condition)
			if found == nil || found.Status != status || found.Reason != reason {
				return fmt.Errorf("claim %s must have %s %s with reason %s, has %+v", claim, condition, status, reason, devices[i].Conditions)
			}
			message = found.Message
		}
		return nil
	})
	return message
}

// exits waits until all containers of the pod ended, and returns their exit codes.
func (ns *namespace) exits(pod string) map[string]int32 {
	ns.t.Helper()
	codes := map[string]int32{}
	eventually(ns.t, exitLimit, func() error {
		statuses := ns.pod(pod).Status.ContainerStatuses
		for i := range statuses {
			ended := statuses[i].State.Terminated
			if ended == nil {
				return fmt.Errorf("container %s of pod %s has not ended: %+v", statuses[i].Name, pod, statuses[i].State)
			}
			codes[statuses[i].Name] = ended.ExitCode
		}
		if len(statuses) == 0 {
			return fmt.Errorf("pod %s has not started", pod)
		}
		return nil
	})
	return codes
}

// prints waits until the log of a container contains a text.
func (ns *namespace) prints(pod, container, text string) {
	ns.t.Helper()
	eventually(ns.t, exitLimit, func() error {
		log, err := ns.try("logs", pod, "--container", container)
		if err == nil && !strings.Contains(log, text) {
			err = fmt.Errorf("container %s of pod %s has not printed %q yet: %s", container, pod, text, log)
		}
		return err
	})
}

// inbox returns the folder on the node into which containers of a claim write their recordings.
func (ns *namespace) inbox(claim string) string {
	ns.t.Helper()
	path := filepath.Join(ns.stateDirectory(), "profiles", string(ns.claim(claim).UID), "inbox")
	_, err := os.Stat(path)
	require.NoError(ns.t, err)
	return path
}

// createClaim creates only the claim of a workload.
func (ns *namespace) createClaim(w workload) {
	ns.t.Helper()
	text, err := json.Marshal(w.objects()[0])
	require.NoError(ns.t, err)
	require.NoError(ns.t, ns.createText(string(text)))
}

// errReports returns an error that lists reports.
func errReports(reports []reportOf) error {
	var all []string
	for _, r := range reports {
		all = append(all, fmt.Sprintf("%s of %s/%s: %s %s", r.Metadata.Name, r.Spec.Pod, r.Spec.Container, r.Status.State, r.Status.Reason))
	}
	return fmt.Errorf("found %d reports: %s", len(reports), strings.Join(all, "; "))
}
