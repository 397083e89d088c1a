package nvcdi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// difference is an entry that only one of both specs contains, and the reason.
type difference struct{ pattern, because string }

// leftOut lists entries that NVIDIA's generator adds to containers and Prism does not.
var leftOut = []difference{
	{`^mount /usr/bin/nvidia-(cuda-mps-(control|server)|imex|imex-ctl)$`, "they control daemons that containers of other claims use"},
	{`^mount /tmp/nvidia-mps$`, "the pipes of the host's MPS control daemon: a claim gets the pipes of its own daemon"},
	{`^hook \S+ enable-cuda-compat `, "it changes files of the image: chart value cudaCompat"},
	{`^hook \S+ update-application-profile`, "it sets which GPUs EGL shows; a container only gets the device nodes of its own GPUs"},
	{`^hook \S+ apply-cuda-memory-limits `, "memory limits are set by prism-hook for shares with enforceMemory"},
	{`^hook \S+ create-symlinks .*/dev/dri/by-path/`, "links by the GPU's place cost an execution per container; programs find the nodes without them"},
}

// added lists entries that Prism adds and NVIDIA's generator does not.
var added = []difference{
	{`^env PRISM_`, "by it prism-hook finds which devices a container has"},
}

// TestCDISpec_EveryBoard_NothingMissing: a container of a claim gets the same as with a spec of NVIDIA's generator, except for the listed
// differences.
func TestCDISpec_EveryBoard_NothingMissing(t *testing.T) {
	used := map[string]bool{}
	for _, board := range model.BoardIDs() {
		t.Run(board, func(t *testing.T) {
			node := sandbox.Start(t, model.Uniform("node-a", board, 2))
			install(t, node)
			partitioned := intoMIGMode(t, node.Model)
			pairs := described(t, node)
			require.Len(t, pairs, map[bool]int{false: 1, true: 2}[partitioned])
			for _, p := range pairs {
				ours, theirs := edits(p.Ours), edits(p.Theirs)
				assert.Empty(t, unexplained(only(theirs, ours), leftOut, used), "missing for a device of type %s", p.Device)
				assert.Empty(t, unexplained(only(ours, theirs), added, used), "more than NVIDIA's for a device of type %s", p.Device)
				assert.Contains(t, ours, "mount /usr/share/glvnd/egl_vendor.d/10_nvidia.json")
				assert.Equal(t, p.Device == "gpu", slices.Contains(ours, "device /dev/dri/renderD129 226:129"), "%s: %v", p.Device, ours)
			}
		})
	}
	for _, d := range slices.Concat(leftOut, added) {
		assert.True(t, used[d.pattern], "no spec differs by %s", d.pattern)
	}
}

// install adds files that a machine may have besides the driver: programs that draw, links by the place of a GPU, a running MPS control
// daemon.
func install(t *testing.T, node *sandbox.Node) {
	t.Helper()
	byPath := filepath.Join(node.Root(), "dev/dri/by-path")
	require.NoError(t, os.MkdirAll(byPath, 0o755))
	for _, file := range []string{"usr/share/glvnd/egl_vendor.d/10_nvidia.json", "tmp/nvidia-mps", "usr/bin/nvidia-imex"} {
		path := filepath.Join(node.Root(), file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o755))
	}
	pci := "pci-" + node.Model.Identities()[1].PCI.String()
	require.NoError(t, os.Symlink("../card2", filepath.Join(byPath, pci+"-card")))
	require.NoError(t, os.Symlink("../renderD129", filepath.Join(byPath, pci+"-render")))
}

// intoMIGMode puts the first GPU into MIG mode, as an administrator does.
func intoMIGMode(t *testing.T, machine *model.Node) bool {
	t.Helper()
	if !machine.Boards()[0].MIG.Capable() {
		return false
	}
	version, _ := machine.Driver()
	driver, err := machine.Open(version, []int{0})
	require.NoError(t, err)
	handle, err := driver.ByIndex(0)
	require.NoError(t, err)
	_, err = driver.SetMIGMode(t.Context(), handle, true, true)
	require.NoError(t, err)
	require.NoError(t, machine.ResetGPU(0))
	return true
}

// edits lists the edits for a container with all devices of a spec.
func edits(spec *specs.Spec) (all []string) {
	list := []specs.ContainerEdits{spec.ContainerEdits}
	for _, d := range spec.Devices {
		list = append(list, d.ContainerEdits)
	}
	for _, e := range list {
		for _, n := range e.DeviceNodes {
			all = append(all, fmt.Sprintf("device %s %d:%d", n.Path, n.Major, n.Minor))
		}
		for _, m := range e.Mounts {
			all = append(all, "mount "+m.ContainerPath)
		}
		for _, h := range e.Hooks {
			all = append(all, "hook "+h.HookName+" "+strings.Join(h.Args[1:], " "))
		}
		for _, v := range e.Env {
			all = append(all, "env "+v)
		}
	}
	return all
}

// only returns the entries that the first list contains and the second does not.
func only(first, second []string) (rest []string) {
	for _, entry := range first {
		if !slices.Contains(second, entry) {
			rest = append(rest, entry)
		}
	}
	return rest
}

// unexplained returns the entries that no difference explains, and records the differences that explain others.
func unexplained(entries []string, known []difference, used map[string]bool) (rest []string) {
	for _, entry := range entries {
		i := slices.IndexFunc(known, func(d difference) bool { return regexp.MustCompile(d.pattern).MatchString(entry) })
		if i < 0 {
			rest = append(rest, entry)
			continue
		}
		used[known[i].pattern] = true
	}
	return rest
}
