package hostfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTool_Directories_ExecutableFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"host":             {files: map[string]string{"usr/bin/nvidia-smi": "ELF"}, want: "usr/bin/nvidia-smi"},
		"GKE":              {files: map[string]string{"bin/nvidia-smi": "ELF"}, want: "bin/nvidia-smi"},
		"Talos":            {files: map[string]string{"usr/local/bin/nvidia-smi": "ELF"}, want: "usr/local/bin/nvidia-smi"},
		"NixOS":            {files: map[string]string{"run/current-system/sw/bin/nvidia-smi": "->/nix/store/a/bin/nvidia-smi", "nix/store/a/bin/nvidia-smi": "ELF"}, want: "nix/store/a/bin/nvidia-smi"},
		"Bottlerocket":     {files: map[string]string{"usr/libexec/nvidia/tesla/bin/nvidia-smi": "ELF"}, want: "usr/libexec/nvidia/tesla/bin/nvidia-smi"},
		"WSL":              {files: map[string]string{"usr/lib/wsl/lib/nvidia-smi": "ELF"}, want: "usr/lib/wsl/lib/nvidia-smi"},
		"through links":    {files: map[string]string{"usr/bin/nvidia-smi": "->/etc/alternatives/smi", "etc/alternatives/smi": "ELF"}, want: "etc/alternatives/smi"},
		"none":             {files: map[string]string{"usr/bin/nvidia-settings": "ELF"}},
		"broken link":      {files: map[string]string{"usr/bin/nvidia-smi": "->/gone"}},
		"only a directory": {files: map[string]string{"usr/bin/nvidia-smi/README": "ELF"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			if c.want != "" {
				require.NoError(t, os.Chmod(filepath.Join(root, c.want), 0o755))
			}
			found, ok := DriverRoot{Path: root}.Tool("nvidia-smi")
			assert.Equal(t, c.want != "", ok)
			if ok {
				assert.Equal(t, filepath.Join(root, c.want), found)
			}
		})
	}
	root := tree(t, map[string]string{"usr/bin/nvidia-smi": "text"})
	require.NoError(t, os.Chmod(filepath.Join(root, "usr/bin/nvidia-smi"), 0o644))
	_, ok := DriverRoot{Path: root}.Tool("nvidia-smi")
	assert.False(t, ok, "a file without execute permission is not a program")
}
