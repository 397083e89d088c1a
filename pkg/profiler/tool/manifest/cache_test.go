package manifest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counted returns a cache of a directory with version 1, and the number of reads of a manifest.
func counted(t *testing.T) (c *Cache, dir string, reads *int) {
	t.Helper()
	dir = t.TempDir()
	install(t, dir, "1", time.Time{})
	c, reads = NewCache(dir), new(int)
	read := c.Read
	c.Read = func(dir string) (Manifest, error) {
		*reads++
		return read(dir)
	}
	return c, dir, reads
}

// install writes the manifest of a version.
func install(t *testing.T, dir, version string, proven time.Time) {
	t.Helper()
	m := New(version)
	m.Nsys, m.Proven, m.Files["nsys"] = "nsys", proven, "0123"
	require.NoError(t, os.MkdirAll(filepath.Join(dir, version), 0o755))
	require.NoError(t, m.Write(filepath.Join(dir, version)))
}

// listed returns the versions that the cache lists, and whether each is proven.
func listed(t *testing.T, c *Cache) map[string]bool {
	t.Helper()
	all, err := c.List()
	require.NoError(t, err)
	found := map[string]bool{}
	for _, one := range all {
		found[one.Version] = !one.Proven.IsZero()
		assert.Equal(t, filepath.Join(c.dir, one.Version), one.Dir)
		assert.Empty(t, one.Files, "hundreds of hashes, which are not used")
	}
	return found
}

// TestCache_Unchanged_ReadOnce: every claim with a profile lists the versions several times.
func TestCache_Unchanged_ReadOnce(t *testing.T) {
	t.Parallel()
	c, dir, reads := counted(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "broken"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken", File), []byte("{"), 0o644))
	for range 3 {
		assert.Equal(t, map[string]bool{"1": false}, listed(t, c))
	}
	assert.Equal(t, 2, *reads, "also one that cannot be decoded")
}

// TestCache_Changes_SeenByTheNextList: versions are tested, replaced and removed while the plugin runs.
func TestCache_Changes_SeenByTheNextList(t *testing.T) {
	t.Parallel()
	c, dir, _ := counted(t)
	assert.Equal(t, map[string]bool{"1": false}, listed(t, c))
	install(t, dir, "1", time.Now())
	assert.Equal(t, map[string]bool{"1": true}, listed(t, c), "proven")
	install(t, dir, "2", time.Now())
	assert.Equal(t, map[string]bool{"1": true, "2": true}, listed(t, c), "another one")
	path := filepath.Join(dir, "2", File)
	was, err := os.Stat(path)
	require.NoError(t, err)
	install(t, dir, "2", time.Time{})
	require.NoError(t, os.Chtimes(path, was.ModTime(), was.ModTime()))
	assert.Equal(t, map[string]bool{"1": true, "2": false}, listed(t, c), "replaced by a file of the same time")
	require.NoError(t, os.Remove(filepath.Join(dir, "1", File)))
	assert.Equal(t, map[string]bool{"2": false}, listed(t, c), "being removed")
	require.NoError(t, os.RemoveAll(dir))
	assert.Empty(t, listed(t, c))
	assert.Empty(t, c.known, "nothing is kept of what is not there")
}

// TestCache_ReadFails_TriedAgain: a failed read may succeed later.
func TestCache_ReadFails_TriedAgain(t *testing.T) {
	t.Parallel()
	c, _, reads := counted(t)
	read := c.Read
	c.Read = func(string) (Manifest, error) {
		return Manifest{}, &fs.PathError{Op: "read", Path: "manifest.json", Err: errors.New("input/output error")}
	}
	assert.Empty(t, listed(t, c))
	c.Read = read
	assert.Equal(t, map[string]bool{"1": false}, listed(t, c))
	assert.Equal(t, 1, *reads)
}
