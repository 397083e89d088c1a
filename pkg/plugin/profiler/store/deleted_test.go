package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// importing returns a store with a report that an importer is importing.
func importing(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, true)
	w.session("report.qdstrm", []byte("raw"), finished)
	w.Scan()
	require.Equal(t, report.Importing, w.get().State)
	require.ErrorIs(t, w.Delete(uid, id, report.Deletion{}), ErrBusy, "its claim is prepared")
	require.NoError(t, w.Release(uid))
	return w
}

func (w *world) spool(suffix string) string { return filepath.Join(w.dir, uid, spoolDir, id+suffix) }

// TestDelete_ImportingOfReleasedClaim_Gone: the namespace of the claim may be terminating, and waits for its reports; later results of the
// importer are removed.
func TestDelete_ImportingOfReleasedClaim_Gone(t *testing.T) {
	for _, suffix := range []string{readySuffix, failedSuffix} {
		w := importing(t)
		require.NoError(t, w.Delete(uid, id, report.Deletion{}))
		require.Empty(t, w.List("", ""))
		require.NoFileExists(t, w.spool(rawSuffix))
		w.reopen(true, disk.OS{})
		require.Empty(t, w.List("", ""))
		require.NoError(t, os.WriteFile(w.spool(suffix), []byte("late"), 0o600))
		w.Scan()
		require.Empty(t, w.List("", ""))
		require.NoFileExists(t, w.spool(suffix))
		require.NoError(t, w.Sweep(func() (map[string]bool, error) { return nil, nil }))
		require.NoDirExists(t, filepath.Join(w.dir, uid))
	}
}

// TestScan_ImporterWorksForDeletedReport_NotLeftOut: its later result is removed, even if other reports of the claim are final.
func TestScan_ImporterWorksForDeletedReport_NotLeftOut(t *testing.T) {
	w := importing(t)
	work := filepath.Join(filepath.Dir(w.spool(rawSuffix)), ".import-1")
	require.NoError(t, os.Mkdir(work, 0o700))
	require.NoError(t, w.Delete(uid, id, report.Deletion{}))
	w.Scan()
	require.NoError(t, os.Remove(work))
	require.NoError(t, os.WriteFile(w.spool(readySuffix), []byte("late"), 0o600))
	w.Scan()
	require.NoFileExists(t, w.spool(readySuffix))
}

// deleting deletes the report while the store collects the importer's result.
type deleting struct {
	disk.Files
	delete func()
}

func (d *deleting) SyncDir(path string) error {
	if filepath.Base(path) == reportsDir && d.delete != nil {
		d.delete()
		d.delete = nil
	}
	return d.Files.SyncDir(path)
}

// TestDelete_WhileImportedFileIsStored_NotThereAgain: neither the report nor its file reappears.
func TestDelete_WhileImportedFileIsStored_NotThereAgain(t *testing.T) {
	for _, suffix := range []string{readySuffix, failedSuffix} {
		w := importing(t)
		files := &deleting{Files: disk.OS{}}
		w.reopen(true, files)
		files.delete = func() { require.NoError(t, w.Delete(uid, id, report.Deletion{})) }
		require.NoError(t, os.WriteFile(w.spool(suffix), []byte("x"), 0o600))
		w.Scan()
		require.Nil(t, files.delete)
		require.Empty(t, w.List("", ""))
		_, _, err := w.Content(uid, id)
		require.ErrorIs(t, err, fs.ErrNotExist)
		for _, dir := range []string{reportsDir, spoolDir} {
			left, err := os.ReadDir(filepath.Join(w.dir, uid, dir))
			require.NoError(t, err)
			require.Empty(t, left)
		}
	}
}

// TestDelete_Preconditions_CheckedBeforeAnything: a report that was replaced in the meantime stays, and so does any report in a dry run.
func TestDelete_Preconditions_CheckedBeforeAnything(t *testing.T) {
	w := importing(t)
	old := w.get()
	require.NoError(t, w.Delete(uid, id, report.Deletion{UID: old.ObjectUID(), Version: old.Version(), DryRun: true}))
	require.FileExists(t, w.spool(rawSuffix))
	require.Equal(t, old, w.get())

	require.NoError(t, os.WriteFile(w.spool(readySuffix), []byte("imported"), 0o600))
	w.Scan()
	require.Equal(t, report.Ready, w.get().State)
	require.Equal(t, old.ObjectUID(), w.get().ObjectUID(), "it is the same report")
	require.ErrorIs(t, w.Delete(uid, id, report.Deletion{UID: old.ObjectUID(), Version: old.Version()}), report.ErrPrecondition)
	require.NoError(t, w.Delete(uid, id, report.Deletion{UID: old.ObjectUID(), Version: w.get().Version()}))

	require.NoError(t, w.Prepare(claimed, nil))
	w.session("report.nsys-rep", []byte("content"), finished)
	w.Scan()
	require.NotEqual(t, old.ObjectUID(), w.get().ObjectUID(), "another one of the same name")
	require.ErrorIs(t, w.Delete(uid, id, report.Deletion{UID: old.ObjectUID()}), report.ErrPrecondition)
	later := w.get()
	w.reopen(true, disk.OS{})
	require.Equal(t, later.ObjectUID(), w.get().ObjectUID(), "it is in the index")
}
