package cdi

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/disk"
)

var update = flag.Bool("update", false, "renew the golden files")

const uid = "6f0c1d2e-0000-4000-8000-000000000000"

func example() Claim {
	return Claim{
		UID: uid, Kind: Kind("gpu.prism.dev"),
		Common: &specs.ContainerEdits{
			Env:    []string{"NVIDIA_VISIBLE_DEVICES=void"},
			Mounts: []*specs.Mount{{HostPath: "/run/nvidia/driver/usr/bin/nvidia-smi", ContainerPath: "/usr/bin/nvidia-smi", Options: []string{"ro", "nosuid", "nodev", "bind"}}},
			Hooks:  []*specs.Hook{{HookName: "createContainer", Path: "/usr/bin/nvidia-cdi-hook", Args: []string{"nvidia-cdi-hook", "update-ldcache"}}},
		},
		Control: []DeviceNode{{Path: "/dev/nvidiactl", HostPath: "/dev/nvidiactl", Major: 195, Minor: 255}},
		Devices: []Device{
			{
				Name:  DeviceName(uid, "gpu-3f2a9c1b", "", false, "GPU-3f2a9c1b-1"),
				Nodes: []DeviceNode{{Path: "/dev/nvidia0", HostPath: "/run/nvidia/driver/dev/nvidia0", Major: 195, Minor: 0}},
			},
			{
				Name:  DeviceName(uid, "gpu-00000001-monitor", "", true, "GPU-00000001-1"),
				Nodes: []DeviceNode{{Path: "/dev/nvidia1", HostPath: "/dev/nvidia1", Major: 195, Minor: 1}},
				Env:   []string{"A=b"},
			},
		},
	}
}

func TestJoin_Golden_Unchanged(t *testing.T) {
	t.Parallel()
	spec, err := Join(example())
	require.NoError(t, err)
	got, err := json.MarshalIndent(spec, "", "  ")
	require.NoError(t, err)
	golden := filepath.Join("testdata", "two-devices.json")
	if *update {
		require.NoError(t, os.WriteFile(golden, append(got, '\n'), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got)+"\n")
}

// TestJoin_Spec_InjectedByRuntime injects the spec with the code of container runtimes.
func TestJoin_Spec_InjectedByRuntime(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	claim := example()
	dir, err := OpenDir(disk.OS{}, path, claim.Kind)
	require.NoError(t, err)
	spec, err := Join(claim)
	require.NoError(t, err)
	require.NoError(t, dir.Write(uid, spec))

	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(path), cdiapi.WithAutoRefresh(false))
	require.NoError(t, err)
	container := &oci.Spec{Process: &oci.Process{Env: []string{"NVIDIA_VISIBLE_DEVICES=all"}}}
	unresolved, err := cache.InjectDevices(container, claim.Kind+"="+claim.Devices[0].Name)
	require.NoError(t, err)
	assert.Empty(t, unresolved)
	var nodes []string
	for _, d := range container.Linux.Devices {
		nodes = append(nodes, d.Path)
		assert.Equal(t, "c", d.Type)
		assert.EqualValues(t, 195, d.Major)
	}
	assert.Equal(t, []string{"/dev/nvidiactl", "/dev/nvidia0"}, nodes, "not the other device's node")
	assert.Equal(t, []string{"NVIDIA_VISIBLE_DEVICES=void"}, container.Process.Env, "a container cannot ask for more")
	assert.Len(t, container.Mounts, 1)
}

func TestJoin_SharedEdits_NotWritten(t *testing.T) {
	t.Parallel()
	claim := example()
	claim.Common.DeviceNodes = append(make([]*specs.DeviceNode, 0, 8), &specs.DeviceNode{Path: "/dev/common"})
	_, err := Join(claim)
	require.NoError(t, err)
	assert.Len(t, claim.Common.DeviceNodes, 1)
	assert.Nil(t, claim.Common.DeviceNodes[:2][1])
}

func TestJoin_InvalidEdits_Refused(t *testing.T) {
	t.Parallel()
	none := example()
	none.Devices = nil
	_, err := Join(none)
	require.ErrorContains(t, err, "no devices")

	twice := example()
	twice.Devices[1].Name = twice.Devices[0].Name
	_, err = Join(twice)
	require.ErrorContains(t, err, "duplicate device")

	empty := example()
	empty.Devices[0].Nodes = nil
	_, err = Join(empty)
	require.ErrorContains(t, err, "has no container edits")
}

func TestDir_WriteHoldsRemove_OneFilePerClaim(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cdi")
	claim := example()
	dir, err := OpenDir(disk.OS{}, path, claim.Kind)
	require.NoError(t, err)
	spec, err := Join(claim)
	require.NoError(t, err)
	names := []string{claim.Devices[0].Name, claim.Devices[1].Name}

	assert.False(t, dir.Holds(uid, names))
	require.NoError(t, dir.Write(uid, spec))
	assert.True(t, dir.Holds(uid, names))
	assert.False(t, dir.Holds(uid, names[:1]))
	assert.FileExists(t, filepath.Join(path, "k8s.gpu.prism.dev-claim_"+uid+".json"))

	require.NoError(t, os.WriteFile(filepath.Join(path, "nvidia.yaml"), nil, 0o600))
	uids, err := dir.Claims()
	require.NoError(t, err)
	assert.Equal(t, []string{uid}, uids)

	require.NoError(t, os.WriteFile(filepath.Join(path, "k8s.gpu.prism.dev-claim_"+uid+".json"), []byte("{"), 0o600))
	assert.False(t, dir.Holds(uid, names), "a torn spec is no spec")
	require.NoError(t, dir.Remove(uid))
	require.NoError(t, dir.Remove(uid))
	uids, err = dir.Claims()
	require.NoError(t, err)
	assert.Empty(t, uids)
	assert.FileExists(t, filepath.Join(path, "nvidia.yaml"))
}

// writes counts writes to the disk.
type writes struct {
	disk.OS
	n int
}

func (w *writes) Write(path string, data []byte, perm os.FileMode, durable bool) error {
	w.n++
	return w.OS.Write(path, data, perm, durable)
}

func TestWrite_EqualSpec_LeftAlone(t *testing.T) {
	t.Parallel()
	w := &writes{}
	claim := example()
	dir, err := OpenDir(w, t.TempDir(), claim.Kind)
	require.NoError(t, err)
	spec, err := Join(claim)
	require.NoError(t, err)
	require.NoError(t, dir.Write(uid, spec))
	require.NoError(t, dir.Write(uid, spec))
	assert.Equal(t, 1, w.n)

	claim.Control[0].Major = 510 // the driver was reloaded
	spec, err = Join(claim)
	require.NoError(t, err)
	require.NoError(t, dir.Write(uid, spec))
	assert.Equal(t, 2, w.n)
}

func TestWrite_DirectoryMissing_MadeAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cdi")
	claim := example()
	dir, err := OpenDir(disk.OS{}, path, claim.Kind)
	require.NoError(t, err)
	spec, err := Join(claim)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(path))
	require.NoError(t, dir.Write(uid, spec))
	assert.True(t, dir.Holds(uid, []string{claim.Devices[0].Name, claim.Devices[1].Name}))
}

// TestJoin_Mounts_HaveTypes: mounts of the driver and of steps; a type that is already set stays. Data that later specs share is not
// changed.
func TestJoin_Mounts_HaveTypes(t *testing.T) {
	t.Parallel()
	common := &specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: "/a", ContainerPath: "/a", Options: []string{"rbind"}}}}
	spec, err := Join(Claim{UID: "uid", Kind: Kind("gpu.prism.dev"), Common: common, Devices: []Device{{Name: "d", Mounts: []*specs.Mount{
		{HostPath: "tmpfs", ContainerPath: "/b", Type: "tmpfs"}, {HostPath: "/c", ContainerPath: "/c", Options: []string{"bind"}},
	}}}})
	require.NoError(t, err)
	assert.Equal(t, "bind", spec.ContainerEdits.Mounts[0].Type)
	assert.Equal(t, "tmpfs", spec.Devices[0].ContainerEdits.Mounts[0].Type)
	assert.Equal(t, "bind", spec.Devices[0].ContainerEdits.Mounts[1].Type)
	assert.Empty(t, common.Mounts[0].Type)
}
