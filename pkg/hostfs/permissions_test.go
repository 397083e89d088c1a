package hostfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// programsBelow returns a host with /var/lib/driver/programs, in which the directory special gets the mode.
func programsBelow(t *testing.T, special string, mode os.FileMode) *FS {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "var/lib/driver/programs"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(root, special), mode))
	return New(root)
}

func TestCheckPrograms_ParentDirectories_Checked(t *testing.T) {
	t.Parallel()
	const open, closed, shared = 0o755, 0o750, os.ModePerm
	for name, c := range map[string]struct {
		special string
		mode    os.FileMode
		want    string
	}{
		"open":               {"var/lib", open, ""},
		"closed":             {"var/lib/driver/programs", closed, "users other than root cannot traverse /var/lib/driver/programs (mode 0750)"},
		"closed above":       {"var/lib", closed, "users other than root cannot traverse /var/lib (mode 0750)"},
		"closed root":        {".", 0o700, "users other than root cannot traverse / (mode 0700)"},
		"shared":             {"var/lib/driver", shared, "users other than root can change /var/lib/driver (owner "},
		"shared, but sticky": {"var/lib", shared | os.ModeSticky, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := programsBelow(t, c.special, c.mode).CheckPrograms("/var/lib/driver/programs")
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestCheckPrograms_OtherOwner_Reported(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("changing the owner needs root")
	}
	host := programsBelow(t, ".", 0o755)
	require.NoError(t, os.Chown(filepath.Join(host.root, "var/lib/driver"), 1000, 0))
	assert.ErrorContains(t, host.CheckPrograms("/var/lib/driver/programs"), "can change /var/lib/driver (owner 1000:0, mode 0755)")
}

// The host's links are followed inside the host's tree.
func TestCheckPrograms_Link_TargetChecked(t *testing.T) {
	t.Parallel()
	host := programsBelow(t, "var/lib", 0o755)
	require.NoError(t, os.MkdirAll(filepath.Join(host.root, "data"), 0o700))
	require.NoError(t, os.Symlink("/data", filepath.Join(host.root, "link")))
	assert.ErrorContains(t, host.CheckPrograms("/link"), "cannot traverse /data (mode 0700)")
}

func TestCheckPrograms_Missing_NotFound(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, New(t.TempDir()).CheckPrograms("/missing"), gpu.ErrNotFound)
}
