package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
)

const (
	fileName      = "health.json"
	fileVersion   = 1
	damagedSuffix = ".damaged"
)

// content is the content of the file. Unknown keys are left out when it is written again.
type content struct {
	Version int `json:"version"`
	// BootID and DriverLoad are the boot and the load of the driver in which the findings were found.
	BootID     string        `json:"bootID"`
	DriverLoad string        `json:"driverLoad,omitempty"`
	State      finding.Saved `json:"state"`
	// GPUs are the last facts of the GPUs: one that is lost while no process runs stays published, too.
	GPUs []gpu.GPU `json:"gpus,omitempty"`
}

// file stores the findings over restarts. It is not safe for concurrent use.
type file struct {
	disk   disk.Files
	dir    string
	bootID string
	// last is the text by which save compares, nil if it is not known.
	last []byte
}

func (f *file) path() string { return filepath.Join(f.dir, fileName) }

// errDamaged is the kind of the error of a file that another read does not change.
var errDamaged = errors.New("the file is damaged")

// load reads the file; the zero value if there is none. A file of a later version, or one that is not JSON, is errDamaged.
func (f *file) load() (c content, err error) {
	raw, err := f.disk.Read(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return content{}, nil
	}
	if err != nil {
		return content{}, fmt.Errorf("reading the findings of GPUs: %w", err)
	}
	if err = json.Unmarshal(raw, &c); err == nil && c.Version != fileVersion {
		err = fmt.Errorf("version %d is unknown", c.Version)
	}
	if err != nil {
		return content{}, fmt.Errorf("reading the findings of GPUs in %s: %w: %w", f.path(), errDamaged, err)
	}
	return c, nil
}

// setAside renames a file that cannot be read, which keeps it for administrators. The error says so.
func (f *file) setAside(cause error) error {
	aside := f.path() + damagedSuffix
	if err := f.disk.Rename(f.path(), aside); err != nil {
		return fmt.Errorf("%w (moving it to %s failed: %w)", cause, aside, err)
	}
	return fmt.Errorf("%w (set aside as %s)", cause, filepath.Base(aside))
}

// save replaces the file if findings, or which GPUs there are, differ. It is durable when it returns. Facts of GPUs that claims change, such as
// the MIG mode, are stored with the next difference: a claim that waits for an inspection does not wait for this write as well.
func (f *file) save(c content) error {
	c.Version, c.BootID = fileVersion, f.bootID
	compared, err := json.Marshal(c.withoutFacts())
	if err == nil && string(compared) == string(f.last) {
		return nil
	}
	f.last = nil
	var raw []byte
	if err == nil {
		raw, err = json.Marshal(c)
	}
	if err == nil {
		err = disk.Replace(f.disk, f.path(), raw, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("storing the findings of GPUs: %w", err)
	}
	f.last = compared
	return nil
}

// withoutFacts returns the content with the identities of the GPUs alone.
func (c content) withoutFacts() content {
	gpus := make([]gpu.GPU, len(c.GPUs))
	for i := range c.GPUs {
		gpus[i] = gpu.GPU{UUID: c.GPUs[i].UUID}
	}
	c.GPUs = gpus
	return c
}
