package store

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
)

var plan = map[string][]byte{"run": []byte("a"), "match": []byte("b")}

// another returns a claim other than the one of a world.
func another(i int) Claim {
	c := claimed
	c.UID = fmt.Sprintf("0b1c2d3e-1111-2222-3333-%012d", i)
	return c
}

// tree returns the modes and contents in a folder, by path, without the UID of its claim.
func tree(t *testing.T, dir, uid string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, uid), func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		said := info.Mode().String()
		if !entry.IsDir() {
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			said += " " + strings.ReplaceAll(string(raw), uid, "uid")
		}
		all[strings.TrimPrefix(path, filepath.Join(dir, uid))] = said
		return nil
	}))
	return all
}

// calls counts the calls of Files.
type calls struct {
	disk.OS
	made, written, renamed *int
}

func (c calls) MakeDir(p string, perm fs.FileMode) error {
	*c.made++
	return c.OS.MakeDir(p, perm)
}

func (c calls) Write(p string, data []byte, perm fs.FileMode, durable bool) error {
	*c.written++
	return c.OS.Write(p, data, perm, durable)
}

func (c calls) Rename(from, to string) error {
	*c.renamed++
	return c.OS.Rename(from, to)
}

// TestPrepare_NewClaim_FilesWrittenOnce: each file is written under its own name at once, and the next Prepare changes nothing.
func TestPrepare_NewClaim_FilesWrittenOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	counted := calls{made: new(int), written: new(int), renamed: new(int)}
	w.reopen(false, counted)
	for range 2 {
		require.NoError(t, w.Prepare(another(1), plan))
		assert.Equal(t, []int{3, 3, 0}, []int{*counted.made, *counted.written, *counted.renamed}, "directories made, files written, renamed")
		assert.Equal(t, tree(t, w.dir, uid), tree(t, w.dir, another(1).UID))
	}
	w.reopen(false, disk.OS{})
	require.NoError(t, w.Release(another(1).UID))
	assert.Len(t, w.claims, 2)
}

// TestPrepare_FolderThere_ContentStays: a folder that exists keeps its contents.
func TestPrepare_FolderThere_ContentStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	kept := filepath.Join(w.dir, another(1).UID, reportsDir, "a")
	require.NoError(t, os.MkdirAll(filepath.Dir(kept), 0o700))
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	require.NoError(t, w.Prepare(another(1), plan))
	assert.FileExists(t, kept)
}

// TestPrepare_KilledAnywhere_NextOneMakesPlan: a folder with a part of its files is completed.
func TestPrepare_KilledAnywhere_NextOneMakesPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	want := tree(t, w.dir, uid)
	for calls := 0; ; calls++ {
		left := calls
		w.Files = dying{left: &left}
		killed := w.Prepare(another(calls), plan)
		w.reopen(false, disk.OS{})
		require.NoError(t, w.Prepare(another(calls), plan))
		assert.Equal(t, want, tree(t, w.dir, another(calls).UID), "after %d calls", calls)
		if killed == nil {
			assert.Equal(t, 6, calls, "calls of a Prepare")
			return
		}
	}
}
