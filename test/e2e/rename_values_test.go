package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// namespacedKinds and clusterKinds are the kinds of all objects that the chart and the controller create.
const (
	namespacedKinds = "daemonsets,deployments,services,serviceaccounts,configmaps,secrets,roles,rolebindings,leases,networkpolicies,poddisruptionbudgets,resourcequotas"
	clusterKinds    = "clusterroles,clusterrolebindings,deviceclasses,apiservices,validatingadmissionpolicies,validatingadmissionpolicybindings," +
		"validatingwebhookconfigurations"
)

// TestWholeFullnameChanged: a pod keeps its GPU when all objects of the release get another name, and no object of the old name is left.
func TestWholeFullnameChanged(t *testing.T) {
	ns := exclusive(t)
	grants, uid := ns.wholePod(t)
	require.Error(t, ns.noObjects("--all-namespaces", namespacedKinds+","+clusterKinds, "prism"), "the objects are named after the release")
	ns.withValue(t, "fullnameOverride=renamed")
	eventually(t, startLimit, func() error { return ns.noObjects("--all-namespaces", namespacedKinds+","+clusterKinds, "prism") })
	require.Error(t, ns.noObjects("--all-namespaces", namespacedKinds+","+clusterKinds, "renamed"))
	ns.outlives(t, grants, uid)
}

// TestWholeStateDirChanged: programs that a spec names stay in the old directory until the claim is unprepared; afterwards it is empty.
func TestWholeStateDirChanged(t *testing.T) {
	ns := exclusive(t)
	const former, now = "/var/lib/" + driverName, "/var/lib/e2e-state"
	grants, uid := ns.wholePod(t)
	hooks := ns.hooks(uid)
	t.Cleanup(func() {
		// The way back is the same.
		eventually(t, startLimit, func() error { return ns.emptyOnNode(now) })
	})
	ns.withValue(t, "stateDir="+now)
	own := 0
	for _, hook := range hooks {
		if strings.HasPrefix(hook.Path, former+"/") {
			ns.must(t, ns.onNode("test", "-x", hook.Path)...)
			own++
		}
	}
	require.Positive(t, own, "without a program there the pod shows nothing")
	ns.outlives(t, grants, uid)
	eventually(t, startLimit, func() error { return ns.emptyOnNode(former) })
}

// TestWholeNamespaceChanged: a release in another namespace takes over the claims of the uninstalled release, including claims whose pods
// were deleted in between.
func TestWholeNamespaceChanged(t *testing.T) {
	ns := exclusive(t)
	const other = "prism-other"
	grants, uid := ns.wholePod(t)
	ns.apply("two-gpus/pod.yaml")
	ns.ready("two-gpus")
	record := filepath.Join(ns.pluginsOf(driverName), "claims", string(ns.claimOf(ns.pod("two-gpus"), "gpus").UID)+".json")
	require.FileExists(t, record)
	values := filepath.Join(t.TempDir(), "values.yaml")
	text := ns.must(t, ns.helmLine("get", "values", "prism", "--output", "yaml")...)
	require.NoError(t, os.WriteFile(values, []byte(text), 0o600))
	ns.move(t, values, system, other, func() {
		ns.do("delete", "--wait=false", "pod", "two-gpus")
		require.FileExists(t, record)
	})
	t.Cleanup(func() {
		ns.move(t, values, other, system, func() {})
		ns.must(t, ns.kubectl("delete", "namespace", other, "--timeout="+startLimit.String())...)
		ns.advertises(t, ns.gpus.size, startLimit)
		ns.advertisesMIG(t, startLimit)
	})
	eventually(t, startLimit, func() error { return ns.noObjects("--namespace="+system, namespacedKinds, "prism") })
	ns.do("wait", "--for=delete", "--timeout="+startLimit.String(), "pod/two-gpus")
	eventually(t, startLimit, func() error { return absent([]string{record}) })
	ns.outlives(t, grants, uid)
}

// move uninstalls the release and installs it in another namespace.
func (c *cluster) move(t *testing.T, values, from, to string, between func()) {
	t.Helper()
	helm := []string{filepath.Join(c.variable("PATH"), "helm"), "--kubeconfig", c.variable("KUBECONFIG")}
	c.must(t, append(helm, "--namespace", from, "uninstall", "prism", "--wait", "--timeout", startLimit.String())...)
	between()
	c.must(t, append(helm, "--namespace", to, "install", "prism", filepath.Join(c.root, "deployments/helm/prism"), "--create-namespace", "--values", values,
		"--wait", "--timeout", startLimit.String())...)
	c.pluginIn(t, to)
}

// wholePod starts a pod with its own GPU, and returns its devices and the UID of its claim.
func (ns *namespace) wholePod(t *testing.T) (has []grant, claimUID string) {
	t.Helper()
	ns.apply("whole-gpu/pod.yaml")
	has = ns.grantedTo(ns.ready("whole-gpu"), "gpu")
	return has, string(ns.claimOf(ns.pod("whole-gpu"), "gpu").UID)
}

// outlives checks that the pod of wholePod still has its GPU, leaves no files when it is deleted, and can be created again.
func (ns *namespace) outlives(t *testing.T, has []grant, claimUID string) {
	t.Helper()
	ns.sees("whole-gpu", "main", has...)
	ns.delete("pod", "whole-gpu")
	eventually(t, startLimit, func() error {
		left, err := ns.keptFor(claimUID, ns.name)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the node still has %s", strings.Join(left, ", "))
		}
		return err
	})
	ns.apply("whole-gpu/pod.yaml")
	ns.sees("whole-gpu", "main", ns.grantedTo(ns.ready("whole-gpu"), "gpu")...)
	require.NoError(t, ns.silence())
	ns.delete("pod", "whole-gpu")
}

// noObjects returns an error while objects of these kinds exist whose names begin with the prefix.
func (c *cluster) noObjects(scope, kinds, prefix string) error {
	out, err := c.run("", c.kubectl("get", kinds, scope, "--output=name", "--ignore-not-found")...)
	failed := []error{err}
	for line := range strings.Lines(out) {
		if _, name, _ := strings.Cut(strings.TrimSpace(line), "/"); strings.HasPrefix(name, prefix+"-") {
			failed = append(failed, fmt.Errorf("%s is there", strings.TrimSpace(line)))
		}
	}
	return errors.Join(failed...)
}

// emptyOnNode returns an error while a directory of the node is not empty.
func (c *cluster) emptyOnNode(path string) error {
	out, err := c.run("", c.onNode("sh", "-c", "find "+path+" -mindepth 1 2>/dev/null | head -20")...)
	if err == nil && out != "" {
		err = fmt.Errorf("the node has %s", out)
	}
	return err
}
