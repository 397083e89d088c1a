package inventory_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/hostfs/pcie"
	"github.com/prism-gpu/prism/pkg/nvml"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// seen is the result of one inspection, in a form that crosses a process boundary.
type seen struct {
	Node   seenNode
	Root   hostfs.DriverRoot
	Mounts map[string]string // container path → host path
	Kind   string            // the kind of error that ended the inspection
	Err    string
}

type seenNode struct {
	Driver gpu.Driver
	GPUs   []gpu.GPU
	Faults map[gpu.UUID]string // → kind of error
}

var kinds = map[string]error{
	"not loaded": gpu.ErrDriverNotLoaded, "replaced": gpu.ErrDriverReplaced, "lost": gpu.ErrLost, "timeout": gpu.ErrTimeout,
}

func kindOf(err error) string {
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			return name
		}
	}
	if err != nil {
		return "other"
	}
	return ""
}

// inspect runs one inspection.
func inspect(i *inventory.Inventory) seen {
	err := i.Refresh(context.Background())
	v := i.Current()
	s := seen{Root: v.Root, Kind: kindOf(err), Node: seenNode{Driver: v.Node.Driver, GPUs: v.Node.GPUs}}
	if err != nil {
		s.Err = err.Error()
	}
	for _, fault := range v.Node.Faults {
		if s.Node.Faults == nil {
			s.Node.Faults = map[gpu.UUID]string{}
		}
		s.Node.Faults[fault.UUID] = kindOf(fault.Err)
	}
	if v.Common != nil {
		s.Mounts = map[string]string{}
		for _, m := range v.Common.Mounts {
			s.Mounts[m.ContainerPath] = m.HostPath
		}
	}
	return s
}

const (
	childRoot     = "PRISM_TEST_HOST_ROOT"
	childDeadline = "PRISM_TEST_DEADLINE"
)

// TestMain is also the child process of this test. The child binds the simulated library; the test's own process must not.
func TestMain(m *testing.M) {
	root := os.Getenv(childRoot)
	if root == "" {
		os.Exit(sandbox.OnGPUMachine(m))
	}
	deadline, err := time.ParseDuration(os.Getenv(childDeadline))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	open := func() *inventory.Inventory {
		return inventory.New(inventory.Options{
			Host: pcie.New(root), MemoryLimits: true, Polled: func(gpu.HealthPoll) {},
			Open: func(ctx context.Context, r hostfs.DriverRoot) (inventory.Session, error) {
				session, err := nvml.Open(ctx, r.Library, nvml.Options{Root: r.Path, HostRoot: r.HostPath, Deadline: deadline})
				if err != nil {
					return nil, err
				}
				return session, nil
			},
		})
	}
	i := open()
	answers := json.NewEncoder(os.Stdout)
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		if asked.Text() == "restart" {
			i.Close()
			i = open()
		}
		answer := any(inspect(i))
		if asked.Text() == "partition" {
			answer = partition(i)
		}
		if err := answers.Encode(answer); err != nil {
			os.Exit(1)
		}
	}
	os.Exit(0)
}

// node is one machine under test, and the inventory that inspects it.
type node struct {
	hardware  *model.Node
	inspect   func(*testing.T) seen
	partition func(*testing.T) migDevice
	// restart inspects with a new inventory.
	restart func(*testing.T) seen
	// removeNode removes a device node, restoreNodes creates all missing ones.
	removeNode   func(t *testing.T, name string)
	restoreNodes func(*testing.T)
	// root is the directory with the node's files; empty if there are none.
	root   string
	unload func(*testing.T)
	load   func(*testing.T)
	// replace installs another driver version while no driver is loaded.
	replace func(*testing.T, model.DriverVersion)
}

// modelled returns a node that implements the ports, without files.
func modelled(t *testing.T, spec model.Spec) node {
	t.Helper()
	hardware, err := model.New(spec)
	require.NoError(t, err)
	host := port.NewHost(hardware)
	i := inventory.New(inventory.Options{Host: host, Open: host.Open, MemoryLimits: true})
	installed, _ := hardware.Driver()
	return node{
		hardware:  hardware,
		inspect:   func(*testing.T) seen { return inspect(i) },
		partition: func(*testing.T) migDevice { return partition(i) },
		unload:    func(*testing.T) { hardware.Unload() },
		load:      func(t *testing.T) { require.NoError(t, hardware.Load(installed)) },
		replace: func(_ *testing.T, version model.DriverVersion) {
			installed = version
			host.Install(version)
		},
	}
}

// sandboxed returns a node of files, with the driver's library in a child process. The deadline of its calls is long enough for a busy
// machine.
func sandboxed(t *testing.T, spec model.Spec) node {
	t.Helper()
	return sandboxedWithin(t, spec, 5*time.Minute)
}

// sandboxedWithin is sandboxed for tests that wait for the deadline of a call that hangs.
func sandboxedWithin(t *testing.T, spec model.Spec, deadline time.Duration) node {
	t.Helper()
	files := sandbox.Start(t, spec)
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.Command(self)
	child.Env = append(os.Environ(), childRoot+"="+files.Root(), childDeadline+"="+deadline.String())
	child.Stderr = os.Stderr
	ask, err := child.StdinPipe()
	require.NoError(t, err)
	answer, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		require.NoError(t, ask.Close())
		require.NoError(t, child.Wait(), "the child ended by itself")
	})
	answers := json.NewDecoder(answer)
	say := func(t *testing.T, what string, reply any) {
		t.Helper()
		_, err := fmt.Fprintln(ask, what)
		require.NoError(t, err)
		require.NoError(t, answers.Decode(reply))
	}
	return node{
		hardware: files.Model,
		inspect: func(t *testing.T) (s seen) {
			t.Helper()
			say(t, "inspect", &s)
			return s
		},
		partition: func(t *testing.T) (s migDevice) {
			t.Helper()
			say(t, "partition", &s)
			return s
		},
		restart: func(t *testing.T) (s seen) {
			t.Helper()
			say(t, "restart", &s)
			return s
		},
		removeNode:   func(_ *testing.T, name string) { files.RemoveDeviceNode(name) },
		restoreNodes: func(*testing.T) { files.RestoreDeviceNodes() },
		root:         files.Root(),
		unload:       func(*testing.T) { files.UnloadDriver() },
		load:         func(*testing.T) { files.LoadDriver() },
		replace:      func(_ *testing.T, version model.DriverVersion) { files.ReplaceDriver(version) },
	}
}

// machines are the two kinds of node; both must behave in the same way.
var machines = map[string]func(*testing.T, model.Spec) node{"model": modelled, "library": sandboxed}

func TestInventory_DriverOfSimulatedNode_Followed(t *testing.T) {
	t.Parallel()
	spec := model.Uniform("node", "h100-80", 8)
	t.Run("model", func(t *testing.T) {
		t.Parallel()
		live(t, modelled(t, spec))
	})
	t.Run("library", func(t *testing.T) {
		t.Parallel()
		live(t, sandboxedWithin(t, spec, 5*time.Second))
	})
}

// requireLost checks that only this of 8 GPUs is lost. One bad GPU hides no other, and stays with its last facts.
func requireLost(t *testing.T, s seen, lost int) {
	t.Helper()
	require.Len(t, s.Node.GPUs, 8)
	for i := range s.Node.GPUs {
		assert.Equal(t, i == lost, s.Node.GPUs[i].Lost, "GPU %d", i)
	}
}

// live takes a node through all changes of its driver.
func live(t *testing.T, n node) {
	first := n.inspect(t)
	require.Empty(t, first.Err)
	require.Len(t, first.Node.GPUs, 8)
	assert.Empty(t, first.Node.Faults)
	ids := n.hardware.Identities()

	lost, err := n.hardware.Faults.Add(model.Fault{Effect: model.EffectError, Return: model.GPUIsLost, GPU: 2})
	require.NoError(t, err)
	s := n.inspect(t)
	requireLost(t, s, 2)
	assert.Equal(t, map[gpu.UUID]string{gpu.UUID(ids[2].UUID): "lost"}, s.Node.Faults)
	n.hardware.Faults.Remove(lost)
	assert.Empty(t, cmp.Diff(first, n.inspect(t)), "back")

	_, err = n.hardware.Faults.Add(model.Fault{Effect: model.EffectHang, Call: "nvmlDeviceGetPerformanceState", GPU: 1})
	require.NoError(t, err)
	s = n.inspect(t)
	requireLost(t, s, 1)
	assert.Equal(t, map[gpu.UUID]string{gpu.UUID(ids[1].UUID): "timeout"}, s.Node.Faults)
	n.hardware.Faults.Clear()
	require.Eventually(t, func() bool { return cmp.Equal(first, n.inspect(t)) }, time.Minute, 10*time.Millisecond)

	n.unload(t)
	s = n.inspect(t)
	assert.Equal(t, "not loaded", s.Kind, s.Err)
	assert.Empty(t, s.Node.GPUs)
	assert.Empty(t, s.Mounts)
	n.load(t)
	assert.Empty(t, cmp.Diff(first, n.inspect(t)), "the same library is opened again in the same process")

	n.unload(t)
	require.Equal(t, "not loaded", n.inspect(t).Kind)
	n.replace(t, "590.44.01")
	assert.Equal(t, "replaced", n.inspect(t).Kind)
	n.load(t)
	s = n.inspect(t)
	assert.Equal(t, "replaced", s.Kind, s.Err)
	assert.Empty(t, s.Node.GPUs)
}

func TestInventory_EveryModelAndDriver_AsModelled(t *testing.T) {
	t.Parallel()
	nodes := map[string]model.Spec{
		"oldest driver": {Name: "n", Driver: "450.248.02", Boards: []string{"t4", "a100-40"}},
		"470":           {Name: "n", Driver: "470.256.02", Boards: []string{"a30", "a100-80"}},
		"535":           {Name: "n", Driver: "535.183.01", Boards: []string{"h100-80", "h200-141", "l40s"}, Minors: []int{2, 0, 1}},
		"newest driver": {Name: "n", Boards: model.BoardIDs()},
	}
	for name, spec := range nodes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			modelled, real := modelled(t, spec).inspect(t), sandboxed(t, spec).inspect(t)
			require.Empty(t, real.Err)
			require.Len(t, real.Node.GPUs, len(spec.Boards))
			assert.Empty(t, cmp.Diff(modelled.Node, real.Node), "the port says what the library says")
			requireLinks(t, real)
		})
	}
}

// requireLinks checks that programs in a container without hooks find the libraries by the usual names.
func requireLinks(t *testing.T, s seen) {
	t.Helper()
	dir := "/usr/lib/x86_64-linux-gnu/"
	if _, ok := s.Mounts["/usr/lib/aarch64-linux-gnu/libcuda.so.1"]; ok {
		dir = "/usr/lib/aarch64-linux-gnu/"
	}
	file := dir + "libcuda.so." + s.Node.Driver.Version
	for _, name := range []string{"libcuda.so", "libcuda.so.1", "libcuda.so." + s.Node.Driver.Version} {
		assert.Equal(t, file, s.Mounts[dir+name], name)
	}
	assert.Equal(t, dir+"libnvidia-ml.so."+s.Node.Driver.Version, s.Mounts[dir+"libnvidia-ml.so.1"])
	assert.Equal(t, "/usr/bin/nvidia-smi", s.Mounts["/usr/bin/nvidia-smi"])
	assert.Equal(t, "/run/nvidia-persistenced/socket", s.Mounts["/run/nvidia-persistenced/socket"])
}

// TestInventory_MemoryLimits_OfDriverAndNode: both must support memory limits of containers.
func TestInventory_MemoryLimits_OfDriverAndNode(t *testing.T) {
	t.Parallel()
	for version, want := range map[model.DriverVersion]bool{"580.95.05": false, "615.71.09": true} {
		for name, make := range machines {
			t.Run(name+" "+version.String(), func(t *testing.T) {
				t.Parallel()
				seen := make(t, model.Spec{Name: "node", Driver: version, Boards: []string{"h100-80"}}).inspect(t)
				require.Len(t, seen.Node.GPUs, 1)
				assert.Equal(t, want, seen.Node.GPUs[0].MemoryLimits)
			})
		}
	}
	hardware, err := model.New(model.Spec{Name: "node", Driver: "615.71.09", Boards: []string{"h100-80"}})
	require.NoError(t, err)
	host := port.NewHost(hardware)
	without := inspect(inventory.New(inventory.Options{Host: host, Open: host.Open}))
	assert.False(t, without.Node.GPUs[0].MemoryLimits, "the node cannot")
}
