package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

// memoryDriver is the name of a plugin that sees cgroup v2, and of a class of its time-sliced shares.
const memoryDriver = "memory.e2e"

const memoryClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: ` + memoryDriver + `}
spec:
  selectors:
  - {cel: {expression: 'device.driver == "` + memoryDriver + `" && device.attributes["` + memoryDriver + `"].type == "timeslice"'}}
`

const memoryConfig = `
apiVersion: gpu.prism.dev/v1alpha1
kind: NodeConfig
gpus: [{modes: [whole, timeslice], timeSlice: {replicas: 3}}]
`

// unifiedPlugin is a plugin in its own mount namespace, in which /sys/fs/cgroup is cgroup v2.
type unifiedPlugin struct {
	*cluster
	pid string
}

// memoryDir is the folder on the node for the files of the plugin and its containers.
const memoryDir = "/run/e2e-memory"

// pluginWithCgroupV2 runs a plugin until the test ends. Its namespace contains the programs of the image at their paths.
func (c *cluster) pluginWithCgroupV2(t *testing.T) *unifiedPlugin {
	t.Helper()
	dir := c.nodePath(memoryDir)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	t.Cleanup(func() {
		require.NoError(t, os.RemoveAll(dir))
		c.must(t, c.kubectl("delete", "resourceslices", "--field-selector", "spec.driver="+memoryDriver)...)
		c.must(t, c.kubectl("delete", "--ignore-not-found", "deviceclass", memoryDriver)...)
	})
	server := c.must(t, c.kubectl("get", "endpointslices", "kubernetes", "--output",
		"jsonpath={.endpoints[0].addresses[0]}:{.ports[0].port}")...)
	kubeconfig, err := os.ReadFile(c.variable("KUBECONFIG"))
	require.NoError(t, err)
	kubeconfig = regexp.MustCompile(`https://[^\s"]+`).ReplaceAll(kubeconfig, []byte("https://"+server))
	require.NoError(t, errors.Join(os.WriteFile(filepath.Join(dir, "kubeconfig"), kubeconfig, 0o600),
		os.WriteFile(filepath.Join(dir, "config"), []byte(memoryConfig), 0o600)))
	c.startWithCgroupV2(t)
	raw, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	_, err = c.run(memoryClass, c.kubectl("create", "--filename", "-")...)
	require.NoError(t, err)
	return &unifiedPlugin{c, strings.TrimSpace(string(raw))}
}

// startWithCgroupV2 starts the plugin, and waits until it has published its devices.
func (c *cluster) startWithCgroupV2(t *testing.T) {
	t.Helper()
	const script = `echo $$ >"$0/pid" && mount -t cgroup2 none /sys/fs/cgroup &&
mount -t overlay -o "ro,lowerdir=$1:/usr/bin" overlay /usr/bin && shift && exec "$@"`
	programs := filepath.Join(c.root, "dist/programs")
	line := c.onNode("unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c", script, memoryDir, programs,
		filepath.Join(programs, "prism-kubelet-plugin"), "--driver-name="+memoryDriver, "--node-name="+nodeName, "--pod-uid=e2e", "--host-root=/",
		"--http-endpoint=", "--kubeconfig="+memoryDir+"/kubeconfig", "--node-config="+memoryDir+"/config", "--state-dir="+memoryDir+"/state")
	var log strings.Builder
	plugin := exec.Command(line[0], line[1:]...)
	plugin.Stdout, plugin.Stderr = &log, &log
	require.NoError(t, plugin.Start())
	t.Cleanup(func() {
		if raw, err := os.ReadFile(c.nodePath(memoryDir + "/pid")); err == nil {
			_, err = c.run("", c.onNode("kill", strings.TrimSpace(string(raw)))...)
			assert.NoError(t, err, "the plugin has exited")
		}
		_ = plugin.Wait() // always reports that it was stopped
		if t.Failed() {
			t.Logf("log of the plugin with cgroup v2: %s", log.String())
		}
	})
	eventually(t, startLimit, func() error {
		published, err := c.run("", c.kubectl("get", "resourceslices", "--field-selector", "spec.driver="+memoryDriver, "--output=name")...)
		if err == nil && published == "" {
			err = fmt.Errorf("driver %s has published nothing", memoryDriver)
		}
		return err
	})
}

// nodePath returns the path at which the tests see a path of the node.
func (c *cluster) nodePath(path string) string {
	return filepath.Join(c.variable("PRISM_NODE_0_ROOT"), path)
}

// hideVersion1 is a hook that leaves only cgroup v2 in a container, as on a machine without cgroup v1.
const hideVersion1 = `#!/bin/sh
pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
grep ^0:: /proc/$pid/cgroup >` + memoryDir + `/cgroup && mount --bind ` + memoryDir + `/cgroup /proc/$pid/cgroup
`

// runs makes runc run a container with the devices of a claim and nothing else, with cgroup v2 and with this name of its cgroup. It returns
// the output of a program that allocates this amount.
func (p *unifiedPlugin) runs(t *testing.T, claim, name string, mebibytes int) string {
	t.Helper()
	dir := memoryDir + "/" + name
	program, err := gpuMem()
	require.NoError(t, err)
	root := dir + "/rootfs"
	require.NoError(t, os.MkdirAll(p.nodePath(root), 0o755))
	entered := func(args ...string) []string {
		return p.onNode(append([]string{"nsenter", "--mount=/proc/" + p.pid + "/ns/mnt", "--"}, args...)...)
	}
	p.must(t, entered("ctr", "--namespace", "k8s.io", "images", "mount", "--rw", testImage, root)...)
	defer func() { p.must(t, entered("ctr", "--namespace", "k8s.io", "images", "unmount", "--rm", root)...) }()
	_, err = p.run(program, entered("sh", "-c", "cat >"+root+"/gpu-mem && chmod 755 "+root+"/gpu-mem")...)
	require.NoError(t, err)

	spec := p.bundle(t, claim, "/e2e-memory-"+name, "/gpu-mem", strconv.Itoa(mebibytes))
	raw, err := json.Marshal(spec)
	require.NoError(t, errors.Join(err, os.WriteFile(p.nodePath(dir+"/config.json"), raw, 0o600),
		os.WriteFile(p.nodePath(memoryDir+"/hide"), []byte(hideVersion1), 0o700)))
	out, err := p.run("", entered("runc", "--root", memoryDir+"/runc", "run", "--bundle", dir, name)...)
	t.Logf("%s: %s (%v)", name, out, err) // the program's exit code
	return out
}

// bundle returns the configuration of a container with the edits of the claim's CDI specs.
func (p *unifiedPlugin) bundle(t *testing.T, claim, cgroup string, args ...string) *oci.Spec {
	t.Helper()
	spec := &oci.Spec{
		Version: "1.2.0", Root: &oci.Root{Path: "rootfs"}, Hooks: &oci.Hooks{CreateRuntime: []oci.Hook{{Path: memoryDir + "/hide"}}},
		Process: &oci.Process{Args: args, Cwd: "/", Env: []string{"PATH=/usr/bin"}},
		Mounts: []oci.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
		},
		Linux: &oci.Linux{
			CgroupsPath: cgroup, Namespaces: []oci.LinuxNamespace{{Type: oci.PIDNamespace}, {Type: oci.MountNamespace}, {Type: oci.IPCNamespace}},
			Resources: &oci.LinuxResources{Devices: []oci.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}},
		},
	}
	files, err := filepath.Glob(filepath.Join(p.variable("PRISM_NODE_0_CDI"), "*"+claim+"*"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "CDI specs of claim %s", claim)
	for _, file := range files {
		var edits cdispecs.Spec
		raw, err := os.ReadFile(file)
		require.NoError(t, errors.Join(err, json.Unmarshal(raw, &edits)))
		apply(spec, edits.ContainerEdits)
		for _, device := range edits.Devices {
			apply(spec, device.ContainerEdits)
		}
	}
	return spec
}

// apply applies CDI edits to a container like a container runtime, with the device nodes of the node.
func apply(spec *oci.Spec, edits cdispecs.ContainerEdits) {
	spec.Process.Env = append(spec.Process.Env, edits.Env...)
	for _, node := range edits.DeviceNodes {
		source := node.HostPath
		if source == "" {
			source = node.Path
		}
		spec.Mounts = append(spec.Mounts, oci.Mount{Destination: node.Path, Type: "bind", Source: source, Options: []string{"bind"}})
	}
	for _, m := range edits.Mounts {
		spec.Mounts = append(spec.Mounts, oci.Mount{Destination: m.ContainerPath, Type: "bind", Source: m.HostPath, Options: m.Options})
	}
	for _, h := range edits.Hooks {
		hook := oci.Hook{Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout}
		switch h.HookName {
		case "createRuntime":
			spec.Hooks.CreateRuntime = append(spec.Hooks.CreateRuntime, hook)
		case "createContainer":
			spec.Hooks.CreateContainer = append(spec.Hooks.CreateContainer, hook)
		case "startContainer":
			spec.Hooks.StartContainer = append(spec.Hooks.StartContainer, hook)
		}
	}
}
