package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sample(t *testing.T) *Rootfs {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "lib", "x"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lib", "x", "libc.so"), []byte("c"), 0o640))
	require.NoError(t, os.Symlink("x/libc.so", filepath.Join(dir, "lib", "link")))
	r := NewRootfs(true)
	require.NoError(t, r.Tree(dir, nil))
	require.NoError(t, r.File("/bin/tool", filepath.Join(dir, "lib/x/libc.so"), 0o755))
	r.Accounts()
	return r
}

func layer(t *testing.T, r *Rootfs) map[string]*tar.Header {
	t.Helper()
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(r.writeLayer(writer)) }()
	found := map[string]*tar.Header{}
	archive := tar.NewReader(reader)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		assert.Equal(t, epoch, header.ModTime.UTC(), header.Name)
		found[header.Name] = header
	}
}

func TestLayer_UsrMerged_LinksAndFiles(t *testing.T) {
	found := layer(t, sample(t))
	assert.Equal(t, "usr/lib", found["lib"].Linkname)
	require.Contains(t, found, "usr/lib/x/libc.so")
	assert.EqualValues(t, 0o640, found["usr/lib/x/libc.so"].Mode)
	assert.Equal(t, "x/libc.so", found["usr/lib/link"].Linkname)
	require.Contains(t, found, "usr/bin/tool")
	assert.EqualValues(t, 0o755, found["usr/bin/tool"].Mode)
	assert.EqualValues(t, 0o1777, found["tmp/"].Mode)
	assert.NotContains(t, found, "lib/x/libc.so")
}

func TestWrite_SameFiles_SameArchive(t *testing.T) {
	rootfs, dir := sample(t), t.TempDir()
	config := Config{Name: "localhost/x:1", Entrypoint: []string{"/bin/tool"}, Env: []string{"A=b"}}
	var archives [2][]byte
	for i := range archives {
		file := filepath.Join(dir, "x.tar")
		require.NoError(t, Write(file, config, rootfs))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		archives[i] = text
	}
	assert.Equal(t, archives[0], archives[1])
}

func TestWrite_Archive_NamesTheImage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.tar")
	require.NoError(t, Write(file, Config{Name: "localhost/x:1", Entrypoint: []string{"/bin/tool"}}, sample(t)))
	blobs := readArchive(t, file)
	var index v1.IndexManifest
	require.NoError(t, json.Unmarshal(blobs["index.json"], &index))
	require.Len(t, index.Manifests, 1)
	assert.Equal(t, "localhost/x:1", index.Manifests[0].Annotations["io.containerd.image.name"])
	var manifest v1.Manifest
	require.NoError(t, json.Unmarshal(blobs[blobPath(index.Manifests[0].Digest)], &manifest))
	require.Len(t, manifest.Layers, 1)
	assert.Len(t, blobs[blobPath(manifest.Layers[0].Digest)], int(manifest.Layers[0].Size))
	var config v1.ConfigFile
	require.NoError(t, json.Unmarshal(blobs[blobPath(manifest.Config.Digest)], &config))
	assert.Equal(t, []string{"/bin/tool"}, config.Config.Entrypoint)
	assert.Equal(t, "linux", config.OS)
}

func readArchive(t *testing.T, path string) map[string][]byte {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	found, archive := map[string][]byte{}, tar.NewReader(file)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		found[header.Name], err = io.ReadAll(archive)
		require.NoError(t, err)
	}
}

func TestFile_NotARegularFile_Refused(t *testing.T) {
	r := NewRootfs(false)
	assert.ErrorContains(t, r.File("/x", "/nowhere", 0), "adding /x to the image")
	assert.ErrorContains(t, r.File("/x", t.TempDir(), 0), "is not a regular file")
}

func TestSuperfluous_Paths_DocumentationOnly(t *testing.T) {
	for name, want := range map[string]bool{
		"usr/share/doc/libc6":              false,
		"usr/share/doc/libc6/copyright":    false,
		"usr/share/doc/libc6/changelog.gz": true,
		"usr/share/man":                    true,
		"lib/x86_64-linux-gnu/libc.so.6":   false,
	} {
		assert.Equal(t, want, superfluous(name), name)
	}
}
