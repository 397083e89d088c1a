package plugin

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// undecided is a node whose layout is not known.
type undecided struct{}

func (undecided) Now() (*gpu.Node, gpu.Layout, error) { return nil, nil, errors.New("not known") }

func (undecided) Standby() bool { return false }

func (undecided) Flags() *v1alpha1.NodeFlags { return nil }

// simulated is a machine with two simulated GPUs.
func simulated(t *testing.T, files disk.Files) (*Machine, *model.Node) {
	t.Helper()
	node, err := model.New(model.Uniform("n0", "h100-80", 2))
	require.NoError(t, err)
	host := port.NewHost(node)
	root := t.TempDir()
	cfg := &config.Plugin{DriverName: "gpu.prism.dev", NodeName: "n0", Paths: config.Paths{
		KubeletPlugins: filepath.Join(root, "plugins"), CDIRoot: filepath.Join(root, "cdi"), StateDir: filepath.Join(root, "state"),
	}}
	a := System(cfg, testVersion)
	a.Host = struct {
		*port.Host
		port.MinimalHost
	}{host, port.MinimalHost{Boot: "boot"}}
	a.Driver, a.Disk = func(string) inventory.Opener { return host.Open }, files
	m, err := OpenMachine(t.Context(), cfg, a, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	require.NoError(t, m.Inventory.Refresh(t.Context()))
	return m, node
}

// TestPorts_MIGModeChanges_InventoryIsRead before the claim gets anything: CDI specs are built from it.
func TestPorts_MIGModeChanges_InventoryIsRead(t *testing.T) {
	t.Parallel()
	m, node := simulated(t, disk.OS{})
	inv := m.Inventory
	needs := m.Ports(t.Context(), undecided{}, nil).Preconditions
	id := gpu.UUID(node.Identities()[1].UUID)
	for kind, on := range map[string]bool{claim.PreconditionMIGMode: true, claim.PreconditionNoMIGMode: false} {
		require.NoError(t, needs[kind].Ensure(t.Context(), claim.Precondition{Kind: kind, Target: id}))
		shown, known := inv.MIGMode(id)
		assert.True(t, known)
		assert.Equal(t, on, shown.Enabled)
	}
	_, known := inv.MIGMode("GPU-of-another-node")
	assert.False(t, known)
	_, err := inv.MIGDriver()
	require.NoError(t, err)
}

// unreadable is a disk whose records cannot be read.
type unreadable struct {
	disk.OS
	now *bool
}

func (d unreadable) Read(path string) ([]byte, error) {
	if *d.now {
		return nil, fmt.Errorf("reading %s: %w", path, syscall.EIO)
	}
	return d.OS.Read(path)
}

// TestMachine_RecordsUnreadable_ErrorNamesNoClaim: the reason why the layout is not known is shown in claims of others.
func TestMachine_RecordsUnreadable_ErrorNamesNoClaim(t *testing.T) {
	t.Parallel()
	now := false
	m, _ := simulated(t, unreadable{now: &now})
	require.NoError(t, m.State.Records.Put(&checkpoint.Record{Claim: checkpoint.Claim{UID: "their-uid"}, State: checkpoint.Done, BootID: "boot"}))
	records, err := m.records()
	require.NoError(t, err)
	assert.Len(t, records, 1)
	now = true
	_, err = m.records()
	require.ErrorIs(t, err, checkpoint.ErrUnreadable)
	require.ErrorContains(t, err, "which GPUs are in use cannot be read now")
	assert.NotContains(t, err.Error(), "their-uid")
	_, err = m.Kept()
	assert.ErrorContains(t, err, "their-uid")
}
