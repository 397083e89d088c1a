package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/prism-gpu/prism/test/debian"
)

// crunPackage is crun 1.21 with its C library. crun 1.8.1 of Debian 12 does not report its features, so kubelets start no pod with
// hostUsers false with it.
var crunPackage = debian.Package{
	Name: "debian-crun-trixie", Package: "crun", Release: "trixie", Free: true,
	With: []string{"libc6", "libcap2", "libgcrypt20", "libgpg-error0", "libseccomp2", "libsystemd0", "libyajl2"},
}

// crunConfig adds a second runtime handler to containerd.
const crunConfig = `
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun]
  runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]
    BinaryName = "/opt/crun/crun"
`

// crunScript runs crun with its own C library, and records that it ran. crun refuses machines with cgroups of both versions.
const crunScript = `#!/bin/sh
echo "$@" >>/opt/crun/log
exec unshare --mount --propagation private sh -c 'mountpoint -q "$0" && umount "$0"; exec "$@"' /sys/fs/cgroup/unified \
	%[1]s --library-path %[2]s %[3]s "$@"
`

const (
	crunClassName = "e2e-crun"
	crunClass     = `{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "` + crunClassName + `"}, "handler": "crun"}`
)

// TestWholeCrun_DriverDev_DriverNodes: crun follows the paths of device nodes in CDI specs. If the node's /dev lacks a device node, a pod
// with a user namespace gets the driver's if a RuntimeClass starts it with crun; with runc the claim is refused.
func TestWholeCrun_DriverDev_DriverNodes(t *testing.T) {
	ns := exclusive(t)
	ns.installCrun(t)
	ns.applyWith("whole-gpu/pod.yaml", crunClassName)
	ns.sees("whole-gpu", "main", ns.grantedTo(ns.ready("whole-gpu"), "gpu")...)
	assert.Contains(t, ns.must(t, ns.onNode("cat", "/opt/crun/log")...), "create --bundle")
	ns.delete("pod", "whole-gpu")

	ns.hasDriverDev(t)
	const tools = "nvidia-uvm-tools"
	ns.must(t, ns.simgpu("inject", "device-node-missing", "--node", tools)...)
	restore := ns.simgpu("inject", "device-node-restore")
	t.Cleanup(func() { ns.must(t, restore...) })
	ns.applyWith("user-namespace/pod.yaml", crunClassName)
	ns.ready("user-namespace")
	assert.Contains(t, ns.do("exec", "user-namespace", "--", "ls", "/dev"), tools)
	assert.Contains(t, ns.do("exec", "user-namespace", "--", "nvidia-smi", "-L"), ns.grantedTo(ns.pod("user-namespace"), "gpu")[0].UUID)
	ns.delete("pod", "user-namespace")

	ns.apply("user-namespace/pod.yaml")
	ns.isRefused("user-namespace", "gpu", "pod user-namespace has hostUsers: false", driverDev+"/"+tools)
}

// installCrun makes containerd start pods of a RuntimeClass with crun until the test ends, or skips the test.
func (ns *namespace) installCrun(t *testing.T) {
	t.Helper()
	dir, err := crunPackage.Unpacked(t.Context(), true)
	if err != nil {
		t.Skipf("crun of Debian %s is not available: %v", crunPackage.Release, err)
	}
	linkers, err := filepath.Glob(filepath.Join(dir, "usr/lib/*/ld-linux-*.so.*"))
	require.NoError(t, err)
	require.Len(t, linkers, 1)
	script := filepath.Join(t.TempDir(), "crun")
	text := fmt.Sprintf(crunScript, linkers[0], filepath.Dir(linkers[0]), filepath.Join(dir, "usr/bin/crun"))
	require.NoError(t, os.WriteFile(script, []byte(text), 0o755))
	ns.must(t, ns.onNode("install", "-D", script, "/opt/crun/crun")...)
	t.Cleanup(func() { ns.must(t, ns.onNode("rm", "-r", "/opt/crun")...) })

	file := filepath.Join(filepath.Dir(ns.variable("PRISM_NODE_0_STATE")), "containerd.toml")
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	restart := func(config []byte) {
		require.NoError(t, os.WriteFile(file, config, 0o644))
		ns.must(t, ns.localcluster("restart", nodeName, "containerd")...)
	}
	t.Cleanup(func() { restart(before) })
	restart(append(before, crunConfig...))
	_, err = ns.run(crunClass, ns.kubectl("create", "--filename", "-")...)
	require.NoError(t, err)
	t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "runtimeclass", crunClassName)...) })
	// The pods must end before their runtime is removed.
	t.Cleanup(func() { ns.delete("pods", "--all") })
	eventually(t, startLimit, func() error { return ns.supportsUserNamespaces("crun") })
}

// supportsUserNamespaces returns an error until the kubelet knows that a handler supports them.
func (c *cluster) supportsUserNamespaces(handler string) error {
	var node corev1.Node
	if err := c.get(&node, "node", nodeName); err != nil {
		return err
	}
	for _, h := range node.Status.RuntimeHandlers {
		if h.Name == handler && h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces {
			return nil
		}
	}
	return errors.New("no handler " + handler + " with user namespaces")
}

// applyWith applies a manifest of demo/specs with pods of the RuntimeClass.
func (ns *namespace) applyWith(spec, class string) {
	ns.t.Helper()
	text, err := os.ReadFile(ns.spec(spec))
	require.NoError(ns.t, err)
	const before = "  restartPolicy: Never\n"
	require.Equal(ns.t, 1, strings.Count(string(text), before), spec)
	changed := strings.Replace(string(text), before, before+"  runtimeClassName: "+class+"\n", 1)
	_, err = ns.run(changed, ns.kubectl("--namespace", ns.name, "apply", "--filename", "-")...)
	require.NoError(ns.t, err)
}
