package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// TestCutting_MIGModeChanges_InventoryIsRead before the claim gets anything: CDI specs are built from it.
func TestCutting_MIGModeChanges_InventoryIsRead(t *testing.T) {
	t.Parallel()
	node, err := model.New(model.Uniform("n0", "h100-80", 2))
	require.NoError(t, err)
	host := port.NewHost(node)
	inv := inventory.New(inventory.Options{Host: host, Open: host.Open})
	require.NoError(t, inv.Refresh(t.Context()))
	_, mode, _ := cutting(hostfs.New(t.TempDir()), inv)
	id := gpu.UUID(node.Identities()[1].UUID)
	for kind, on := range map[string]bool{claim.NeedMIG: true, claim.NeedWhole: false} {
		require.NoError(t, mode.Meet(t.Context(), claim.Need{Kind: kind, Target: id}))
		shown, known := inv.MIGMode(id)
		assert.True(t, known)
		assert.Equal(t, on, shown.Enabled)
	}
	_, known := inv.MIGMode("GPU-of-another-node")
	assert.False(t, known)
	_, err = inv.Partitioning()
	require.NoError(t, err)
}
