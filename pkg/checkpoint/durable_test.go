package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// cutPower is the real disk. A power cut reverts changes to the names in a directory since its last sync.
type cutPower struct {
	disk.OS
	undo  []func() error
	syncs map[string]int
	fails error // the error of SyncDir
}

func (d *cutPower) Remove(path string) error {
	content, readErr := os.ReadFile(path)
	err := d.OS.Remove(path)
	if err == nil && readErr == nil {
		d.undo = append(d.undo, func() error { return os.WriteFile(path, content, 0o600) })
	}
	return err
}

func (d *cutPower) Rename(from, to string) error {
	before, readErr := os.ReadFile(to)
	err := d.OS.Rename(from, to)
	if err == nil {
		d.undo = append(d.undo, func() error {
			if err := os.Rename(to, from); err != nil || readErr != nil {
				return err
			}
			return os.WriteFile(to, before, 0o600)
		})
	}
	return err
}

func (d *cutPower) Write(path string, data []byte, perm fs.FileMode, durable bool) error {
	if !durable {
		return errors.New("a record has to be written durably")
	}
	return d.OS.Write(path, data, perm, durable)
}

func (d *cutPower) SyncDir(dir string) error {
	if d.fails != nil {
		return d.fails
	}
	d.syncs[filepath.Base(dir)]++
	d.undo = nil
	return d.OS.SyncDir(dir)
}

// cut simulates a power cut; it returns the number of lost changes.
func (d *cutPower) cut(t *testing.T) int {
	t.Helper()
	lost := len(d.undo)
	for i := range d.undo {
		require.NoError(t, d.undo[lost-1-i]())
	}
	d.undo = nil
	return lost
}

func newCutPower(t *testing.T) (*Store, *cutPower) {
	t.Helper()
	d := &cutPower{syncs: map[string]int{}}
	s, err := Open(d, t.TempDir())
	require.NoError(t, err)
	clear(d.syncs)
	return s, d
}

// TestStore_PowerCut_NothingAnsweredIsLost: completed calls of Put and Delete are durable, at the cost of one fsync of the directory each.
// A record that reappeared would hold its GPU, or be undone a second time when the GPU belongs to another claim.
func TestStore_PowerCut_NothingAnsweredIsLost(t *testing.T) {
	t.Parallel()
	s, d := newCutPower(t)
	done, releasing := whole("uid-1"), whole("uid-1")
	releasing.State = Releasing
	for i, r := range []*Record{done, releasing} {
		require.NoError(t, s.Put(r))
		assert.Equal(t, map[string]int{"claims": i + 1}, d.syncs)
		assert.Zero(t, d.cut(t), "everything is durable")
		kept, err := s.Load("uid-1")
		require.NoError(t, err)
		assert.Equal(t, r.State, kept.State)
	}
	require.NoError(t, s.Delete("uid-1"))
	assert.Equal(t, map[string]int{"claims": 3}, d.syncs)
	assert.Zero(t, d.cut(t), "everything is durable")
	_, err := s.Load("uid-1")
	require.ErrorIs(t, err, gpu.ErrNotFound)
}

// TestDelete_SyncFails_ErrorAndDurableNextTime: a removal that may be reverted is an error, and the next call makes it durable although it
// finds no record.
func TestDelete_SyncFails_ErrorAndDurableNextTime(t *testing.T) {
	t.Parallel()
	s, d := newCutPower(t)
	require.NoError(t, s.Put(whole("uid-1")))
	clear(d.syncs)
	d.fails = errors.New("input/output error")
	require.ErrorContains(t, s.Delete("uid-1"), "removing the record of claim uid-1 durably: input/output error")
	assert.Equal(t, 1, d.cut(t))
	_, err := s.Load("uid-1")
	require.NoError(t, err, "it is back")

	require.Error(t, s.Delete("uid-1"))
	d.fails = nil
	require.NoError(t, s.Delete("uid-1"))
	assert.Equal(t, map[string]int{"claims": 1}, d.syncs)
	assert.Zero(t, d.cut(t))
	_, err = s.Load("uid-1")
	require.ErrorIs(t, err, gpu.ErrNotFound)
}
