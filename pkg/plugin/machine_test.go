package plugin

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// undecided is a node whose layout is not known.
type undecided struct{}

func (undecided) Now() (*gpu.Node, gpu.Layout, error) { return nil, nil, errors.New("not known") }

func (undecided) Standby() bool { return false }

func (undecided) Flags() *v1alpha1.NodeFlags { return nil }

// TestPorts_MIGModeChanges_InventoryIsRead before the claim gets anything: CDI specs are built from it.
func TestPorts_MIGModeChanges_InventoryIsRead(t *testing.T) {
	t.Parallel()
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
		port.Bare
	}{host, port.Bare{Boot: "boot"}}
	a.Driver = func(string) inventory.Opener { return host.Open }
	m, err := OpenMachine(t.Context(), cfg, a, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	inv := m.Inventory
	require.NoError(t, inv.Refresh(t.Context()))
	needs := m.Ports(undecided{}, nil).Needs
	id := gpu.UUID(node.Identities()[1].UUID)
	for kind, on := range map[string]bool{claim.NeedMIG: true, claim.NeedWhole: false} {
		require.NoError(t, needs[kind].Meet(t.Context(), claim.Need{Kind: kind, Target: id}))
		shown, known := inv.MIGMode(id)
		assert.True(t, known)
		assert.Equal(t, on, shown.Enabled)
	}
	_, known := inv.MIGMode("GPU-of-another-node")
	assert.False(t, known)
	_, err = inv.MIGDriver()
	require.NoError(t, err)
}
