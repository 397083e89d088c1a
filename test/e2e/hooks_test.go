package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"tags.cncf.io/container-device-interface/specs-go"
)

// TestWholeUserNamespace: in a pod with hostUsers false the runtime executes the hooks as a user without rights on the node.
func TestWholeUserNamespace(t *testing.T) {
	ns := inParallel(t, 1)
	ns.apply("user-namespace/pod.yaml")
	grants := ns.grantedTo(ns.ready("user-namespace"), "gpu")
	require.Len(t, grants, 1)
	ns.sees("user-namespace", "main", grants...)

	mapping := strings.Fields(ns.do("exec", "user-namespace", "--", "cat", "/proc/self/uid_map"))
	require.Len(t, mapping, 3)
	outside, err := strconv.Atoi(mapping[1])
	require.NoError(t, err)
	assert.Equal(t, "0", mapping[0])
	assert.Positive(t, outside, "root in the container is root on the node")

	hooks := ns.hooks(string(ns.claimOf(ns.pod("user-namespace"), "gpu").UID))
	require.NotEmpty(t, hooks, "without a hook the pod shows nothing")
	for _, hook := range hooks {
		assert.True(t, strings.HasPrefix(hook.Path, "/var/lib/"+driverName+"/programs/"), hook.Path)
	}
}

// TestWholeUserNamespace_DriverDev_HostNodes: if the driver root contains a dev/, runc finds the device nodes of such a pod only in the
// node's /dev. If one is missing there, the claim is refused with a reason; pods without a user namespace get the driver's.
func TestWholeUserNamespace_DriverDev_HostNodes(t *testing.T) {
	ns := exclusive(t)
	const tools = "nvidia-uvm-tools"
	ns.hasDriverDev(t)
	ns.apply("user-namespace/pod.yaml")
	ns.sees("user-namespace", "main", ns.grantedTo(ns.ready("user-namespace"), "gpu")...)
	ns.delete("pod", "user-namespace")

	ns.must(t, ns.simgpu("inject", "device-node-missing", "--node", tools)...)
	restore := ns.simgpu("inject", "device-node-restore")
	t.Cleanup(func() { ns.must(t, restore...) })
	ns.apply("user-namespace/pod.yaml")
	ns.isRefused("user-namespace", "gpu", "pod user-namespace has hostUsers: false", driverDev+"/"+tools)
	ns.apply("whole-gpu/pod.yaml")
	ns.ready("whole-gpu")
	require.Contains(t, ns.do("exec", "whole-gpu", "--", "ls", "/dev"), tools)
}

// driverDev is the dev/ of a driver in a container.
const driverDev = "/run/nvidia/driver/dev"

// hasDriverDev puts the driver's device nodes in its own dev/, too, until the test ends.
func (ns *namespace) hasDriverDev(t *testing.T) {
	t.Helper()
	ns.must(t, ns.onNode("sh", "-c", "mkdir "+driverDev+" && cp -a /dev/nvidia* /dev/dri "+driverDev)...)
	t.Cleanup(func() {
		ns.must(t, ns.onNode("rm", "-r", driverDev)...)
		ns.restartPlugin(t)
	})
	ns.restartPlugin(t)
}

// restartPlugin replaces the plugin's pod.
func (ns *namespace) restartPlugin(t *testing.T) {
	t.Helper()
	ns.must(t, ns.kubectl("rollout", "restart", "--namespace", system, "daemonset/"+pluginName)...)
	ns.rolledOut(t)
	ns.plugin(t)
}

// TestHooksFormerDirectory_Removed: earlier versions kept the hook in the plugin's directory. The plugin removes it without a restart when
// no spec names it.
func TestHooksFormerDirectory_Removed(t *testing.T) {
	ns := inParallel(t, 0)
	former := filepath.Join(ns.variable("PRISM_NODE_0_KUBELET_PLUGINS"), driverName, "bin")
	program := filepath.Join(former, "v0.0.0", "nvidia-cdi-hook")
	require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o755))
	require.NoError(t, os.WriteFile(program, nil, 0o755))
	notices(t, "a former directory of hooks", func() error { return absent([]string{former}) })
}

// TestHooksOldToolkit_PodsStart: programs of NVIDIA's toolkits on hosts lack some hooks that the driver needs. A program that is started
// for a hook that it lacks fails the container.
func TestHooksOldToolkit_PodsStart(t *testing.T) {
	ns := exclusive(t)
	const hook, ctk = "/usr/bin/nvidia-cdi-hook", "/usr/bin/nvidia-ctk"
	ns.onHost(t, "nvidia-cdi-hook-1.17", hook)
	plugin := ns.plugin(t)
	// Claims do not wait until the program is inspected: before that, all hooks come from the image.
	var old map[string]string
	eventually(t, startLimit, func() error {
		if old = ns.programsOf(t); old["update-ldcache"] != hook {
			return fmt.Errorf("the host's program is not used: %v", old)
		}
		return nil
	})
	own := old["disable-device-node-modification"]
	assert.True(t, strings.HasPrefix(own, "/var/lib/"+driverName+"/programs/"), own)
	assert.Equal(t, map[string]string{"create-symlinks": hook, "update-ldcache": hook, "disable-device-node-modification": own}, old)
	assert.Equal(t, plugin.UID, ns.plugin(t).UID, "the plugin notices the program without a restart")

	ns.must(t, ns.onNode("rm", hook)...)
	ns.onHost(t, "nvidia-ctk-1.15", ctk)
	t.Cleanup(func() {
		ns.helm(t, "rollback", "prism")
		ns.plugin(t)
	})
	ns.helm(t, "upgrade", "prism", filepath.Join(ns.root, "deployments/helm/prism"), "--reuse-values", "--set", "nvidiaCDIHook=host")
	ns.plugin(t)
	assert.Equal(t, map[string]string{"create-symlinks": ctk, "update-ldcache": ctk}, ns.programsOf(t))
}

// onHost builds a part with an old program, and installs it on the node until the test ends.
func (ns *namespace) onHost(t *testing.T, part, path string) {
	t.Helper()
	program, err := ns.built(part, filepath.Base(path))
	require.NoError(t, err)
	t.Cleanup(func() { ns.must(t, ns.onNode("rm", "-f", path)...) })
	ns.must(t, ns.onNode("install", program, path)...)
}

// programsOf starts a pod that must see its GPU, and returns the program of each of NVIDIA's hooks.
func (ns *namespace) programsOf(t *testing.T) map[string]string {
	t.Helper()
	ns.apply("whole-gpu/pod.yaml")
	pod := ns.ready("whole-gpu")
	ns.sees("whole-gpu", "main", ns.grantedTo(pod, "gpu")...)
	programs := map[string]string{}
	for _, h := range ns.hooks(string(ns.claimOf(pod, "gpu").UID)) {
		switch filepath.Base(h.Path) {
		case "nvidia-cdi-hook":
			programs[h.Args[1]] = h.Path
		case "nvidia-ctk":
			programs[h.Args[2]] = h.Path
		}
	}
	ns.delete("pod", "whole-gpu")
	return programs
}

// TestHooksStateDirNoExec: a plugin whose hook cannot be executed does not replace the serving one.
func TestHooksStateDirNoExec(t *testing.T) {
	ns := exclusive(t)
	const mount, stateDir = "/run/e2e-noexec", "/run/e2e-noexec/prism"
	ns.must(t, ns.onNode("sh", "-c", "mkdir "+mount+" && mount -t tmpfs -o noexec tmpfs "+mount)...)
	t.Cleanup(func() { ns.must(t, ns.onNode("sh", "-c", "umount "+mount+" && rmdir "+mount)...) })
	serving := ns.plugin(t)
	t.Cleanup(func() {
		ns.helm(t, "rollback", "prism")
		ns.plugin(t)
	})
	ns.must(t, ns.helmLine("upgrade", "prism", filepath.Join(ns.root, "deployments/helm/prism"), "--reuse-values", "--set", "stateDir="+stateDir)...)
	eventually(t, startLimit, func() error { return ns.refusesToStart(serving, stateDir, "noexec", "--state-dir", "stateDir") })

	ns.apply("whole-gpu/pod.yaml")
	ns.sees("whole-gpu", "main", ns.grantedTo(ns.ready("whole-gpu"), "gpu")...)
	require.Equal(t, serving.UID, ns.servingPlugin(t).UID)
	require.NoError(t, ns.silence())
}

// refusesToStart returns an error until another plugin has logged why it exited, with all these parts.
func (ns *namespace) refusesToStart(serving *corev1.Pod, parts ...string) error {
	var pods corev1.PodList
	if err := ns.get(&pods, "pods", "--namespace", system, "--selector", pluginSelector); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.UID == serving.UID || len(pod.Status.ContainerStatuses) == 0 {
			continue
		}
		ended := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
		if ended == nil {
			return fmt.Errorf("%s has not ended", pod.Name)
		}
		log, err := ns.run("", ns.kubectl("logs", "--namespace", system, "--previous", pod.Name)...)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if !strings.Contains(log, part) {
				return fmt.Errorf("the log of %s does not say %q: %s", pod.Name, part, log)
			}
		}
		return nil
	}
	return errors.New("there is no other plugin")
}

// servingPlugin returns the only plugin that is ready.
func (ns *namespace) servingPlugin(t *testing.T) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, ns.get(&pods, "pods", "--namespace", system, "--selector", pluginSelector))
	var ready []*corev1.Pod
	for i := range pods.Items {
		if statuses := pods.Items[i].Status.ContainerStatuses; len(statuses) == 1 && statuses[0].Ready {
			ready = append(ready, &pods.Items[i])
		}
	}
	require.Len(t, ready, 1)
	return ready[0]
}

// hooks reads the hooks in a claim's CDI specs.
func (ns *namespace) hooks(uid string) (hooks []*specs.Hook) {
	ns.t.Helper()
	files, err := filepath.Glob(filepath.Join(ns.variable("PRISM_NODE_0_CDI"), "*"+uid+"*"))
	require.NoError(ns.t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(ns.t, err)
		var spec specs.Spec
		require.NoError(ns.t, json.Unmarshal(text, &spec), file)
		hooks = append(hooks, spec.ContainerEdits.Hooks...)
		for i := range spec.Devices {
			hooks = append(hooks, spec.Devices[i].ContainerEdits.Hooks...)
		}
	}
	return hooks
}
