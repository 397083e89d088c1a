package nvcdi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/hostfs/pcie"
	"github.com/prism-gpu/prism/pkg/nvml"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// childRoot is the root of the node that a child process describes.
const childRoot = "PRISM_TEST_NODE_ROOT"

// hook is the program that both specs name.
const hook = "/usr/bin/nvidia-cdi-hook"

// pair holds both specs of one device.
type pair struct {
	Device       string
	Ours, Theirs *specs.Spec
}

// TestMain is also the child process that builds the specs. NVIDIA's generator reads the process's own /sys and /proc, so the root of the
// simulated node is the child's root.
func TestMain(m *testing.M) {
	root := os.Getenv(childRoot)
	if root == "" {
		os.Exit(m.Run())
	}
	err := errors.Join(syscall.Chroot(root), os.Chdir("/"))
	var pairs []pair
	if err == nil {
		pairs, err = describe(context.Background())
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(pairs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// described runs the child on a node.
func described(t *testing.T, node *sandbox.Node) (pairs []pair) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), self)
	child.Env, child.Stderr = append(os.Environ(), childRoot+"="+node.Root()), os.Stderr
	out, err := child.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &pairs))
	return pairs
}

// describe builds the specs of the second GPU, and of a MIG device on the first one if it is in MIG mode.
func describe(ctx context.Context) ([]pair, error) {
	host := pcie.New("/")
	inv := inventory.New(inventory.Options{Host: host, Open: func(ctx context.Context, r hostfs.DriverRoot) (inventory.Session, error) {
		return nvml.Open(ctx, r.Library, nvml.Options{Root: r.Path, HostRoot: r.HostPath, HookPath: hook, Deadline: time.Minute})
	}})
	if err := inv.Refresh(ctx); err != nil {
		return nil, err
	}
	node := inv.Current().Node
	results := []checkpoint.Result{{Device: "gpu", Type: gpu.TypeGPU, GPUUUID: node.GPUs[1].UUID}}
	ids := []string{string(node.GPUs[1].UUID)}
	if m := node.GPUs[0].MIG; m != nil && m.Mode.Enabled {
		device, err := partition(ctx, inv, &node.GPUs[0])
		if err != nil {
			return nil, err
		}
		results, ids = append(results, device), append(ids, "0:0")
	}
	theirs, err := nvcdi.New(nvcdi.WithMode(nvcdi.ModeNvml), nvcdi.WithDriverRoot("/"), nvcdi.WithDevRoot("/"), nvcdi.WithNVIDIACDIHookPath(hook),
		nvcdi.WithNvmlLib(gonvml.New(gonvml.WithLibraryPath(inv.Current().Root.Library))), nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
		nvcdi.WithLogger(silence{}))
	if err != nil {
		return nil, err
	}
	builder := plugin.SpecBuilder(host, inv, nil)
	var pairs []pair
	for i := range results {
		record := &checkpoint.Record{
			Claim: checkpoint.Claim{UID: "claim"}, Results: results[i : i+1], CDI: checkpoint.CDI{Kind: cdi.Kind("gpu.prism.dev"), Devices: []string{"claim-device"}},
		}
		ours, err := builder.Build(cdi.SpecRequest{Record: record})
		if err != nil {
			return nil, err
		}
		spec, err := theirs.GetSpec(ids[i])
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair{Device: string(results[i].Type), Ours: ours, Theirs: spec.Raw()})
	}
	return pairs, nil
}

// silence is a logger that discards the messages of the generator.
type silence struct{}

func (silence) Debugf(string, ...any)   {}
func (silence) Errorf(string, ...any)   {}
func (silence) Infof(string, ...any)    {}
func (silence) Warningf(string, ...any) {}
func (silence) Tracef(string, ...any)   {}

// partition creates a MIG device of the first profile.
func partition(ctx context.Context, inv *inventory.Inventory, g *gpu.GPU) (result checkpoint.Result, err error) {
	driver, err := inv.MIGDriver()
	if err != nil {
		return result, err
	}
	profile := g.MIG.Profiles[0]
	instance, err := driver.CreateInstance(ctx, g.UUID, profile.ID, profile.Placements[0])
	if err != nil {
		return result, err
	}
	made, err := driver.CreateComputeInstance(ctx, g.UUID, instance)
	if err != nil {
		return result, err
	}
	if err := inv.Refresh(ctx); err != nil {
		return result, err
	}
	return checkpoint.Result{Device: "mig", Type: gpu.TypeMIG, GPUUUID: g.UUID, MIG: &checkpoint.MIG{
		Name: profile.Name, Identity: gpu.MIGIdentity{GPUInstance: instance, ComputeInstance: made.ID, UUID: made.UUID},
	}}, nil
}
