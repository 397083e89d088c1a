package cdi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// FuzzJoin joins claims with arbitrary names, paths and variables. Each line of names is a device. Each line of env is a variable, of one
// device after the other and of all.
func FuzzJoin(f *testing.F) {
	f.Add("gpu.prism.dev", uid, "gpu-3f2a9c1b\ngpu-00000001-monitor", "share-1", true, "/dev/nvidia0", "", int64(195), int64(0), "A=b\nC=d", "/usr/lib")
	f.Fuzz(func(t *testing.T, driver, claimUID, names, shareID string, admin bool, path, hostPath string, major, minor int64, env, mount string) {
		c := Claim{UID: claimUID, Kind: Kind(driver), Common: common(env, mount)}
		variables := strings.Split(env, "\n")
		for i, name := range strings.Split(names, "\n") {
			d := Device{Name: DeviceName(claimUID, gpu.DeviceName(name), shareID, admin, "GPU-"+name)}
			if path != "" {
				d.Nodes = []DeviceNode{{Path: path, HostPath: hostPath, Major: major, Minor: minor}}
			}
			if i < len(variables) && variables[i] != "" {
				d.Env = variables[i : i+1]
			}
			c.Devices = append(c.Devices, d)
		}
		c.Control = []DeviceNode{{Path: "/dev/nvidiactl", HostPath: hostPath + "/dev/nvidiactl", Major: major, Minor: 255}}
		before, err := json.Marshal(c.Common)
		require.NoError(t, err)
		spec, joinErr := Join(c)
		after, err := json.Marshal(c.Common)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), "Common was written to")
		require.Equal(t, "/dev/common", c.Common.DeviceNodes[:2][0].Path)
		require.Nil(t, c.Common.DeviceNodes[:2][1], "what lies behind Common was written to")
		if joinErr == nil {
			accepted(t, c, spec)
		}
	})
}

// common returns edits with spare capacity behind the device nodes, which an append would overwrite.
func common(env, mount string) *specs.ContainerEdits {
	edits := &specs.ContainerEdits{DeviceNodes: append(make([]*specs.DeviceNode, 0, 8), &specs.DeviceNode{Path: "/dev/common"})}
	if env != "" {
		edits.Env = strings.Split(env, "\n")
	}
	if mount != "" {
		edits.Mounts = []*specs.Mount{{HostPath: mount, ContainerPath: mount, Options: []string{"ro", "bind"}}}
		edits.Hooks = []*specs.Hook{{HookName: "createContainer", Path: mount, Args: []string{mount}}}
	}
	return edits
}

// accepted requires that a runtime reads the requested devices from the spec's file, in order.
func accepted(t *testing.T, c Claim, spec *specs.Spec) {
	t.Helper()
	path := t.TempDir()
	dir, err := OpenDir(disk.OS{}, path, c.Kind)
	require.NoError(t, err)
	require.NoError(t, dir.Write(uid, spec))
	file := filepath.Join(path, FileName(c.Kind, uid))
	read, err := cdiapi.ReadSpec(file, 0)
	text, _ := os.ReadFile(file)
	require.NoError(t, err, "%s", text)
	require.Empty(t, cmp.Diff(spec, read.Spec, cmpopts.EquateEmpty()), "%s", text)

	require.Equal(t, c.Kind, read.Kind)
	require.Len(t, read.Devices, len(c.Devices))
	names := make([]string, len(c.Devices))
	for i, d := range c.Devices {
		names[i] = d.Name
		require.Equal(t, d.Name, read.Devices[i].Name)
		require.Equal(t, d.Env, read.Devices[i].ContainerEdits.Env)
		require.Len(t, read.Devices[i].ContainerEdits.DeviceNodes, len(d.Nodes))
		for j, node := range d.Nodes {
			is := read.Devices[i].ContainerEdits.DeviceNodes[j]
			require.Equal(t, []any{node.Path, node.Major, node.Minor, "c"}, []any{is.Path, is.Major, is.Minor, is.Type})
		}
	}
	require.True(t, dir.Holds(uid, names))
	require.Equal(t, c.Control[0].Path, read.ContainerEdits.DeviceNodes[0].Path)
	require.Equal(t, "/dev/common", read.ContainerEdits.DeviceNodes[1].Path)
	require.Equal(t, c.Common.Env, read.ContainerEdits.Env)
}
