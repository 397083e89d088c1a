package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// rootsFile is in the plugin's directory and lists where its CDI specs are and were.
const rootsFile = "cdi-roots.json"

// cdiRoot is a directory with CDI specs that were written under a driver name.
type cdiRoot struct {
	Path   string `json:"path"`
	Driver string `json:"driver"`
}

// cdiRoots are the CDI directories of the release on this node. A directory that is not configured any more is not mounted either, so it is written
// through the mount of the host's root.
type cdiRoots struct {
	disk disk.Files
	host Host
	file string
	now  cdiRoot

	mu  sync.Mutex
	all []cdiRoot
}

// openRoots reads which directories there were, and adds the present one.
func openRoots(cfg *config.Plugin, a Adapters) (*cdiRoots, error) {
	r := &cdiRoots{disk: a.Disk, host: a.Host, file: filepath.Join(cfg.PluginDir(), rootsFile), now: cdiRoot{cfg.Paths.CDIRoot, cfg.DriverName}}
	if cfg.Release == "" {
		return r, nil
	}
	return r, r.add(r.file)
}

// add adds those that another plugin's directory of the release lists.
func (r *cdiRoots) add(file string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := r.disk.Read(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading where CDI specs were: %w", err)
	}
	var listed []cdiRoot
	if len(text) > 0 {
		if err := json.Unmarshal(text, &listed); err != nil {
			listed = nil // written whole or not at all: what changed it does not know better
		}
	}
	for _, root := range append(listed, r.now) {
		if !slices.Contains(r.all, root) {
			r.all = append(r.all, root)
		}
	}
	if file == r.file && slices.Equal(r.all, listed) {
		return nil
	}
	return r.store()
}

// moved reports whether specs may be in another directory than the present one.
func (r *cdiRoots) moved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.all, func(root cdiRoot) bool { return root.Path != r.now.Path })
}

func (r *cdiRoots) store() error {
	text, err := json.Marshal(r.all)
	if err == nil {
		err = disk.Replace(r.disk, r.file, text, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("storing where CDI specs are: %w", err)
	}
	return nil
}

// sweep removes the specs in former directories of claims that have none of these records, or one in the present directory. A directory without
// any is forgotten.
func (r *cdiRoots) sweep(records []*checkpoint.Record, present *cdi.Dir) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var failed []error
	var left []cdiRoot
	for _, root := range r.all {
		if root.Path == r.now.Path {
			left = append(left, root)
			continue
		}
		kept, err := r.clean(root, records, present)
		if kept || err != nil {
			left = append(left, root)
		}
		failed = append(failed, err)
	}
	if len(left) < len(r.all) {
		r.all = left
		failed = append(failed, r.store())
	}
	return errors.Join(failed...)
}

// clean cleans one directory; kept: specs in it are needed.
func (r *cdiRoots) clean(root cdiRoot, records []*checkpoint.Record, present *cdi.Dir) (kept bool, err error) {
	dir, release, err := r.host.Writable(root.Path)
	if errors.Is(err, gpu.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("removing CDI specs of driver %s from the former directory %s: %w; remove them when no pod needs them", root.Driver, root.Path, err)
	}
	defer release()
	names, err := r.disk.List(dir)
	if err != nil {
		return true, fmt.Errorf("listing the former CDI directory %s: %w", root.Path, err)
	}
	specs, metadata := strings.TrimSuffix(cdi.FileName(cdi.Kind(root.Driver), ""), ".json"), root.Driver+"_metadata_"
	for _, name := range names {
		rest, isSpec := strings.CutPrefix(name, specs)
		if !isSpec {
			var isMetadata bool
			if rest, isMetadata = strings.CutPrefix(name, metadata); !isMetadata {
				continue
			}
		}
		needed := slices.ContainsFunc(records, func(record *checkpoint.Record) bool {
			return strings.HasPrefix(rest, record.Claim.UID) && (!isSpec || !present.Holds(record.Claim.UID, record.CDI.Devices))
		})
		if needed {
			kept = true
			continue
		}
		if err := r.disk.Remove(filepath.Join(dir, name)); err != nil {
			return true, fmt.Errorf("removing CDI spec %s from the former directory %s: %w", name, root.Path, err)
		}
	}
	return kept, nil
}
