package timeslice

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Disk is what Notes needs of a filesystem; disk.OS is the real one.
type Disk interface {
	disk.Writer
	Read(path string) ([]byte, error)
	List(dir string) ([]string, error)
	MakeDir(dir string, perm fs.FileMode) error
}

// Notes remembers what was set, over the death of a process and not over a boot. Whoever reads and changes the note of a GPU holds
// that GPU's lock.
type Notes struct {
	disk   Disk
	dir    string
	bootID string
}

// note is what is known of one GPU.
type note struct {
	// BootID is the boot in which it was made.
	BootID string `json:"bootID"`
	// Node is what the node's configuration wants, or has wanted; empty for what a driver that was just loaded uses.
	Node gpu.Interval `json:"node,omitempty"`
	// Claim is what a claim has set over that, or was about to set; empty without such a claim.
	Claim gpu.Interval `json:"claim,omitempty"`
}

// NewNotes keeps the notes of this boot in a directory of its own below the plugin's, which is made with the first.
func NewNotes(d Disk, pluginDir, bootID string) *Notes {
	return &Notes{disk: d, dir: filepath.Join(pluginDir, "intervals"), bootID: bootID}
}

const suffix = ".json"

func (n *Notes) file(id gpu.UUID) string { return filepath.Join(n.dir, string(id)+suffix) }

// of returns what is known of a GPU; the zero note when nothing was set in this boot.
func (n *Notes) of(id gpu.UUID) (note, error) {
	raw, err := n.disk.Read(n.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return note{}, nil
	}
	if err != nil {
		return note{}, fmt.Errorf("reading what was set on GPU %s: %w", id, err)
	}
	var known note
	// Files are replaced whole, so only a power cut, which resets the GPU too, leaves half of one.
	if err := json.Unmarshal(raw, &known); err != nil || known.BootID != n.bootID {
		return note{}, nil
	}
	return known, nil
}

// put replaces what is known of a GPU. It is not synced to disk: what cuts the power resets the GPU.
func (n *Notes) put(id gpu.UUID, known note) error {
	if known.Node == gpu.IntervalDefault {
		known.Node = ""
	}
	if err := n.write(n.file(id), known); err != nil {
		return fmt.Errorf("noting what is set on GPU %s: %w", id, err)
	}
	return nil
}

// write writes the note, or removes the file, and what somebody died of writing, where there is nothing to note.
func (n *Notes) write(file string, known note) error {
	if known.Node == "" && known.Claim == "" {
		return errors.Join(n.disk.Remove(file+disk.TempSuffix), n.disk.Remove(file))
	}
	known.BootID = n.bootID
	raw, _ := json.Marshal(known) // three texts
	err := disk.Replace(n.disk, file, raw, 0o600, false)
	if errors.Is(err, fs.ErrNotExist) {
		if err = n.disk.MakeDir(n.dir, 0o750); err == nil {
			err = disk.Replace(n.disk, file, raw, 0o600, false)
		}
	}
	return err
}

// claimed lists the GPUs on which a claim has set an interval in this boot.
func (n *Notes) claimed() ([]gpu.UUID, error) {
	names, err := n.disk.List(n.dir)
	if err != nil {
		return nil, fmt.Errorf("looking on which GPUs something was set: %w", err)
	}
	var claimed []gpu.UUID
	for _, name := range names {
		id, ok := strings.CutSuffix(name, suffix)
		if !ok {
			continue
		}
		known, err := n.of(gpu.UUID(id))
		if err != nil {
			return nil, err
		}
		if known.Claim != "" {
			claimed = append(claimed, gpu.UUID(id))
		}
	}
	return claimed, nil
}
