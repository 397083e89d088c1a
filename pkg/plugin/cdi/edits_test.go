package cdi

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// pipes returns edits of a step that runs a daemon for its device.
func pipes() Edits {
	return Edits{
		Nodes:  []DeviceNode{{Path: "/dev/nvidia-caps/nvidia-cap1"}},
		Mounts: []*specs.Mount{{HostPath: "/run/prism/pipes", ContainerPath: "/tmp/pipes", Options: []string{"rbind"}}},
		Env:    map[string]string{"PIPES": "/tmp/pipes", "LOGS": "/tmp/logs"},
		Hooks:  []*specs.Hook{{HookName: "createContainer", Path: "/usr/bin/hook"}},
	}
}

// editable returns a builder on a host that contains the files of pipes.
func editable(t *testing.T) (*SpecBuilder, map[string]bool) {
	t.Helper()
	h := newHost()
	h["/dev/nvidia-caps/nvidia-cap1"] = [2]int64{237, 1}
	b, there := builder(h), map[string]bool{"/run/prism/pipes": true, "/usr/bin/hook": true}
	b.Exists = func(path string) error {
		if there[path] {
			return nil
		}
		return fmt.Errorf("%s: %w", path, gpu.ErrNotFound)
	}
	return b, there
}

// twoDevices returns a request for two results of one GPU.
func twoDevices(edits ...DeviceEdits) SpecRequest {
	r := request("GPU-a", gpu.TypeGPU)
	r.Record.Results = append(r.Record.Results, checkpoint.Result{Device: "e", GPUUUID: "GPU-a", Type: gpu.TypeGPU})
	r.Record.CDI.Devices = append(r.Record.CDI.Devices, "e")
	r.Edits = edits
	return r
}

func TestBuild_StepEdits_LandInTheirDevice(t *testing.T) {
	t.Parallel()
	b, _ := editable(t)
	spec, err := b.Build(twoDevices(DeviceEdits{Device: "e", Source: "step a", Edits: pipes()}, DeviceEdits{Device: "e", Source: "step b", Edits: Edits{
		Mounts: pipes().Mounts, Env: map[string]string{"LOGS": "/tmp/logs", "MORE": "1"},
	}}))
	require.NoError(t, err)
	plain, err := b.Build(twoDevices())
	require.NoError(t, err)
	assert.Equal(t, plain.Devices[0], spec.Devices[0])
	assert.Equal(t, plain.ContainerEdits, spec.ContainerEdits)
	mounts := pipes().Mounts
	require.Empty(t, mounts[0].Type)
	mounts[0].Type = "bind"
	assert.Equal(t, specs.ContainerEdits{
		DeviceNodes: append(plain.Devices[1].ContainerEdits.DeviceNodes, &specs.DeviceNode{
			Path: "/dev/nvidia-caps/nvidia-cap1", Type: "c", Major: 237, Minor: 1, Permissions: "rw",
		}),
		Mounts: mounts, Env: []string{protocol.Mark("e") + "=gpu", "LOGS=/tmp/logs", "PIPES=/tmp/pipes", "MORE=1"}, Hooks: pipes().Hooks,
	}, spec.Devices[1].ContainerEdits)
}

func TestBuild_MissingSourceOfEdit_NamesStepAndPath(t *testing.T) {
	t.Parallel()
	for missing, want := range map[string]string{
		"/dev/nvidia-caps/nvidia-cap1": "CDI edits of step a: inspecting device node /dev/nvidia-caps/nvidia-cap1: not found",
		"/run/prism/pipes":             "CDI edits of step a: mount of /tmp/pipes: /run/prism/pipes: not found",
		"/usr/bin/hook":                "CDI edits of step a: createContainer hook: /usr/bin/hook: not found",
	} {
		b, there := editable(t)
		if delete(there, missing); missing == "/dev/nvidia-caps/nvidia-cap1" {
			b.Stat = newHost().stat
		}
		_, err := b.Build(twoDevices(DeviceEdits{Device: "e", Source: "step a", Edits: pipes()}))
		var failed *DeviceError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "e", failed.Device)
		assert.True(t, failed.Edit)
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, gpu.ErrNotFound)
	}
}

// TestBuild_ExclusiveEdits_DifferPerDevice: values in a container with only one device may differ between devices, but not within one
// device.
func TestBuild_ExclusiveEdits_DifferPerDevice(t *testing.T) {
	t.Parallel()
	env := func(value string) Edits { return Edits{Env: map[string]string{"PIPES": value}, Exclusive: true} }
	b, _ := editable(t)
	spec, err := b.Build(twoDevices(DeviceEdits{"d", "step a", env("1")}, DeviceEdits{"e", "step a", env("2")}))
	require.NoError(t, err)
	assert.Contains(t, spec.Devices[0].ContainerEdits.Env, "PIPES=1")
	assert.Contains(t, spec.Devices[1].ContainerEdits.Env, "PIPES=2")
	_, err = b.Build(twoDevices(DeviceEdits{"d", "step a", env("1")}, DeviceEdits{"d", "step b", env("2")}))
	require.EqualError(t, err, `CDI edits of step b: variable PIPES is set to "1" by step a of device d and to "2" by step b of device d`)
}

func TestBuild_ConflictingEdits_NamesBoth(t *testing.T) {
	t.Parallel()
	env := func(value string) Edits { return Edits{Env: map[string]string{"PIPES": value}} }
	mount := func(source, target string) Edits {
		return Edits{Mounts: []*specs.Mount{{HostPath: source, ContainerPath: target}}}
	}
	for name, c := range map[string]struct {
		edits []DeviceEdits
		want  string
	}{
		"a variable in two devices": {
			[]DeviceEdits{{"d", "step a", env("1")}, {"e", "step b", env("2")}},
			`CDI edits of step b: variable PIPES is set to "1" by step a of device d and to "2" by step b of device e`,
		},
		"a variable of the driver": {
			[]DeviceEdits{{"d", "step a", Edits{Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}}}},
			`CDI edits of step a: variable NVIDIA_VISIBLE_DEVICES is set to "void" by the driver and to "all" by step a of device d`,
		},
		"a path": {
			[]DeviceEdits{{"d", "step a", mount("/run/prism/pipes", "/tmp/pipes")}, {"d", "step b", mount("/usr/bin/hook", "/tmp/pipes")}},
			`CDI edits of step b: container path /tmp/pipes is set to "mount of /run/prism/pipes" by step a of device d ` +
				`and to "mount of /usr/bin/hook" by step b of device d`,
		},
		"a device node of the GPU": {
			[]DeviceEdits{{"e", "step a", mount("/usr/bin/hook", "/dev/nvidia3")}},
			`CDI edits of step a: container path /dev/nvidia3 is set to "device 195:3" by device e and to "mount of /usr/bin/hook" by step a of device e`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := editable(t)
			present := b.Present()
			present.Common.Env = []string{"NVIDIA_VISIBLE_DEVICES=void"}
			b.Present = func() Present { return present }
			_, err := b.Build(twoDevices(c.edits...))
			var failed *DeviceError
			require.ErrorAs(t, err, &failed)
			assert.True(t, failed.Edit)
			require.EqualError(t, err, c.want)
		})
	}
}
