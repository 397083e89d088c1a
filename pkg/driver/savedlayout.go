package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// SavedLayout is a layout that outlives the process.
type SavedLayout interface {
	// Load returns what was saved last, nil where nothing was.
	Load() (gpu.Layout, error)
	// Save is durable when it returns.
	Save(layout gpu.Layout) error
	// Sweep removes what a process that died while it saved has left. Only the process that saves calls it.
	Sweep() error
}

// LayoutDisk is what a LayoutFile needs of a filesystem; disk.OS is the real one.
type LayoutDisk interface {
	disk.Writer
	Read(path string) ([]byte, error)
}

// LayoutFile is a SavedLayout in a file of the plugin's directory.
type LayoutFile struct {
	Disk LayoutDisk
	// Dir is the plugin's directory, which is there.
	Dir string
}

const layoutName = "layout.json"

// layoutText is what the file holds. Keys that are not known are left out when it is written again.
type layoutText struct {
	Version int        `json:"version"`
	GPUs    gpu.Layout `json:"gpus"`
}

const layoutVersion = 1

// Load reads the file. One of a later version is an error, and so is one that is not JSON.
func (f LayoutFile) Load() (gpu.Layout, error) {
	path := filepath.Join(f.Dir, layoutName)
	raw, err := f.Disk.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the GPUs were offered as: %w", err)
	}
	var text layoutText
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, fmt.Errorf("reading what the GPUs were offered as in %s: %w", path, err)
	}
	if text.Version != layoutVersion {
		return nil, fmt.Errorf("reading what the GPUs were offered as in %s: version %d is not known", path, text.Version)
	}
	return text.GPUs, nil
}

// Save writes the file anew.
func (f LayoutFile) Save(layout gpu.Layout) error {
	raw, err := json.Marshal(layoutText{Version: layoutVersion, GPUs: layout})
	if err == nil {
		err = disk.Replace(f.Disk, filepath.Join(f.Dir, layoutName), raw, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("saving what the GPUs are offered as: %w", err)
	}
	return nil
}

// Sweep removes the half of a file.
func (f LayoutFile) Sweep() error {
	tmp := filepath.Join(f.Dir, layoutName) + disk.TempSuffix
	if err := f.Disk.Remove(tmp); err != nil {
		return fmt.Errorf("removing %s, which was never finished: %w", tmp, err)
	}
	return nil
}
