package mps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Store holds the state of every device with a control daemon that undoing its sharing needs. Its files survive the process and are invalid
// after a reboot. A caller that reads and changes the file of a device holds the lock of its GPU.
type Store struct {
	disk   disk.Files
	dir    string
	bootID string
}

// saved is the content of a file.
type saved struct {
	// BootID is the boot in which it was written.
	BootID string `json:"bootID"`
	// GPU is the physical GPU, Device the UUID of the GPU or MIG device.
	GPU    gpu.UUID `json:"gpu"`
	Device string   `json:"device"`
	// Mode is the device's compute mode before it was shared; empty for a device without its own mode.
	Mode gpu.ComputeMode `json:"mode,omitempty"`
	// Load is the load of the driver in which the mode was set: no mode outlives it. Empty if it was not known.
	Load string `json:"load,omitempty"`
	// PID and Started are the control daemon's on the host.
	PID     int    `json:"pid,omitempty"`
	Started uint64 `json:"started,omitempty"`
	// Prohibited: the mode is or is about to be prohibited, as the device lacks a daemon.
	Prohibited bool `json:"prohibited,omitempty"`
}

// outdated returns whether the driver was loaded again since, which has reset the mode.
func (s *saved) outdated(load string) bool { return s.Load != "" && load != "" && s.Load != load }

// NewStore returns the store of this boot, in the directory "mps" of the plugin's directory. The first write creates it.
func NewStore(d disk.Files, pluginDir, bootID string) *Store {
	return &Store{disk: d, dir: filepath.Join(pluginDir, "mps"), bootID: bootID}
}

const suffix = ".json"

func (s *Store) file(id gpu.MPSDaemonID) string { return filepath.Join(s.dir, string(id)+suffix) }

// get returns the saved state of a device; nil if nothing was saved in this boot.
func (s *Store) get(id gpu.MPSDaemonID) (*saved, error) {
	found, err := s.read(id)
	if found != nil && found.BootID != s.bootID {
		return nil, nil
	}
	return found, err
}

// read returns the saved state of a device, also of an earlier boot; nil if there is none.
func (s *Store) read(id gpu.MPSDaemonID) (*saved, error) {
	raw, err := s.disk.Read(s.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the saved compute mode of MPS control daemon %s: %w", id, err)
	}
	var found saved
	// Files are replaced atomically, so only a power cut leaves a truncated one, and a power cut resets the GPU too.
	if json.Unmarshal(raw, &found) != nil {
		return nil, nil
	}
	return &found, nil
}

// put replaces the file. It is not synced to disk, because a power cut resets the GPU.
func (s *Store) put(id gpu.MPSDaemonID, content saved) error {
	content.BootID = s.bootID
	raw, _ := json.Marshal(content) // texts, numbers and a bool always marshal
	err := disk.Replace(s.disk, s.file(id), raw, 0o600, false)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.disk.MakeDir(s.dir, 0o750); err == nil {
			err = disk.Replace(s.disk, s.file(id), raw, 0o600, false)
		}
	}
	if err != nil {
		return fmt.Errorf("saving the compute mode of MPS control daemon %s: %w", id, err)
	}
	return nil
}

// remove removes the file together with a temporary one that a killed process left.
func (s *Store) remove(id gpu.MPSDaemonID) error {
	file := s.file(id)
	if err := errors.Join(s.disk.Remove(file+disk.TempSuffix), s.disk.Remove(file)); err != nil {
		return fmt.Errorf("removing the saved compute mode of MPS control daemon %s: %w", id, err)
	}
	return nil
}

// all lists the devices that something is saved of, also in an earlier boot.
func (s *Store) all() (map[gpu.MPSDaemonID]saved, error) {
	names, err := s.disk.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the saved compute modes: %w", err)
	}
	found := map[gpu.MPSDaemonID]saved{}
	for _, name := range names {
		stem, ok := strings.CutSuffix(name, suffix)
		if !ok {
			continue
		}
		id := gpu.MPSDaemonID(stem)
		content, err := s.read(id)
		if err != nil {
			return nil, err
		}
		if content != nil {
			found[id] = *content
		}
	}
	return found, nil
}

// present lists the devices that something of this boot is saved of.
func (s *Store) present() (map[gpu.MPSDaemonID]saved, error) {
	found, err := s.all()
	maps.DeleteFunc(found, func(_ gpu.MPSDaemonID, content saved) bool { return content.BootID != s.bootID })
	return found, err
}

// Empty reports whether nothing of this boot is saved. If that cannot be read the answer is no.
func (s *Store) Empty() bool {
	found, err := s.present()
	return err == nil && len(found) == 0
}
