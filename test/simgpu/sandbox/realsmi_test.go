package sandbox_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/debian"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// realSMI returns NVIDIA's nvidia-smi from Debian's non-free component. It is
// unpacked into the user's cache, not installed. The test is skipped if it
// is not available.
func realSMI(t *testing.T) string {
	t.Helper()
	dir, err := debian.Package{Name: "debian-nvidia-smi", Package: "nvidia-smi"}.Unpacked(t.Context(), !testing.Short())
	if err != nil {
		t.Skipf("NVIDIA's nvidia-smi is not available: %v", err)
	}
	return filepath.Join(dir, "usr/lib/nvidia/current/nvidia-smi")
}

// NVIDIA's own tool works on the simulated node, and the simulated nvidia-smi prints the same output.
func TestRealSMI_SimulatedNode_SameOutput(t *testing.T) {
	program := realSMI(t)
	node := sandbox.Start(t, model.Uniform("node-a", "a100-80", 2))
	for _, args := range [][]string{
		{"-L"},
		{"--query-gpu=index,uuid,name,driver_version,memory.total,memory.used,memory.free,pci.bus_id,compute_mode", "--format=csv"},
		{"--query-gpu=utilization.gpu,temperature.gpu,power.draw,power.limit,compute_cap,persistence_mode,mig.mode.current,fan.speed,pstate", "--format=csv,nounits"},
		{"--query-gpu=memory.reserved,utilization.encoder,utilization.decoder,temperature.memory,power.draw.instant,mig.mode.pending", "--format=csv"},
		{"--query-gpu=clocks.gr,clocks.sm,clocks.mem,clocks.video,clocks.max.gr,clocks.max.sm,clocks.max.mem,clocks_throttle_reasons.active", "--format=csv"},
		{"--query-gpu=ecc.mode.current,ecc.mode.pending,ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total", "--format=csv"},
		{"--query-gpu=pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max", "--format=csv,nounits"},
		{"--query-compute-apps=colour", "--format=csv"},
		{"--query-compute-apps=pid"},
		{"-i", "1", "-c", "EXCLUSIVE_PROCESS"},
		{"--query-gpu=compute_mode", "--format=csv,noheader"},
		{"-i", "7", "-c", "DEFAULT"},
		{"--query-gpu=colour", "--format=csv"},
		{"compute-policy", "-i", "1", "--set-timeslice=1"},
		{"compute-policy", "-i", "1", "--set-timeslice=9"},
		{"compute-policy", "-l"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			want, wantCode := run(t, node, program, args...)
			got, gotCode := smi(t, node, args...)
			assert.Equal(t, want, got)
			assert.Equal(t, wantCode, gotCode)
		})
	}
	// NVIDIA's tool reads processes through an undocumented table of the library, so only its header can be compared.
	apps := []string{"--query-compute-apps=gpu_uuid,gpu_name,gpu_bus_id,gpu_serial,pid,name,used_memory,timestamp", "--format=csv"}
	want, _ := run(t, node, program, apps...)
	got, _ := smi(t, node, apps...)
	header, _, _ := strings.Cut(want, "\n")
	assert.Equal(t, header+"\n", got)
	snapshot := node.Model.Snapshot().GPUs[1]
	assert.Equal(t, model.ComputeExclusiveProcess, snapshot.ComputeMode)
	assert.Equal(t, model.TimeSlice(1), snapshot.TimeSlice)
	table, code := run(t, node, program)
	assert.Zero(t, code)
	assert.Contains(t, table, "NVIDIA A100-SXM4-80GB")
}

// Both tools change the MIG mode, each on its own node, with the same output.
func TestRealSMI_MIGMode_SameOutput(t *testing.T) {
	program := realSMI(t)
	boards := []string{"h100-80", "a30", "t4"}
	theirs, ours := sandbox.Start(t, model.Spec{Name: "node-a", Boards: boards}), sandbox.Start(t, model.Spec{Name: "node-a", Boards: boards})
	both := func(t *testing.T, args ...string) {
		t.Helper()
		want, wantCode := run(t, theirs, program, args...)
		got, gotCode := smi(t, ours, args...)
		assert.Equal(t, want, got)
		assert.Equal(t, wantCode, gotCode)
	}
	for _, args := range [][]string{
		{"-mig", "0"}, {"-i", "0", "-mig", "1"}, {"-i", "0", "-mig", "1"}, {"-i", "0", "-mig", "0"}, {"-i", "1", "-mig", "1"},
		{"-i", "2", "-mig", "1"}, {"-i", "0", "-mig", "on"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) { both(t, args...) })
	}
	for _, node := range []*sandbox.Node{theirs, ours} {
		release, err := node.Model.Hold(node.Model.Identities()[0].UUID)
		require.NoError(t, err)
		defer release()
	}
	t.Run("held", func(t *testing.T) { both(t, "-i", "0", "-mig", "1") })
	for _, node := range []*sandbox.Node{theirs, ours} {
		require.NoError(t, node.Model.ResetGPU(1))
		makeMIGDevices(t, node, 1, 14)
	}
	t.Run("in use", func(t *testing.T) { both(t, "-i", "1", "-mig", "0") })
	if diff := cmp.Diff(theirs.Model.Spec(), ours.Model.Spec()); diff != "" {
		t.Errorf("the nodes differ (-NVIDIA's +ours):\n%s", diff)
	}
}

// The real tool fails as on a real node, which validates the simulated one.
func TestRealSMI_Failures_SameExitCodes(t *testing.T) {
	program := realSMI(t)
	faults := map[string]func(*sandbox.Node){
		"lost": func(n *sandbox.Node) {
			_, err := n.Model.Faults.Add(model.Fault{Effect: model.EffectError, GPU: 1, Return: model.GPUIsLost})
			require.NoError(t, err)
		},
		"unloaded": (*sandbox.Node).UnloadDriver,
		"no nodes": func(n *sandbox.Node) { n.RemoveDeviceNode("nvidia0"); n.RemoveDeviceNode("nvidia1") },
		"init fails": func(n *sandbox.Node) {
			_, err := n.Model.Faults.Add(model.Fault{Effect: model.EffectError, GPU: model.AnyGPU, Call: "nvmlInit*", Return: model.Unknown})
			require.NoError(t, err)
		},
	}
	for name, breakIt := range faults {
		t.Run(name, func(t *testing.T) {
			node := sandbox.Start(t, model.Uniform("node-a", "a100-80", 2))
			breakIt(node)
			want, wantCode := run(t, node, program, "-L")
			got, gotCode := smi(t, node, "-L")
			assert.Equal(t, want, got)
			assert.Equal(t, wantCode, gotCode)
		})
	}
}
