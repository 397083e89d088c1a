package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// dying fails all calls from a certain one on, like a killed process.
type dying struct {
	disk.OS
	left *int
}

var errKilled = errors.New("killed")

func (d dying) die() error {
	if *d.left--; *d.left < 0 {
		return errKilled
	}
	return nil
}

func (d dying) Write(p string, data []byte, perm fs.FileMode, durable bool) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.OS.Write(p, data, perm, durable)
}

func (d dying) MakeDir(p string, perm fs.FileMode) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.OS.MakeDir(p, perm)
}

func (d dying) Create(p string, perm fs.FileMode) (disk.File, error) {
	if err := d.die(); err != nil {
		return nil, err
	}
	f, err := d.OS.Create(p, perm)
	return dyingFile{f, d}, err
}

// dyingFile is a file that such a process writes.
type dyingFile struct {
	disk.File
	d dying
}

func (f dyingFile) Write(data []byte) (int, error) {
	if err := f.d.die(); err != nil {
		return 0, err
	}
	return f.File.Write(data)
}

func (f dyingFile) Sync() error {
	if err := f.d.die(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (d dying) SyncDir(p string) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.OS.SyncDir(p)
}

func (d dying) Rename(from, to string) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.OS.Rename(from, to)
}

func (d dying) Remove(p string) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.OS.Remove(p)
}

func (d dying) RemoveDir(p string) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.OS.RemoveDir(p)
}

func TestScan_KilledAnywhere_NothingLostOrTwice(t *testing.T) {
	for _, suffix := range []string{"", readySuffix, failedSuffix} {
		for point, died := 0, true; died; point++ {
			w := newWorld(t, suffix != "")
			name, ready := "report.qdstrm", report.Ready
			switch suffix {
			case "":
				name = "report.nsys-rep"
			case failedSuffix:
				ready = report.Raw
			}
			w.session(name, []byte("content"), finished)
			if suffix != "" {
				w.Scan()
				require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, spoolDir, id+suffix), []byte("content"), 0o600))
			}
			left := point
			w.reopen(suffix != "", dying{left: &left})
			w.Scan()
			died = left < 0
			w.reopen(suffix != "", disk.OS{})
			w.Scan()
			require.Len(t, w.List("", ""), 1)
			require.Equal(t, ready, w.get().State, "fault point %d of %q", point, suffix)
			for dir, files := range map[string]int{inboxDir: 0, spoolDir: 0, reportsDir: 1} {
				there, _ := os.ReadDir(filepath.Join(w.dir, uid, dir))
				require.Len(t, there, files, "%s at fault point %d of %q", dir, point, suffix)
			}
		}
	}
}

// TestStore_KilledAnywhere_NothingLeaks: from the first Prepare of a claim until its retention has passed, a process that is killed at any
// point is followed by a process that does the same again, as kubelet and plugin do.
func TestStore_KilledAnywhere_NothingLeaks(t *testing.T) {
	t.Parallel()
	plan := map[string][]byte{"run": []byte("a"), "match": []byte("b")}
	prepared := true
	is := func() (map[string]bool, error) { return map[string]bool{uid: prepared}, nil }
	steps := []func(w *world) error{
		func(w *world) error { prepared = true; return w.Prepare(claimed, plan) },
		func(w *world) error { w.session("report.qdstrm", []byte("raw"), finished); w.Scan(); return nil },
		func(w *world) error {
			spooled := filepath.Join(w.dir, uid, spoolDir, id)
			if _, err := os.Stat(spooled + rawSuffix); err == nil {
				require.NoError(w.t, os.WriteFile(spooled+readySuffix, []byte("content"), 0o600))
			}
			w.Scan()
			return nil
		},
		func(w *world) error { prepared = false; return w.Release(uid) },
		func(w *world) error { return w.Sweep(is) },
		func(w *world) error { w.now = w.now.Add(2 * claimed.Retention); return w.Sweep(is) },
	}
	points := 0
	for died := true; died; points++ {
		left := points
		w := &world{t: t, dir: t.TempDir(), now: time.Now()}
		w.reopen(true, dying{left: &left})
		for i, step := range steps {
			err := step(w)
			if died = left < 0; died {
				w.reopen(true, disk.OS{})
				err = step(w)
				left = 1 << 30
			}
			require.NoError(t, err, "step %d at fault point %d", i, points)
			if i == 2 {
				require.Equal(t, report.Ready, w.get().State, "fault point %d", points)
			}
		}
		died = left > 1<<29 || left < 0
		require.NoDirExists(t, filepath.Join(w.dir, uid), "fault point %d", points)
	}
	t.Logf("%d fault points", points)
}

// TestSweep_FolderWithoutIndex_Removed: a kill happened between the creation of the folder and its index, and the claim is gone.
func TestSweep_FolderWithoutIndex_Removed(t *testing.T) {
	t.Parallel()
	for name, keeps := range map[string]bool{"prepared": true, "gone": false} {
		left := 3
		w := &world{t: t, dir: t.TempDir(), now: time.Now()}
		w.reopen(true, dying{left: &left})
		require.ErrorIs(t, w.Prepare(claimed, nil), errKilled)
		require.DirExists(t, filepath.Join(w.dir, uid))
		w.reopen(true, disk.OS{})
		require.NoError(t, w.Sweep(func() (map[string]bool, error) { return map[string]bool{uid: keeps}, nil }))
		_, err := os.Stat(filepath.Join(w.dir, uid))
		require.Equal(t, keeps, err == nil, name)
	}
}

// TestOpen_FileGone_Lost: after a disk lost the file of a report, which then cannot be downloaded, or the whole index without reports.
func TestOpen_FileGone_Lost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.session("report.nsys-rep", []byte("content"), finished)
	w.Scan()
	require.NoError(t, os.Truncate(filepath.Join(w.dir, uid, reportsDir, id+readySuffix), 3))
	w.reopen(false, disk.OS{})
	require.Equal(t, report.Lost, w.get().State)
	require.NotEmpty(t, w.get().Message)

	w = newWorld(t, false)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, indexFile), nil, 0o600))
	w.reopen(false, disk.OS{})
	require.NoError(t, w.Prepare(claimed, nil))
	w.session("report.nsys-rep", []byte("content"), finished)
	w.Scan()
	require.Equal(t, report.Ready, w.get().State)
}

// TestScan_FoldersLost_ReportStored: a power cut may leave the first index with a report and without the folders of files.
func TestScan_FoldersLost_ReportStored(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{reportsDir, spoolDir} {
		w := newWorld(t, true)
		w.session("", nil, strings.Replace(finished, "Finished", "Recording", 1))
		w.Scan()
		require.Equal(t, report.Recording, w.get().State)
		require.NoError(t, os.Remove(filepath.Join(w.dir, uid, lost)))
		w.reopen(true, disk.OS{})
		w.session("report.qdstrm", []byte("raw"), finished)
		w.now = w.now.Add(time.Minute)
		w.Scan()
		require.Equal(t, report.Importing, w.get().State, lost)
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, spoolDir, id+readySuffix), []byte("imported"), 0o600))
		w.Scan()
		require.Equal(t, report.Ready, w.get().State, lost)
	}
}
