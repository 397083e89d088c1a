package layout

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

// Saved is the state on disk. With it a start without an available configuration keeps the layouts.
type Saved struct {
	// GPUs are the layouts in which the GPUs are advertised, nil if they were never saved.
	GPUs gpu.Layout
	// Flags are the settings in the last valid configuration, nil if it contains none.
	Flags *v1alpha1.NodeFlags
}

// same reports whether saving one of them in place of the other would change nothing. Layouts with the same devices may differ.
func (s Saved) same(other Saved) bool {
	return maps.EqualFunc(s.GPUs, other.GPUs, func(a, b gpu.Modes) bool { return reflect.DeepEqual(a, b) }) &&
		reflect.DeepEqual(s.Flags, other.Flags)
}

// Store stores Saved; File is the real one.
type Store interface {
	// Load returns the last saved state, the zero value without one.
	Load() (Saved, error)
	// Save is durable when it returns.
	Save(saved Saved) error
	// Sweep removes the unfinished file of a process that died during Save. Only the process that leads calls it.
	Sweep() error
}

// File is a Store in the file layout.json of the plugin's directory.
type File struct {
	Disk disk.Files
	// Dir is the plugin's directory, which exists.
	Dir string
}

const fileName = "layout.json"

// fileText is the content of the file. Unknown keys are left out when it is written again.
type fileText struct {
	Version int                 `json:"version"`
	GPUs    gpu.Layout          `json:"gpus"`
	Flags   *v1alpha1.NodeFlags `json:"flags,omitempty"`
}

const fileVersion = 1

// Load reads the file. One of a later version is an error, and so is one that is not JSON.
func (f File) Load() (Saved, error) {
	path := filepath.Join(f.Dir, fileName)
	raw, err := f.Disk.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Saved{}, nil
	}
	if err != nil {
		return Saved{}, fmt.Errorf("reading the advertised kinds of GPUs: %w", err)
	}
	var text fileText
	if err := json.Unmarshal(raw, &text); err != nil {
		return Saved{}, fmt.Errorf("reading the advertised kinds of GPUs in %s: %w", path, err)
	}
	if text.Version != fileVersion {
		return Saved{}, fmt.Errorf("reading the advertised kinds of GPUs in %s: version %d is unknown", path, text.Version)
	}
	return Saved{GPUs: text.GPUs, Flags: text.Flags}, nil
}

// Save replaces the file.
func (f File) Save(saved Saved) error {
	raw, err := json.Marshal(fileText{Version: fileVersion, GPUs: saved.GPUs, Flags: saved.Flags})
	if err == nil {
		err = disk.Replace(f.Disk, filepath.Join(f.Dir, fileName), raw, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("saving the advertised kinds of GPUs: %w", err)
	}
	return nil
}

// Sweep removes an unfinished file.
func (f File) Sweep() error {
	tmp := filepath.Join(f.Dir, fileName) + disk.TempSuffix
	if err := f.Disk.Remove(tmp); err != nil {
		return fmt.Errorf("removing %s, which is unfinished: %w", tmp, err)
	}
	return nil
}
