package profiler

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
)

// TestServeIdle_ReportsLeft_NotServed: otherwise the deletion of their namespace would wait for a node that deletes none.
func TestServeIdle_ReportsLeft_NotServed(t *testing.T) {
	t.Parallel()
	cfg := &config.Plugin{Paths: config.Paths{StateDir: t.TempDir()}, Profiler: config.Profiler{Endpoint: "127.0.0.1:0", Certificate: t.TempDir()}}
	require.NoError(t, os.MkdirAll(filepath.Join(cfg.ProfilesDir(), "7f0c1d2e-0000-4000-8000-00000000000a"), 0o700))
	require.NoError(t, ServeIdle(t.Context(), Options{Config: cfg, Files: disk.OS{}}), "it returns before the context ends")
}
