package allocation

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// exposing is a record of a claim that exposes its metrics.
func exposing(uid string) *checkpoint.Record {
	r := record(uid, whole("gpu-"+uid), whole("gpu2-"+uid))
	for i := range r.Results {
		r.Results[i].Extensions = checkpoint.Extensions{"metrics": []byte(`{"exposeInContainer":true}`)}
	}
	return r
}

func TestExposed_ClaimsWithDirectory_Written(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	root := filepath.Join(w.dir, "metrics")
	rendered := map[string]int{}
	page := func(uid string) []byte {
		rendered[uid]++
		return []byte("page of " + uid)
	}
	w.put(exposing("a"), exposing("b"), record("plain", whole("gpu-1")), in(checkpoint.Releasing, exposing("leaves")))
	w.read()
	require.NoError(t, w.tracker.Exposed(root, page), "the plugin has not made it yet")
	for _, uid := range []string{"a", "plain", "leaves", "unknown"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, uid), 0o755))
	}
	// An exporter was killed while it wrote.
	require.NoError(t, os.WriteFile(filepath.Join(root, "a", exposedTemp), []byte("half"), 0o600))
	require.NoError(t, w.tracker.Exposed(root, page))
	assert.Equal(t, map[string]int{"a": 1}, rendered, "once, and where it can be written")
	assert.Equal(t, map[string]string{"a/gpu.prom": "page of a"}, files(t, root))
	info, err := os.Stat(filepath.Join(root, "a/gpu.prom"))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o644), info.Mode())

	opened, err := os.Open(filepath.Join(root, "a/gpu.prom"))
	require.NoError(t, err)
	defer func() { _ = opened.Close() }()
	require.NoError(t, w.tracker.Exposed(root, func(string) []byte { return nil }))
	assert.Equal(t, map[string]string{"a/gpu.prom": ""}, files(t, root), "old values do not stay")
	now, err := os.Stat(filepath.Join(root, "a/gpu.prom"))
	require.NoError(t, err)
	assert.False(t, os.SameFile(info, now), "a reader never sees a part")
}

// TestExposed_NoDirectory_Refused: the exporter only writes into directories of the plugin.
func TestExposed_NoDirectory_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	root, elsewhere := filepath.Join(w.dir, "metrics"), filepath.Join(w.dir, "elsewhere")
	for _, dir := range []string{root, elsewhere, filepath.Join(root, "inside"), filepath.Join(root, "good"), filepath.Join(root, "large")} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(root, "out")))
	require.NoError(t, os.Symlink("inside", filepath.Join(root, "link")))
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "kept"), []byte("kept"), 0o600))
	// Links in the claim's directory are replaced, not followed.
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "kept"), filepath.Join(root, "good", exposedFile)))
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "kept"), filepath.Join(root, "good", exposedTemp)))
	w.put(exposing("out"), exposing("link"), exposing("file"), exposing("good"), exposing("large"))
	w.read()
	err := w.tracker.Exposed(root, func(uid string) []byte {
		if uid == "large" {
			return make([]byte, exposedBytes+1)
		}
		return []byte("page")
	})
	for _, uid := range []string{"out", "link", "file"} {
		require.ErrorContains(t, err, "metrics file of claim "+uid+": not a directory")
	}
	require.ErrorContains(t, err, "metrics file of claim large: size of 1048577 bytes exceeds the limit of 1048576 bytes")
	assert.Equal(t, map[string]string{"file": "", "good/gpu.prom": "page"}, files(t, root))
	assert.Equal(t, map[string]string{"kept": "kept"}, files(t, elsewhere))
}

// files are the regular files below a directory.
func files(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		relative, _ := filepath.Rel(root, path)
		found[relative] = string(content)
		return err
	}))
	return found
}
