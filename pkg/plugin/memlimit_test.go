package plugin

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/test/fakes"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// limitingHost is a host whose cgroups are directories below cgroups; unified says whether they are of version 2 alone.
type limitingHost struct {
	*port.Host
	port.MinimalHost
	cgroups string
	unified bool
}

func (h limitingHost) UnifiedCgroups() bool { return h.unified }

func (h limitingHost) Cgroup(path string) (string, error) { return filepath.Join(h.cgroups, path), nil }

func (h limitingHost) Locate(root, path string) (string, bool) {
	_, err := os.Stat(filepath.Join(root, path))
	return path, err == nil
}

// limiting is a machine with one simulated GPU, whose driver limits the memory of cgroups.
func limiting(t *testing.T, unified bool) (m *Machine, node *model.Node, cgroups string) {
	t.Helper()
	node, err := model.New(model.Spec{Name: "n0", Driver: "615.71.09", Boards: []string{"h100-80"}})
	require.NoError(t, err)
	root, err := os.MkdirTemp("", "prism") // a socket's path has at most 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	cfg := &config.Plugin{DriverName: "gpu.prism.dev", NodeName: "n0", Paths: config.Paths{
		KubeletPlugins: filepath.Join(root, "plugins"), CDIRoot: filepath.Join(root, "cdi"), StateDir: filepath.Join(root, "state"),
		RunDir: filepath.Join(root, "run"),
	}}
	cgroups, image := filepath.Join(root, "cgroup"), filepath.Join(root, "image")
	require.NoError(t, os.MkdirAll(filepath.Join(cgroups, "kubepods/c1"), 0o755))
	require.NoError(t, os.WriteFile(image, []byte("program"), 0o600))
	host := limitingHost{Host: port.NewHost(node), MinimalHost: port.MinimalHost{Boot: "boot"}, cgroups: cgroups, unified: unified}
	a := System(cfg, testVersion)
	a.Host, a.OwnHookImage = host, image
	a.Driver = func(string) inventory.Opener { return host.Open }
	m, err = OpenMachine(t.Context(), cfg, a, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	require.NoError(t, m.Inventory.Refresh(t.Context()))
	return m, node, cgroups
}

const limitedDevice = "uid-gpu-timeslice-1"

// shared is the record of a prepared claim with a time-sliced share that requested 4 GiB.
func shared(node *model.Node) *checkpoint.Record {
	return &checkpoint.Record{
		Claim: checkpoint.Claim{UID: "uid", Namespace: "ns", Name: "claim"}, BootID: "boot", Writer: testVersion, State: checkpoint.Done,
		Results: []checkpoint.Result{{
			Request: "r", Pool: "n0", Device: "gpu-timeslice", ShareID: "1", Type: gpu.TypeTimeSlice, GPUUUID: gpu.UUID(node.Identities()[0].UUID),
			Consumed: map[string]string{"memory": "4Gi"},
		}},
		CDI: checkpoint.CDI{Kind: cdi.Kind("gpu.prism.dev"), Devices: []string{limitedDevice}},
	}
}

// limitedSpec is the spec of a record with the edits of the machine's extensions.
func limitedSpec(m *Machine, r *checkpoint.Record) (*specs.Spec, error) {
	var edits []cdi.DeviceEdits
	for _, e := range extension.All[prepare.RecordEditor](m.Extensions) {
		if c, ok := e.(prepare.Concerned); ok && c.Concerns(r) || !ok && r.Extended(e.Kind()) {
			more, err := e.EditsOf(r)
			if err != nil {
				return nil, err
			}
			edits = append(edits, more...)
		}
	}
	return m.Ports(context.Background(), undecided{}, nil).Specs.Build(cdi.SpecRequest{Record: r, Edits: edits})
}

// TestMachine_TimeSlicedShareWithMemory_LimitedByHook: the claim's spec names prism-hook, whose request the plugin fulfils.
func TestMachine_TimeSlicedShareWithMemory_LimitedByHook(t *testing.T) {
	t.Parallel()
	m, node, cgroups := limiting(t, true)
	assert.True(t, m.Inventory.Current().Node.GPUs[0].MemoryLimits)
	record := shared(node)
	require.NoError(t, m.State.Records.Put(record))
	spec, err := limitedSpec(m, record)
	require.NoError(t, err)
	edits := spec.Devices[0].ContainerEdits
	assert.Equal(t, []string{protocol.Mark(limitedDevice) + "=timeslice"}, edits.Env)
	require.Len(t, edits.Hooks, 1)
	own, err := m.programs.Own()
	require.NoError(t, err)
	assert.Equal(t, own, edits.Hooks[0].Path)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.serveHook(ctx, nil) }()
	proc := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(proc, "7"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(proc, "7", "cgroup"), []byte("0::/kubepods/c1\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(proc, "config.json"), []byte("{}"), 0o600))
	state, err := json.Marshal(map[string]any{"id": "c", "pid": 7, "bundle": proc})
	require.NoError(t, err)
	program := hook.Program{Stdin: strings.NewReader(string(state)), Proc: proc, RetryBudget: limit, Pause: time.Millisecond}
	require.NoError(t, program.Run(edits.Hooks[0].Args[1:]))
	driver, err := m.Inventory.MemoryLimiter()
	require.NoError(t, err)
	limits, err := driver.MemoryLimits(t.Context(), record.Results[0].GPUUUID, filepath.Join(cgroups, "kubepods/c1"))
	require.NoError(t, err)
	assert.Equal(t, gpu.MemoryLimits{Hard: 4 << 30}, limits)

	// The runtime merges the edits of two claims into one configuration.
	other := *edits.Hooks[0]
	other.Args = slices.Clone(other.Args)
	other.Args[slices.Index(other.Args, "--claim")+1] = "other"
	config, err := json.Marshal(map[string]any{"hooks": map[string]any{"createRuntime": []any{edits.Hooks[0], other}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(proc, "config.json"), config, 0o600))
	program.Stdin = strings.NewReader(string(state))
	require.ErrorContains(t, program.Run(edits.Hooks[0].Args[1:]), "claim other: not found")
	cancel()
	require.NoError(t, <-done)
}

// TestMachine_NodeWithoutCgroupV2_NoLimits: no spec names the hook.
func TestMachine_NodeWithoutCgroupV2_NoLimits(t *testing.T) {
	t.Parallel()
	m, node, _ := limiting(t, false)
	assert.False(t, m.Inventory.Current().Node.GPUs[0].MemoryLimits)
	spec, err := limitedSpec(m, shared(node))
	require.NoError(t, err)
	assert.Empty(t, spec.Devices[0].ContainerEdits.Hooks)
}

// TestBuild_ContainerRefused_ConditionRepeatsIt, also on a node that limits no memory; and it is gone once the claim is prepared again.
func TestBuild_ContainerRefused_ConditionRepeatsIt(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	n.adapters.OwnHookImage = filepath.Join(t.TempDir(), "prism-hook")
	require.NoError(t, os.WriteFile(n.adapters.OwnHookImage, []byte("program"), 0o600))
	p := n.build(t)
	stop := fakes.Run(t, p.statuses.Run)
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.Machine.serveHook(ctx, p.refused) }()
	rc := n.claim(t, "a", 0)
	require.NoError(t, prepared(t.Context(), p, rc))
	record, err := p.Machine.State.Records.Load("uid-a")
	require.NoError(t, err)
	line, err := json.Marshal(protocol.Refusal{
		LimitedDevice: protocol.LimitedDevice{Claim: "uid-a", Device: record.CDI.Devices[0]}, Refused: `container "main": too small`,
	})
	require.NoError(t, err)
	var connection net.Conn
	eventually(t, func() bool {
		connection, err = net.Dial("unix", n.cfg.HookSocket())
		return err == nil
	}, "the socket")
	_, err = connection.Write(append(line, '\n'))
	require.NoError(t, err)
	conditions := func() []string {
		require.NoError(t, p.statuses.Drain(t.Context()))
		devices := n.status(t, rc)
		require.Len(t, devices, 1)
		ready := devices[0].Conditions[0]
		return []string{ready.Type, string(ready.Status), ready.Reason, ready.Message}
	}
	_, err = io.ReadAll(connection)
	require.NoError(t, err)
	assert.Equal(t, []string{"Ready", "False", "ContainerRefused", `container "main": too small`}, conditions())
	assert.Contains(t, string(n.status(t, rc)[0].Data.Raw), n.model.Identities()[0].UUID)
	require.NoError(t, prepared(t.Context(), p, rc))
	assert.Equal(t, []string{"Ready", "True", "Prepared", "The device is prepared on the node."}, conditions())
	cancel()
	require.NoError(t, <-served)
}

// TestBuild_OwnHookRemoved_RefusedWithReason: a spec with the hook is not made without the program.
func TestBuild_OwnHookRemoved_RefusedWithReason(t *testing.T) {
	t.Parallel()
	m, node, _ := limiting(t, true)
	own, err := m.programs.Own()
	require.NoError(t, err)
	require.NoError(t, os.Remove(own))
	_, err = limitedSpec(m, shared(node))
	require.EqualError(t, err, "CDI edits of the memory limit: createRuntime hook: "+own+" on the host: not found")
}
