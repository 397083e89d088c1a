package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// startLimit bounds waits for things that happen in the end: a pod starts, a change is noticed. It allows for several times the load of a
// usual run, detects only a hang, and promises nothing about the product. Times that the product promises are tested with a fake clock
// beside its code; the tests here log the time.
const startLimit = 10 * time.Minute

// ownLabel marks the namespaces of tests, so that a later run can remove the leftovers of an interrupted one.
const ownLabel = "e2e.prism.dev/test=true"

// namespace is the namespace of one test.
type namespace struct {
	*cluster
	t    *testing.T
	name string
	// claims that were read, by UID.
	claims map[string]bool
}

// inParallel begins a test that runs beside others and leases this number of GPUs.
func inParallel(t *testing.T, gpus int) *namespace {
	t.Helper()
	c := open(t)
	t.Parallel()
	c.gpus.lease(t, gpus)
	return newNamespace(t, c)
}

// exclusive begins a test that disturbs others: no other test runs at the same time, and it may use every GPU.
func exclusive(t *testing.T) *namespace {
	t.Helper()
	c := open(t)
	require.True(t, c.gpus.free(), "a test that continues in parallel began already: this one has to come before it, in the order of file names")
	return newNamespace(t, c)
}

func newNamespace(t *testing.T, c *cluster) *namespace {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	ns := &namespace{cluster: c, t: t, name: name[:min(len(name), 50)] + "-" + rand.String(4), claims: map[string]bool{}}
	label, value, _ := strings.Cut(ownLabel, "=")
	_, err := c.run(fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s: %q}}}`, ns.name, label, value),
		c.kubectl("create", "--filename=-")...)
	require.NoError(t, err)
	t.Cleanup(ns.end)
	// Pods are forbidden before the ServiceAccount exists, and wait for the ConfigMap.
	eventually(t, startLimit, func() error {
		return errors.Join(ns.read(&corev1.ServiceAccount{}, "serviceaccount", "default"),
			ns.read(&corev1.ConfigMap{}, "configmap", "kube-root-ca.crt"))
	})
	return ns
}

// try runs kubectl in the namespace.
func (ns *namespace) try(args ...string) (string, error) {
	return ns.run("", ns.kubectl(append([]string{"--namespace", ns.name}, args...)...)...)
}

// do runs kubectl in the namespace, and fails the test if that fails.
func (ns *namespace) do(args ...string) string {
	ns.t.Helper()
	out, err := ns.try(args...)
	require.NoError(ns.t, err)
	return out
}

// read calls get in the namespace.
func (ns *namespace) read(into any, what ...string) error {
	return ns.get(into, append(what, "--namespace", ns.name)...)
}

// apply applies a manifest of demo/specs.
func (ns *namespace) apply(spec string) {
	ns.t.Helper()
	ns.do("apply", "--filename", ns.spec(spec))
}

// spec returns the path of a manifest of demo/specs.
func (ns *namespace) spec(name string) string { return filepath.Join(ns.root, "demo/specs", name) }

// ready waits until the pod runs and is ready.
func (ns *namespace) ready(pod string) *corev1.Pod {
	ns.t.Helper()
	ns.do("wait", "--for=condition=Ready", "--timeout="+startLimit.String(), "pod/"+pod)
	return ns.pod(pod)
}

func (ns *namespace) pod(name string) *corev1.Pod {
	ns.t.Helper()
	pod := &corev1.Pod{}
	require.NoError(ns.t, ns.read(pod, "pod", name))
	return pod
}

// delete deletes objects and waits until they are gone.
func (ns *namespace) delete(what ...string) {
	ns.t.Helper()
	ns.do(append([]string{"delete", "--timeout=" + startLimit.String()}, what...)...)
}

// event waits for an Event of the pod with this reason and returns its message.
func (ns *namespace) event(pod, reason string, within time.Duration) string {
	ns.t.Helper()
	var message string
	eventually(ns.t, within, func() error {
		var events corev1.EventList
		if err := ns.read(&events, "events", "--field-selector", "involvedObject.name="+pod+",reason="+reason); err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return fmt.Errorf("no Event %[2]s of pod %[1]s", pod, reason)
		}
		message = events.Items[len(events.Items)-1].Message
		return nil
	})
	return message
}

// silence returns an error if a pod of the namespace was refused a claim at any time.
func (ns *namespace) silence() error {
	var events corev1.EventList
	if err := ns.read(&events, "events", "--field-selector", "reason="+prepareFailed); err != nil {
		return err
	}
	var complaints []error
	for i := range events.Items {
		complaints = append(complaints, fmt.Errorf("event of %s: %s", events.Items[i].InvolvedObject.Name, events.Items[i].Message))
	}
	return errors.Join(complaints...)
}

// end deletes everything and checks that no file of it stays on the node.
func (ns *namespace) end() {
	if ns.t.Failed() {
		ns.explain()
	}
	var claims resourceapi.ResourceClaimList
	if err := ns.read(&claims, "resourceclaims"); assert.NoError(ns.t, err) {
		for i := range claims.Items {
			ns.claims[string(claims.Items[i].UID)] = true
		}
	}
	_, err := ns.try("delete", "--all", "--timeout="+startLimit.String(), "jobs,pods,resourceclaims")
	assert.NoError(ns.t, err)
	ns.checkNothingKept()
	_, err = ns.try("delete", "--wait=false", "--ignore-not-found", "namespace", ns.name)
	assert.NoError(ns.t, err)
}

func (ns *namespace) checkNothingKept() {
	ns.t.Helper()
	for uid := range ns.claims {
		eventually(ns.t, startLimit, func() error {
			files, err := ns.keptFor(uid, ns.name)
			if err == nil && len(files) > 0 {
				err = fmt.Errorf("after the end of claim %s the node still has %s", uid, strings.Join(files, ", "))
			}
			return err
		})
	}
}

// explain prints information that helps to understand a failure.
func (ns *namespace) explain() {
	for _, args := range [][]string{
		{"get", "pods,resourceclaims", "--output=wide"},
		{"get", "events", "--output=custom-columns=OBJECT:.involvedObject.name,REASON:.reason,MESSAGE:.message"},
		{"describe", "pods"},
		{"describe", "resourceclaims"},
		{"get", "pods", "--namespace", system, "--output=wide"},
	} {
		out, err := ns.try(args...)
		ns.t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	logs, err := ns.try("logs", "--namespace", system, "--selector", pluginSelector, "--tail=1000", "--prefix")
	var its []string
	for line := range strings.Lines(logs) {
		// Lines about other tests' claims do not help.
		if strings.Contains(line, ns.name) || !strings.Contains(line, `claim="`) {
			its = append(its, line)
		}
	}
	ns.t.Logf("log of the plugin: %v\n%s", err, strings.Join(its[max(0, len(its)-40):], ""))
	logs, err = ns.try("logs", "--namespace", system, "--selector", mpsSelector, "--tail=40", "--prefix")
	ns.t.Logf("log of the MPS service: %v\n%s", err, logs)
	logs, err = ns.try("logs", "--namespace", system, "--selector", exporterSelector, "--tail=60", "--prefix")
	ns.t.Logf("log of the exporter: %v\n%s", err, logs)
	if text := prometheusLog(); text != "" {
		ns.t.Logf("log of Prometheus:\n%s", text)
	}
}

var errStillAllocated = errors.New("the claim is still allocated")

// podsOf returns the running and the pending pods of a job.
func (ns *namespace) podsOf(job string) (running, pending []string) {
	ns.t.Helper()
	var pods corev1.PodList
	require.NoError(ns.t, ns.read(&pods, "pods", "--selector", "job-name="+job))
	for i := range pods.Items {
		switch pods.Items[i].Status.Phase {
		case corev1.PodRunning:
			running = append(running, pods.Items[i].Name)
		case corev1.PodPending:
			pending = append(pending, pods.Items[i].Name)
		}
	}
	return running, pending
}

// assigned returns an error until the pod is assigned to a node.
func (ns *namespace) assigned(pod string) error {
	var p corev1.Pod
	if err := ns.read(&p, "pod", pod); err != nil {
		return err
	}
	if p.Spec.NodeName == "" {
		return fmt.Errorf("pod %s is not scheduled", pod)
	}
	return nil
}
