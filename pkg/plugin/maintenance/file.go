package maintenance

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// File is the file that says until when all processes of the node keep their sessions closed.
type File struct {
	Disk disk.Files
	// Dir is the plugin's directory.
	Dir string
}

// Path is the file.
func (f File) Path() string { return filepath.Join(f.Dir, maintenance.ReleasedFile) }

// Until returns until when sessions are closed; zero if they need not be. A damaged file is ignored: the leading process replaces it.
func (f File) Until(now time.Time) (time.Time, error) {
	text, err := f.Disk.Read(f.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading until when GPUs are released: %w", err)
	}
	stored, err := maintenance.DecodeReleased(text)
	if err != nil || !stored.At(now) {
		return time.Time{}, nil
	}
	return stored.Until, nil
}

// Put stores until when sessions are closed, durably; the zero time removes the file.
func (f File) Put(until time.Time) error {
	if until.IsZero() {
		return f.remove()
	}
	if err := disk.Replace(f.Disk, f.Path(), maintenance.NewReleased(until).Encode(), 0o600, true); err != nil {
		return fmt.Errorf("storing until when GPUs are released: %w", err)
	}
	return nil
}

// Sweep removes the unfinished file of a process that died during Put. Only the process that leads calls it.
func (f File) Sweep() error {
	if err := f.Disk.Remove(f.Path() + disk.TempSuffix); err != nil {
		return fmt.Errorf("removing the unfinished file of a release: %w", err)
	}
	return nil
}

// remove removes the file durably, if there is one.
func (f File) remove() error {
	if _, err := f.Disk.Read(f.Path()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(f.Disk.Remove(f.Path()), f.Disk.SyncDir(f.Dir)); err != nil {
		return fmt.Errorf("ending the release of GPUs: %w", err)
	}
	return nil
}
