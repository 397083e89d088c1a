package health

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
)

// TestFile_FactsOfGPUChange_StoredWithTheNextDifference: a claim that changes the MIG mode makes no durable write more.
func TestFile_FactsOfGPUChange_StoredWithTheNextDifference(t *testing.T) {
	t.Parallel()
	d := &fullDisk{}
	f := &file{disk: d, dir: t.TempDir(), bootID: "boot"}
	g := gpu.GPU{UUID: gpuA, MIG: &gpu.MIG{}}
	now := content{GPUs: []gpu.GPU{g}}
	require.NoError(t, f.save(now))
	g.MIG = &gpu.MIG{Mode: gpu.MIGMode{Enabled: true}}
	now.GPUs = []gpu.GPU{g}
	require.NoError(t, f.save(now))
	assert.Equal(t, 1, d.writes)

	now.State = finding.Saved{DriverDecides: []gpu.UUID{gpuA}}
	require.NoError(t, f.save(now))
	stored, err := f.load()
	require.NoError(t, err)
	require.Len(t, stored.GPUs, 1)
	assert.True(t, stored.GPUs[0].MIG.Mode.Enabled)
	now.GPUs = append(now.GPUs, gpu.GPU{UUID: gpuB})
	require.NoError(t, f.save(now))
	assert.Equal(t, 3, d.writes, "another GPU")
}
