package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRun_CDIRootChanged_SpecsMove: also together with the name. The specs of claims that the runtime may start containers of are never missing in
// both directories, and those of others stay.
func TestRun_CDIRootChanged_SpecsMove(t *testing.T) {
	t.Parallel()
	for name, driver := range map[string]string{"same driver": nameBefore, "other driver": nameNow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, claims := renamed(t, "old")
			former := n.specBefore(claims[0])
			foreign := filepath.Join(n.cfg.Paths.CDIRoot, "k8s.nic.example.com-claim_"+string(claims[0].UID)+".json")
			gone := filepath.Join(n.cfg.Paths.CDIRoot, nameBefore+"_metadata_gone_gpu.json")
			for _, path := range []string{foreign, gone} {
				require.NoError(t, os.WriteFile(path, nil, 0o600))
			}
			n.cfg.DriverName, n.cfg.Paths.CDIRoot = driver, filepath.Join(filepath.Dir(n.cfg.Paths.CDIRoot), "other-cdi")
			n.start(t)
			eventually(t, func() bool {
				_, err := os.Stat(former)
				return os.IsNotExist(err)
			}, "the spec moves")
			assert.NoFileExists(t, gone)
			assert.FileExists(t, foreign)
			specs, err := filepath.Glob(filepath.Join(n.cfg.Paths.CDIRoot, "k8s.*"+string(claims[0].UID)+".json"))
			require.NoError(t, err)
			require.Len(t, specs, 1)
			text, err := os.ReadFile(specs[0])
			require.NoError(t, err)
			assert.Contains(t, string(text), `"kind":"k8s.`+nameBefore+`/claim"`)
			eventually(t, func() bool {
				text, err := os.ReadFile(filepath.Join(n.cfg.PluginDir(), rootsFile))
				return err == nil && !strings.Contains(string(text), `/cdi"`)
			}, "the former directory is forgotten")
		})
	}
}
