package plugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
)

// TestRun_CDIRootChanged_SpecsMove: also together with the name. While the runtime may start containers of a claim, its spec is always in
// one of the two directories. The specs of other drivers stay.
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

// TestRun_CDIRootChangedAndBack_MetadataOfGoneClaimsRemoved: the library removes the spec of a claim's metadata file only from the
// directory that is configured when the claim is unprepared.
func TestRun_CDIRootChangedAndBack_MetadataOfGoneClaimsRemoved(t *testing.T) {
	t.Parallel()
	n, claims := renamed(t, "old")
	n.cfg.DriverName = nameBefore
	metadata := func(driver, uid string) string {
		path := filepath.Join(n.cfg.Paths.CDIRoot, driver+"_metadata_"+uid+"_gpu.json")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	uid := string(claims[0].UID)
	needed := []string{metadata(nameBefore, uid), metadata("nic.example.com", "gone")}
	gone := metadata(nameBefore, "gone")
	for _, root := range []string{"other-cdi", "cdi"} {
		n.cfg.Paths.CDIRoot = filepath.Join(filepath.Dir(n.cfg.Paths.CDIRoot), root)
		p, err := Build(t.Context(), n.cfg, n.adapters)
		require.NoError(t, err)
		require.NoError(t, p.Close())
	}
	// The container of a claim with a damaged record may be started again.
	require.NoError(t, os.WriteFile(filepath.Join(n.cfg.PluginDir(), "claims", uid+".json"), []byte("damaged"), 0o600))
	p, _ := n.start(t)
	eventually(t, func() bool {
		_, err := os.Stat(gone)
		return os.IsNotExist(err)
	}, "the file of a claim that is gone")
	sweep := func() {
		require.NoError(t, p.Machine.State.outside.roots.sweep(t.Context(), p.Claims, p.Machine.State.Specs))
	}
	sweep()
	for _, path := range needed {
		assert.FileExists(t, path)
	}
	listed, err := os.ReadFile(filepath.Join(n.cfg.PluginDir(), rootsFile))
	require.NoError(t, err)
	assert.Contains(t, string(listed), "/other-cdi\"", "the present directory is cleaned as long as another is listed")
	require.NoError(t, os.Remove(n.specBefore(claims[0])))
	sweep()
	assert.NoFileExists(t, needed[0])
	// Further ones are left to garbage collection, and records are not read again for them.
	stale := metadata(nameBefore, "stale")
	sweep()
	assert.FileExists(t, stale)
}

// sweepBoth sweeps while a former directory is listed.
func sweepBoth(ctx context.Context, p *Plugin) error {
	roots := p.Machine.State.outside.roots
	roots.all = []place{roots.now, {"/former", roots.now.Driver}}
	return roots.sweep(ctx, p.Claims, p.Machine.State.Specs)
}

// listedDisk calls a function after each list of a directory.
type listedDisk struct {
	disk.Files
	listed func(dir string)
}

func (d *listedDisk) List(dir string) ([]string, error) {
	names, err := d.Files.List(dir)
	d.listed(dir)
	return names, err
}

// TestSweep_ClaimPreparedMeanwhile_MetadataStays: the claim was unprepared, and is prepared again after the sweep has read all records and specs.
func TestSweep_ClaimPreparedMeanwhile_MetadataStays(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t)
	listed := &listedDisk{n.adapters.Disk, func(string) {}}
	n.adapters.Disk = listed
	p := n.build(t)
	rc := n.claim(t, "again", 0)
	metadata := filepath.Join(n.cfg.Paths.CDIRoot, nameNow+"_metadata_"+string(rc.UID)+"_gpu.json")
	require.NoError(t, os.WriteFile(metadata, nil, 0o600))
	lists := 0
	listed.listed = func(dir string) {
		if dir != n.cfg.Paths.CDIRoot {
			return
		}
		if lists++; lists == 2 { // the first are the names of files, the second the claims with specs
			require.NoError(t, prepared(t.Context(), p, rc))
		}
	}
	sweep := func() error { return sweepBoth(t.Context(), p) }
	require.NoError(t, sweep())
	assert.FileExists(t, metadata)
	require.NoError(t, unprepared(t.Context(), p, rc))
	require.NoError(t, os.WriteFile(metadata, nil, 0o600))
	require.NoError(t, sweep())
	assert.NoFileExists(t, metadata)
}

// TestSweep_ClaimLocked_MetadataStays: a call for the claim is in another process.
func TestSweep_ClaimLocked_MetadataStays(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t)
	p := n.build(t)
	metadata := filepath.Join(n.cfg.Paths.CDIRoot, nameNow+"_metadata_uid-locked_gpu.json")
	require.NoError(t, os.WriteFile(metadata, nil, 0o600))
	locks, err := checkpoint.OpenLocks(n.cfg.PluginDir())
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close() })
	_, err = locks.Claim(t.Context(), "uid-locked")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorIs(t, sweepBoth(ctx, p), context.Canceled)
	assert.FileExists(t, metadata)
}
