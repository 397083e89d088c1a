package exporter

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

const utilization = "DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).\n"

// TestCounters_Directory_FirstKeyApplies: the known keys are used by the GPU operator, dcgm-exporter's chart and its image.
func TestCounters_Directory_FirstKeyApplies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := &counters{path: dir, measure: func(...metrics.Field) {}}
	c.read(t.Context())
	selection, notes := c.current()
	assert.Nil(t, selection, "the default counters")
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "contains no key: add one with the counters, under any name")
	for _, key := range []string{"default-counters.csv", "dcgm-metrics.csv", "metrics"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, key), []byte("# "+key+"\n"+utilization+"DCGM_FI_"+key[:4]+", gauge, unknown\n"), 0o600))
		c.read(t.Context())
		selection, notes = c.current()
		assert.NotNil(t, selection)
		require.Len(t, notes, 1, "the unknown field is named")
		assert.Contains(t, notes[0], "DCGM_FI_"+key[:4])
		assert.Len(t, c.problems(), 1)
	}
}

// TestCounters_OnlyKey_OfAnyName: one of several keys must be a known one.
func TestCounters_OnlyKey_OfAnyName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(utilization), 0o600))
	}
	put("counters.csv")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "..2026_11_28"), 0o755))
	require.NoError(t, os.Symlink("..2026_11_28", filepath.Join(dir, "..data")))
	c := &counters{path: dir, measure: func(...metrics.Field) {}}
	c.read(t.Context())
	selection, notes := c.current()
	assert.NotNil(t, selection)
	assert.Empty(t, notes)
	put("other.csv")
	c.read(t.Context())
	_, notes = c.current()
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "contains 2 keys (counters.csv, other.csv): rename the key with the counters to one of metrics, dcgm-metrics.csv, default-counters.csv")
	put("metrics")
	c.read(t.Context())
	_, notes = c.current()
	assert.Empty(t, notes)
}

// TestCounters_Unparsable_LastValidApply: an invalid edit keeps the selection, and a valid one replaces it.
func TestCounters_Unparsable_LastValidApply(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "counters.csv")
	var measured []metrics.Field
	c := &counters{path: file, measure: func(fields ...metrics.Field) { measured = fields }}
	put := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		c.read(t.Context())
	}
	put(utilization)
	good, notes := c.current()
	require.NotNil(t, good)
	assert.Empty(t, notes)
	put(utilization)
	same, _ := c.current()
	assert.Same(t, good, same, "nothing changed")
	put("DCGM_FI_DEV_GPU_UTIL, \"gauge\n")
	still, notes := c.current()
	assert.Same(t, good, still)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "using the last valid ones")
	put("DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).\n")
	next, notes := c.current()
	assert.NotSame(t, good, next)
	assert.Equal(t, []metrics.Field{metrics.FieldMemoryUsed}, measured, "what the file chooses is sampled, also beyond the node's sets")
	assert.Empty(t, notes)
}

// TestCountersWatch_FileReplaced_ReadWithoutRestart changes a file as the kubelet changes a mounted ConfigMap: by a link.
func TestCountersWatch_FileReplaced_ReadWithoutRestart(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"metrics", "counters.csv"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			watched(t, key)
		})
	}
}

func watched(t *testing.T, key string) {
	dir := t.TempDir()
	version := func(name, text string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, key), []byte(text), 0o600))
		require.NoError(t, os.Symlink(name, filepath.Join(dir, "..tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	}
	version("..1", utilization)
	require.NoError(t, os.Symlink(filepath.Join("..data", key), filepath.Join(dir, key)))
	c := &counters{path: dir, measure: func(...metrics.Field) {}}
	go func() { _ = c.watch(t.Context()) }()
	require.Eventually(t, func() bool { s, _ := c.current(); return s != nil }, waitLimit, pause)
	first, _ := c.current()
	version("..2", "DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).\n")
	require.Eventually(t, func() bool { s, _ := c.current(); return s != first }, waitLimit, pause)
}
