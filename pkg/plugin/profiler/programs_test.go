package profiler

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
)

// installed returns the node's programs from an image whose programs contain their names, and the specs that name them.
func installed(t *testing.T, cfg *config.Plugin) (*programs.Set, *cdi.Dir) {
	t.Helper()
	image := t.TempDir()
	for _, program := range []string{cdi.OwnHookName, Library, Run} {
		require.NoError(t, os.WriteFile(filepath.Join(image, program), []byte(program), 0o755))
	}
	specs, err := cdi.OpenDir(disk.OS{}, filepath.Join(t.TempDir(), "cdi"), cdi.Kind(cfg.DriverName))
	require.NoError(t, err)
	set, err := programs.Install(t.Context(), programs.Options{
		Config: cfg, Version: "v1", Disk: disk.OS{}, Host: programHost{}, Specs: specs,
		Images: programs.Images{Own: filepath.Join(image, cdi.OwnHookName), Dir: image, Extra: Programs},
	})
	require.NoError(t, err)
	t.Cleanup(set.Release)
	return set, specs
}

// TestLibrary_Upgrade_ThatOfTheSpec: containers that start again load the library that the spec names, until the claim is prepared again.
func TestLibrary_Upgrade_ThatOfTheSpec(t *testing.T) {
	t.Parallel()
	cfg := &config.Plugin{DriverName: "gpu.prism.dev"}
	cfg.Paths.StateDir = filepath.Join(t.TempDir(), "state")
	set, dir := installed(t, cfg)
	hook := &containerPrograms{Extra: set.Extra(Programs...)}
	require.NoError(t, hook.Err())
	image, content := filepath.Join(t.TempDir(), Library), map[string]string{"older": "another library", "v1": Library}
	require.NoError(t, os.WriteFile(image, []byte(content["older"]), 0o600))
	older, err := cdi.Hooks{Disk: disk.OS{}, Dir: cfg.ProgramsDir()}.Install("older", cdi.Program{Name: Library, Image: image})
	require.NoError(t, err)
	t.Cleanup(older.Release)
	assert.Empty(t, hook.Library(claimUID), "no spec names a version")
	for _, version := range []string{"older", "v1", "older"} {
		mounts := []*specs.Mount{{HostPath: filepath.Join(cfg.ProgramsDir(), version), ContainerPath: "/run/prism/programs"}}
		require.NoError(t, dir.Write(claimUID, &specs.Spec{
			Devices: []specs.Device{{Name: "d", ContainerEdits: specs.ContainerEdits{Mounts: mounts}}},
		}))
		assert.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content[version]))), hook.Library(claimUID))
	}
	hook.Wrote(claimUID)
	assert.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(Library))), hook.Library(claimUID), "this process wrote the spec")
}
