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

// Store records the intervals that were set. Records survive the process and are invalid after a reboot. A caller that reads and
// changes the record of a GPU holds that GPU's lock. The node's interval and the claim's are separate files, so that Unprepare only
// removes a file and succeeds on a full disk.
type Store struct {
	disk   disk.Files
	dir    string
	bootID string
}

// record is the content of both files of one GPU.
type record struct {
	// node is the interval of the node's configuration that is set or about to be set; empty for the default.
	node gpu.Interval
	// claim is the interval that a claim has set or was about to set; empty without such a claim.
	claim gpu.Interval
}

// content is the JSON of one file.
type content struct {
	// BootID is the boot in which the file was written.
	BootID   string       `json:"bootID"`
	Interval gpu.Interval `json:"interval"`
}

// NewStore returns the store of this boot, in the directory "intervals" of the plugin's directory. The first write creates it.
func NewStore(d disk.Files, pluginDir, bootID string) *Store {
	return &Store{disk: d, dir: filepath.Join(pluginDir, "intervals"), bootID: bootID}
}

// The suffixes of the two files of a GPU.
const (
	nodeSuffix  = ".node.json"
	claimSuffix = ".claim.json"
)

func (s *Store) file(id gpu.UUID, suffix string) string {
	return filepath.Join(s.dir, string(id)+suffix)
}

// get returns the record of a GPU; the zero record when nothing was set in this boot.
func (s *Store) get(id gpu.UUID) (found record, err error) {
	if found.node, err = s.read(s.file(id, nodeSuffix)); err == nil {
		found.claim, err = s.read(s.file(id, claimSuffix))
	}
	if err != nil {
		return record{}, fmt.Errorf("reading the recorded time-slice interval of GPU %s: %w", id, err)
	}
	return found, nil
}

func (s *Store) read(file string) (gpu.Interval, error) {
	raw, err := s.disk.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var c content
	// Files are replaced atomically, so only a power cut leaves a truncated one, and a power cut resets the GPU too.
	if err := json.Unmarshal(raw, &c); err != nil || c.BootID != s.bootID {
		return "", nil
	}
	return c.Interval, nil
}

// setNode records the interval of the node's configuration.
func (s *Store) setNode(id gpu.UUID, interval gpu.Interval) error {
	if interval == gpu.IntervalDefault {
		interval = ""
	}
	return s.put(id, nodeSuffix, interval)
}

// setClaim records the interval of a claim; an empty one removes it.
func (s *Store) setClaim(id gpu.UUID, interval gpu.Interval) error {
	return s.put(id, claimSuffix, interval)
}

// put replaces one file, or removes it together with a temporary file that a killed process left. It is not synced to disk, because a
// power cut resets the GPU.
func (s *Store) put(id gpu.UUID, suffix string, interval gpu.Interval) error {
	file := s.file(id, suffix)
	var err error
	if interval == "" {
		err = errors.Join(s.disk.Remove(file+disk.TempSuffix), s.disk.Remove(file))
	} else {
		err = s.write(file, interval)
	}
	if err != nil {
		return fmt.Errorf("recording the time-slice interval of GPU %s: %w", id, err)
	}
	return nil
}

func (s *Store) write(file string, interval gpu.Interval) error {
	raw, _ := json.Marshal(content{BootID: s.bootID, Interval: interval}) // two strings always marshal
	err := disk.Replace(s.disk, file, raw, 0o600, false)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.disk.MakeDir(s.dir, 0o750); err == nil {
			err = disk.Replace(s.disk, file, raw, 0o600, false)
		}
	}
	return err
}

// claimed lists the GPUs with the interval of a claim of this boot.
func (s *Store) claimed() ([]gpu.UUID, error) {
	names, err := s.disk.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the recorded time-slice intervals: %w", err)
	}
	var claimed []gpu.UUID
	for _, name := range names {
		id, ok := strings.CutSuffix(name, claimSuffix)
		if !ok {
			continue
		}
		found, err := s.get(gpu.UUID(id))
		if err != nil {
			return nil, err
		}
		if found.claim != "" {
			claimed = append(claimed, gpu.UUID(id))
		}
	}
	return claimed, nil
}
