package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Saved is what outlives the process, so that a configuration that cannot be had after a start takes nothing back.
type Saved struct {
	// GPUs are what the GPUs are offered as, nil where that was never saved.
	GPUs gpu.Layout
	// Flags are the settings in the last good configuration, nil where it has none.
	Flags *v1alpha1.NodeFlags
}

// same tells whether saving one of them for the other would change nothing. It is more than coming to the same devices.
func (s Saved) same(other Saved) bool {
	return maps.EqualFunc(s.GPUs, other.GPUs, func(a, b gpu.Offer) bool { return reflect.DeepEqual(a, b) }) &&
		reflect.DeepEqual(s.Flags, other.Flags)
}

// SavedLayout keeps that.
type SavedLayout interface {
	// Load returns what was saved last, nothing where nothing was.
	Load() (Saved, error)
	// Save is durable when it returns.
	Save(saved Saved) error
	// Sweep removes what a process that died while it saved has left. Only the process that saves calls it.
	Sweep() error
}

// LayoutFile is a SavedLayout in a file of the plugin's directory.
type LayoutFile struct {
	Disk disk.Files
	// Dir is the plugin's directory, which is there.
	Dir string
}

const layoutName = "layout.json"

// layoutText is what the file holds. Keys that are not known are left out when it is written again.
type layoutText struct {
	Version int                 `json:"version"`
	GPUs    gpu.Layout          `json:"gpus"`
	Flags   *v1alpha1.NodeFlags `json:"flags,omitempty"`
}

const layoutVersion = 1

// Load reads the file. One of a later version is an error, and so is one that is not JSON.
func (f LayoutFile) Load() (Saved, error) {
	path := filepath.Join(f.Dir, layoutName)
	raw, err := f.Disk.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Saved{}, nil
	}
	if err != nil {
		return Saved{}, fmt.Errorf("reading what the GPUs were offered as: %w", err)
	}
	var text layoutText
	if err := json.Unmarshal(raw, &text); err != nil {
		return Saved{}, fmt.Errorf("reading what the GPUs were offered as in %s: %w", path, err)
	}
	if text.Version != layoutVersion {
		return Saved{}, fmt.Errorf("reading what the GPUs were offered as in %s: version %d is not known", path, text.Version)
	}
	return Saved{GPUs: text.GPUs, Flags: text.Flags}, nil
}

// Save writes the file anew.
func (f LayoutFile) Save(saved Saved) error {
	raw, err := json.Marshal(layoutText{Version: layoutVersion, GPUs: saved.GPUs, Flags: saved.Flags})
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
