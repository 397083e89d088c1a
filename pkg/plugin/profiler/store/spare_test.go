package store

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
)

var plan = map[string][]byte{"run": []byte("a"), "match": []byte("b")}

// another returns a claim other than the world's.
func another(i int) Claim {
	c := claimed
	c.UID = fmt.Sprintf("0b1c2d3e-1111-2222-3333-%012d", i)
	return c
}

// tree returns the contents of a folder: modes and contents by path, without the UID of its claim.
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

// spares returns the folders that were created in advance.
func (w *world) spares() []string {
	found, err := filepath.Glob(filepath.Join(w.dir, sparePrefix+"*"))
	require.NoError(w.t, err)
	return found
}

// calls counts calls of Files.
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

// TestPrepare_Spare_SameAsWithout: the folder is the same, and no directory is created.
func TestPrepare_Spare_SameAsWithout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	counted := calls{made: new(int), written: new(int), renamed: new(int)}
	w.reopen(false, counted)
	first := another(1)
	require.NoError(t, w.Prepare(first, plan))
	require.NoError(t, w.FillSpares())
	require.Len(t, w.spares(), spareFolders)
	*counted.made, *counted.written, *counted.renamed = 0, 0, 0
	second := another(2)
	require.NoError(t, w.Prepare(second, plan))
	assert.Equal(t, []int{0, 3, 1}, []int{*counted.made, *counted.written, *counted.renamed}, "directories made, files written, renamed")
	assert.Equal(t, tree(t, w.dir, first.UID), tree(t, w.dir, second.UID))
	assert.Len(t, w.spares(), spareFolders-1)

	// The next Prepare changes nothing, and containers see only the claim's own files.
	require.NoError(t, w.Prepare(second, plan))
	assert.Equal(t, []int{0, 3, 1}, []int{*counted.made, *counted.written, *counted.renamed})
	w.reopen(false, disk.OS{})
	require.NoError(t, w.Release(second.UID))
	assert.Len(t, w.claims, 3)
}

// TestPrepare_MoreThanSpares_MadeItself: also if a spare is missing.
func TestPrepare_MoreThanSpares_MadeItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	require.NoError(t, w.FillSpares())
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, w.Store.spares.ready[3])))
	want := tree(t, w.dir, uid)
	for i := range spareFolders + 2 {
		require.NoError(t, w.Prepare(another(i), plan))
		assert.Equal(t, want, tree(t, w.dir, another(i).UID), i)
	}
	assert.Empty(t, w.spares())
	require.NoError(t, w.FillSpares())
	assert.Len(t, w.spares(), spareFolders)
}

// TestPrepare_FolderThere_SpareStays: an existing folder of a claim is used.
func TestPrepare_FolderThere_SpareStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	require.NoError(t, w.FillSpares())
	kept := filepath.Join(w.dir, another(1).UID, reportsDir, "a")
	require.NoError(t, os.MkdirAll(filepath.Dir(kept), 0o700))
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	require.NoError(t, w.Prepare(another(1), plan))
	assert.FileExists(t, kept)
	assert.Len(t, w.spares(), spareFolders)
}

// TestPrepare_SpareKilledAnywhere_NextOneMakesPlan: a folder with a part of its files is completed.
func TestPrepare_SpareKilledAnywhere_NextOneMakesPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	want := tree(t, w.dir, uid)
	for calls := 0; ; calls++ {
		require.NoError(t, w.Prepare(another(100+calls), plan))
		require.NoError(t, w.FillSpares())
		require.NotEmpty(t, w.Store.spares.ready)
		left := calls
		w.Files = dying{left: &left}
		killed := w.Prepare(another(calls), plan)
		w.reopen(false, disk.OS{})
		require.NoError(t, w.Prepare(another(calls), plan))
		assert.Equal(t, want, tree(t, w.dir, another(calls).UID), "after %d calls", calls)
		if killed == nil {
			assert.Equal(t, 4, calls, "calls of a Prepare with a spare")
			return
		}
	}
}

// TestSweep_SparesOfOtherProcess_Removed: spares of a killed process, but not its own.
func TestSweep_SparesOfOtherProcess_Removed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	has := func() (map[string]bool, error) { return map[string]bool{uid: true, another(1).UID: true}, nil }
	require.NoError(t, w.FillSpares())
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, sparePrefix+"half"), 0o700))
	require.NoError(t, w.Sweep(has))
	assert.Len(t, w.spares(), spareFolders, "those of this process")

	w.reopen(false, disk.OS{})
	require.NoError(t, w.Prepare(another(1), plan))
	require.NoError(t, w.FillSpares())
	assert.Len(t, w.spares(), 2*spareFolders)
	require.NoError(t, w.Sweep(has))
	assert.Len(t, w.spares(), spareFolders)
	for _, path := range w.spares() {
		assert.True(t, w.IsSpare(filepath.Base(path)), path)
	}
	require.NoError(t, w.Prepare(another(1), plan))
	left, err := disk.OS{}.List(w.dir)
	require.NoError(t, err)
	assert.Len(t, left, spareFolders+2, "nothing that is being removed is left")
}

// TestSpares_FewUsedOrFollowing_NoneMade: also before the first claim.
func TestSpares_FewUsedOrFollowing_NoneMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.reopen(false, disk.OS{})
	require.NoError(t, w.FillSpares())
	assert.Empty(t, w.spares(), "no claim was prepared by this process")
	require.NoError(t, w.Prepare(another(1), plan))
	require.NoError(t, w.FillSpares())
	require.NoError(t, w.Prepare(another(2), plan))
	require.NoError(t, w.FillSpares())
	assert.Len(t, w.spares(), spareFolders-1)

	for i := range 5 {
		require.NoError(t, w.Prepare(another(3+i), plan))
	}
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, sparePrefix+"other"), 0o700))
	w.following = true
	require.NoError(t, w.Prepare(another(20), plan))
	require.NoError(t, w.Sweep(func() (map[string]bool, error) { return nil, nil }))
	require.NoError(t, w.FillSpares())
	assert.Len(t, w.spares(), spareFolders-6+1, "another process may lead")
}

// TestKeepSpares_ClaimPrepared_MadeUntilTheEnd: in the background; a process that exits by itself leaves none.
func TestKeepSpares_ClaimPrepared_MadeUntilTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.KeepSpares(ctx)
	}()
	require.Eventually(t, func() bool { return len(w.spares()) == spareFolders }, 10*time.Minute, 10*time.Millisecond)
	stop()
	<-ended
	assert.Empty(t, w.spares())
	require.NoError(t, w.Prepare(another(1), plan))
}
