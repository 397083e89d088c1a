package cdi

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// host is a /dev whose nodes can be removed.
type host map[string][2]int64

func (h host) stat(path string) (int64, int64, error) {
	numbers, ok := h[path]
	if !ok {
		return 0, 0, fmt.Errorf("inspecting device node %s: %w", path, gpu.ErrNotFound)
	}
	return numbers[0], numbers[1], nil
}

func newHost() host {
	return host{
		"/dev/nvidiactl": {195, 255}, "/dev/nvidia-uvm": {235, 0}, "/dev/nvidia-uvm-tools": {235, 1},
		"/dev/nvidia0": {195, 0}, "/dev/nvidia3": {195, 3},
	}
}

func builder(h host) *SpecBuilder {
	node := &gpu.Node{Driver: gpu.Driver{Version: "580.95.05"}, GPUs: []gpu.GPU{{UUID: "GPU-a", Minor: 3}}}
	return &SpecBuilder{
		Present: func() Present { return Present{Node: node, Common: &specs.ContainerEdits{}, DevRoot: "/"} },
		Stat:    h.stat,
	}
}

func request(uuid gpu.UUID, kind gpu.DeviceType) SpecRequest {
	return SpecRequest{Record: &checkpoint.Record{
		Claim: checkpoint.Claim{UID: uid}, Results: []checkpoint.Result{{Device: "d", GPUUUID: uuid, Type: kind}},
		CDI: checkpoint.CDI{Kind: Kind("gpu.prism.dev"), Devices: []string{"d"}},
	}}
}

// TestBuild_Graphics_NodesOfTheGPUItself: a container with a GPU can use it for graphics; a container with a MIG device only if the profile
// supports graphics.
func TestBuild_Graphics_NodesOfTheGPUItself(t *testing.T) {
	t.Parallel()
	h := newHost()
	h["/dev/dri/card1"], h["/dev/dri/renderD129"] = [2]int64{226, 1}, [2]int64{226, 129}
	a := builder(h)
	node := a.Present().Node
	node.GPUs[0].PCI.BusID = "0000:3b:00.0"
	a.Graphics = func(busID string) ([]string, error) {
		assert.Equal(t, "0000:3b:00.0", busID)
		return []string{"/dev/dri/card1", "/dev/dri/card7", "/dev/dri/renderD129"}, nil
	}
	a.Capabilities = func(int, gpu.MIGIdentity) ([]DeviceNode, error) {
		return []DeviceNode{{Path: "/dev/nvidia-caps/nvidia-cap3"}}, nil
	}
	drawing := []string{"/dev/dri/card1", "/dev/dri/renderD129"}
	for name, c := range map[string]struct {
		kind    gpu.DeviceType
		profile string
		want    []string
	}{
		"whole GPU": {gpu.TypeGPU, "", drawing}, "time-sliced share": {gpu.TypeTimeSlice, "", drawing}, "MPS share": {gpu.TypeMPS, "", drawing},
		"monitoring of a GPU": {gpu.TypeMonitor, "", nil}, "MIG device": {gpu.TypeMIG, "1g.24gb+me", nil},
		"MIG device for graphics":       {gpu.TypeMIG, "1g.24gb+gfx", drawing},
		"MIG device with all of it":     {gpu.TypeMIG, "4g.96gb+me,gfx", drawing},
		"MIG device of an old record":   {gpu.TypeMIG, "", nil},
		"MIG device without extensions": {gpu.TypeMIG, "1g.24gb-gfx", nil},
	} {
		r := request("GPU-a", c.kind)
		if c.profile != "" {
			r.Record.Results[0].MIG = &checkpoint.MIG{Name: c.profile}
		}
		spec, err := a.Build(r)
		require.NoError(t, err, name)
		var got []string
		for _, n := range spec.Devices[0].ContainerEdits.DeviceNodes {
			if strings.HasPrefix(n.Path, "/dev/dri/") {
				got = append(got, n.Path)
				assert.EqualValues(t, 226, n.Major)
			}
		}
		assert.Equal(t, c.want, got, name)
	}
	a.Graphics = func(string) ([]string, error) { return nil, errors.New("input/output error") }
	_, err := a.Build(request("GPU-a", gpu.TypeGPU))
	assert.ErrorContains(t, err, "input/output error")
}

func TestBuild_DeviceNumbers_ReadFromHost(t *testing.T) {
	t.Parallel()
	h := newHost()
	a := builder(h)
	spec, err := a.Build(request("GPU-a", gpu.TypeGPU))
	require.NoError(t, err)
	require.Len(t, spec.Devices[0].ContainerEdits.DeviceNodes, 1)
	assert.Equal(t, "/dev/nvidia3", spec.Devices[0].ContainerEdits.DeviceNodes[0].Path)
	assert.Len(t, spec.ContainerEdits.DeviceNodes, 3, "the optional node that is missing is left out")

	h["/dev/nvidia-uvm"] = [2]int64{511, 7}
	spec, err = a.Build(request("GPU-a", gpu.TypeMonitor))
	require.NoError(t, err)
	share, err := a.Build(request("GPU-a", gpu.TypeTimeSlice))
	require.NoError(t, err)
	assert.Equal(t, []string{protocol.Mark("d") + "=timeslice"}, share.Devices[0].ContainerEdits.Env)
	share.Devices[0].ContainerEdits.Env = nil
	assert.Equal(t, spec, share, "a time-sliced share has the same device nodes and hooks as the whole GPU")
	assert.EqualValues(t, 511, spec.ContainerEdits.DeviceNodes[1].Major)
	assert.EqualValues(t, 7, spec.ContainerEdits.DeviceNodes[1].Minor)
}

// TestBuild_DriverDevRoot_HostNodeIfSameDevice: runc ignores the path on the host for containers in user namespaces.
func TestBuild_DriverDevRoot_HostNodeIfSameDevice(t *testing.T) {
	t.Parallel()
	const root = "/run/nvidia/driver"
	for name, c := range map[string]struct {
		change func(onHost, driver host)
		path   string // path of the GPU's device node on the host
		first  string // result of DriverNode for the GPU
	}{
		"the same devices":  {func(_, _ host) {}, "", ""},
		"none on the host":  {func(onHost, _ host) { clear(onHost) }, root + "/dev/nvidia3", root + "/dev/nvidiactl"},
		"the GPU's missing": {func(onHost, _ host) { delete(onHost, "/dev/nvidia3") }, root + "/dev/nvidia3", root + "/dev/nvidia3"},
		"another GPU's":     {func(onHost, _ host) { onHost["/dev/nvidia3"] = [2]int64{195, 0} }, root + "/dev/nvidia3", root + "/dev/nvidia3"},
		"another driver's":  {func(onHost, _ host) { onHost["/dev/nvidia3"] = [2]int64{1, 3} }, root + "/dev/nvidia3", root + "/dev/nvidia3"},
		"an optional one":   {func(onHost, _ host) { delete(onHost, "/dev/nvidia-uvm-tools") }, "", root + "/dev/nvidia-uvm-tools"},
		"in neither": {func(onHost, driver host) {
			delete(onHost, "/dev/nvidia-uvm-tools")
			delete(driver, "/dev/nvidia-uvm-tools")
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, driver := newHost(), newHost()
			c.change(h, driver)
			for path, numbers := range driver {
				h[root+path] = numbers
			}
			a := builder(h)
			present := a.Present()
			present.DevRoot = root
			a.Present = func() Present { return present }
			spec, err := a.Build(request("GPU-a", gpu.TypeGPU))
			require.NoError(t, err)
			node := spec.Devices[0].ContainerEdits.DeviceNodes[0]
			assert.Equal(t, "/dev/nvidia3", node.Path)
			assert.Equal(t, c.path, node.HostPath)
			assert.Equal(t, [2]int64{195, 3}, [2]int64{node.Major, node.Minor})
			assert.Equal(t, c.first, a.DriverNode([]gpu.UUID{"GPU-a"}))
			assert.Equal(t, c.first, a.DriverNode([]gpu.UUID{""}), "the monitor")
		})
	}
}

func TestBuild_ExtraDevices_Added(t *testing.T) {
	t.Parallel()
	a := builder(newHost())
	present := a.Present()
	present.Extra = []DeviceNode{{Path: "/dev/gdrdrv", HostPath: "/dev/gdrdrv", Major: 500}}
	present.ExtraMounts = []*specs.Mount{{HostPath: "/run/udev", ContainerPath: "/run/udev", Options: []string{"ro"}}}
	a.Present = func() Present { return present }
	spec, err := a.Build(request("GPU-a", gpu.TypeGPU))
	require.NoError(t, err)
	nodes := spec.ContainerEdits.DeviceNodes
	require.Len(t, nodes, 4)
	assert.Equal(t, "/dev/gdrdrv", nodes[3].Path)
	assert.EqualValues(t, 500, nodes[3].Major)
	require.Len(t, spec.ContainerEdits.Mounts, 1)
	assert.Equal(t, "/run/udev", spec.ContainerEdits.Mounts[0].HostPath)
	assert.Empty(t, present.Common.Mounts, "what all claims share is not written to")
}

func TestBuild_MissingDevice_Named(t *testing.T) {
	t.Parallel()
	h := newHost()
	delete(h, "/dev/nvidia3")
	_, err := builder(h).Build(request("GPU-a", gpu.TypeGPU))
	var missing *DeviceError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, "d", missing.Device)
	require.ErrorIs(t, err, gpu.ErrNotFound)
	require.ErrorContains(t, err, "/dev/nvidia3")

	h = newHost()
	delete(h, "/dev/nvidiactl")
	_, err = builder(h).Build(request("GPU-a", gpu.TypeGPU))
	require.ErrorContains(t, err, "/dev/nvidiactl")

	_, err = builder(newHost()).Build(request("GPU-b", gpu.TypeGPU))
	require.ErrorContains(t, err, "GPU GPU-b is not on this node")
	_, err = builder(newHost()).Build(request("GPU-a", "hologram"))
	require.ErrorContains(t, err, `a device of type "hologram" is not supported`)
}

func TestBuild_NoDriver_Refused(t *testing.T) {
	t.Parallel()
	a := builder(newHost())
	a.Present = func() Present { return Present{Node: &gpu.Node{}} }
	_, err := a.Build(request("GPU-a", gpu.TypeGPU))
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
}

// A MIG device needs the nodes of its GPU and of its two instances, but no nodes of other MIG devices.
func TestBuild_MIGDevice_HasItsCapabilities(t *testing.T) {
	t.Parallel()
	a := builder(newHost())
	slice := gpu.MIGIdentity{GPUInstance: 2, ComputeInstance: 1, UUID: "MIG-1"}
	a.Capabilities = func(minor int, id gpu.MIGIdentity) ([]DeviceNode, error) {
		if minor != 3 || id != slice {
			return nil, fmt.Errorf("finding a MIG device's capability: %w", gpu.ErrNotFound)
		}
		return []DeviceNode{
			{Path: "/dev/nvidia-caps/nvidia-cap21", HostPath: "/dev/nvidia-caps/nvidia-cap21", Major: 236, Minor: 21},
			{Path: "/dev/nvidia-caps/nvidia-cap23", HostPath: "/dev/nvidia-caps/nvidia-cap23", Major: 236, Minor: 23},
		}, nil
	}
	o := request("GPU-a", gpu.TypeMIG)
	o.Record.Results[0].MIG = &checkpoint.MIG{Identity: slice}
	spec, err := a.Build(o)
	require.NoError(t, err)
	var nodes []string
	for _, n := range spec.Devices[0].ContainerEdits.DeviceNodes {
		nodes = append(nodes, fmt.Sprintf("%s %d:%d %s", n.Path, n.Major, n.Minor, n.Permissions))
	}
	assert.Equal(t, []string{
		"/dev/nvidia3 195:3 rw", "/dev/nvidia-caps/nvidia-cap21 236:21 rw", "/dev/nvidia-caps/nvidia-cap23 236:23 rw",
	}, nodes)

	o.Record.Results[0].MIG.Identity.GPUInstance = 3
	_, err = a.Build(o)
	var missing *DeviceError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, "d", missing.Device)
	require.ErrorIs(t, err, gpu.ErrNotFound)
}

// TestBuild_Monitor_ShowsAllGPUs: the monitor of a node gets the nodes of all GPUs, and the node that shows all MIG devices if it exists.
func TestBuild_Monitor_ShowsAllGPUs(t *testing.T) {
	t.Parallel()
	a := builder(newHost())
	present := a.Present()
	present.Node.GPUs = append(present.Node.GPUs, gpu.GPU{UUID: "GPU-b"})
	a.Present = func() Present { return present }
	paths := func() (paths []string) {
		spec, err := a.Build(request("", gpu.TypeMonitor))
		require.NoError(t, err)
		for _, node := range spec.Devices[0].ContainerEdits.DeviceNodes {
			paths = append(paths, node.Path)
		}
		return paths
	}
	a.Monitoring = func() (DeviceNode, error) { return DeviceNode{}, fmt.Errorf("no MIG: %w", gpu.ErrNotFound) }
	assert.Equal(t, []string{"/dev/nvidia3", "/dev/nvidia0"}, paths())
	const capability = "/dev/nvidia-caps/nvidia-cap2"
	a.Monitoring = func() (DeviceNode, error) {
		return DeviceNode{Path: capability, HostPath: capability, Major: 237, Minor: 2}, nil
	}
	assert.Equal(t, []string{"/dev/nvidia3", "/dev/nvidia0", capability}, paths())

	a.Monitoring = func() (DeviceNode, error) { return DeviceNode{}, errors.New("it has other numbers") }
	_, err := a.Build(request("", gpu.TypeMonitor))
	require.EqualError(t, err, "it has other numbers")
	present.Node.GPUs = nil
	_, err = a.Build(request("", gpu.TypeMonitor))
	require.EqualError(t, err, "no GPU on this node: not found")
}
