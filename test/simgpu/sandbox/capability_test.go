package sandbox_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// The driver reports the minors of instances before they exist.
func TestMIGMinors_Instances_MatchCapabilityFiles(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	file := filepath.Join(node.Root(), "proc/driver/nvidia-caps/mig-minors")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	require.Len(t, lines, 2+32*15*9)
	assert.Equal(t, []string{"config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4", "gpu0/gi0/ci1/access 5"}, lines[:5])
	assert.Equal(t, "gpu31/gi14/ci7/access 4322", lines[len(lines)-1])

	_, code := smi(t, node, "-mig", "1")
	require.Zero(t, code)
	makeMIGDevices(t, node, 0, 9)
	_, code = smi(t, node, "-L")
	require.Zero(t, code)
	shown := shownCapabilities(t, node)
	require.Len(t, shown, 4)
	for _, capability := range shown {
		assert.Contains(t, lines, strings.NewReplacer("/mig/", "/", "mig/", "").Replace(capability))
	}
	node.UnloadDriver()
	assert.NoFileExists(t, file)
	node.LoadDriver()
	assert.FileExists(t, file)
}

// shownCapabilities lists the capability files with their minors; their device nodes must exist.
func shownCapabilities(t *testing.T, node *sandbox.Node) []string {
	t.Helper()
	root := filepath.Join(node.Paths.ProcDriver, "capabilities")
	var shown []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var minor int
		_, err = fmt.Sscanf(string(text), "DeviceFileMinor: %d", &minor)
		require.NoError(t, err)
		info := stat(t, filepath.Join(node.Paths.Dev, fmt.Sprintf("nvidia-caps/nvidia-cap%d", minor)))
		assert.Equal(t, fs.ModeDevice|fs.ModeCharDevice, info.Mode().Type())
		relative, err := filepath.Rel(root, path)
		shown = append(shown, fmt.Sprintf("%s %d", relative, minor))
		return err
	})
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	return shown
}
