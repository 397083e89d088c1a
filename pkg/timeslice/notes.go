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

// Notes remembers what was set, over the death of a process and not over a boot. Whoever reads and changes what is noted of a GPU
// holds that GPU's lock. What the node wants and what a claim has set are in files of their own, so that the end of a claim takes no
// room on a disk.
type Notes struct {
	disk   disk.Files
	dir    string
	bootID string
}

// note is what is known of one GPU.
type note struct {
	// node is what the node's configuration wants, or has wanted; empty for what a driver that was just loaded uses.
	node gpu.Interval
	// claim is what a claim has set over that, or was about to set; empty without such a claim.
	claim gpu.Interval
}

// content is that of one file.
type content struct {
	// BootID is the boot in which it was written.
	BootID   string       `json:"bootID"`
	Interval gpu.Interval `json:"interval"`
}

// NewNotes keeps the notes of this boot in a directory of its own below the plugin's, which is made with the first.
func NewNotes(d disk.Files, pluginDir, bootID string) *Notes {
	return &Notes{disk: d, dir: filepath.Join(pluginDir, "intervals"), bootID: bootID}
}

// What the names of the two files end with.
const (
	ofNode  = ".node.json"
	ofClaim = ".claim.json"
)

func (n *Notes) file(id gpu.UUID, of string) string { return filepath.Join(n.dir, string(id)+of) }

// of returns what is known of a GPU; the zero note when nothing was set in this boot.
func (n *Notes) of(id gpu.UUID) (known note, err error) {
	if known.node, err = n.read(n.file(id, ofNode)); err == nil {
		known.claim, err = n.read(n.file(id, ofClaim))
	}
	if err != nil {
		return note{}, fmt.Errorf("reading what was set on GPU %s: %w", id, err)
	}
	return known, nil
}

func (n *Notes) read(file string) (gpu.Interval, error) {
	raw, err := n.disk.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var c content
	// Files are replaced whole, so only a power cut, which resets the GPU too, leaves half of one.
	if err := json.Unmarshal(raw, &c); err != nil || c.BootID != n.bootID {
		return "", nil
	}
	return c.Interval, nil
}

// setNode notes what the node's configuration wants.
func (n *Notes) setNode(id gpu.UUID, interval gpu.Interval) error {
	if interval == gpu.IntervalDefault {
		interval = ""
	}
	return n.put(id, ofNode, interval)
}

// setClaim notes what a claim sets, or that none does.
func (n *Notes) setClaim(id gpu.UUID, interval gpu.Interval) error {
	return n.put(id, ofClaim, interval)
}

// put replaces one file, or removes it with what somebody died of writing. It is not synced to disk: what cuts the power resets the
// GPU.
func (n *Notes) put(id gpu.UUID, of string, interval gpu.Interval) error {
	file := n.file(id, of)
	var err error
	if interval == "" {
		err = errors.Join(n.disk.Remove(file+disk.TempSuffix), n.disk.Remove(file))
	} else {
		err = n.write(file, interval)
	}
	if err != nil {
		return fmt.Errorf("noting what is set on GPU %s: %w", id, err)
	}
	return nil
}

func (n *Notes) write(file string, interval gpu.Interval) error {
	raw, _ := json.Marshal(content{BootID: n.bootID, Interval: interval}) // two texts
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
		id, ok := strings.CutSuffix(name, ofClaim)
		if !ok {
			continue
		}
		known, err := n.of(gpu.UUID(id))
		if err != nil {
			return nil, err
		}
		if known.claim != "" {
			claimed = append(claimed, gpu.UUID(id))
		}
	}
	return claimed, nil
}
