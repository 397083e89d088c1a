package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// place is a directory outside of the plugin's own in which files were written under a driver name.
type place struct {
	Path   string `json:"path"`
	Driver string `json:"driver"`
}

// places are the directories in which the release has written files of one sort on this node: the flag names the present one alone. The file in
// the plugin's directory is written before the first of them.
type places struct {
	disk disk.Files
	host Host
	file string
	now  place

	mu  sync.Mutex
	all []place
}

// openPlaces reads which directories there were, and adds the present one. Versions before did not write the file: they used assumed.
func openPlaces(cfg *config.Plugin, a Adapters, file, path, assumed string) (*places, error) {
	p := &places{disk: a.Disk, host: a.Host, file: filepath.Join(cfg.PluginDir(), file), now: place{path, cfg.DriverName}}
	if cfg.Release == "" {
		p.all = []place{p.now}
		return p, nil
	}
	return p, p.add(p.file, place{assumed, cfg.DriverName})
}

// add adds the places that a file in a plugin's directory of the release lists; assumed if the file does not exist.
func (p *places) add(file string, assumed place) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := p.disk.Read(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading which directories the plugin used before: %w", err)
	}
	var listed []place
	if json.Unmarshal(text, &listed) != nil { // also a damaged file: it is written whole or not at all
		listed = []place{assumed}
	}
	for _, at := range append(slices.Clone(listed), p.now) {
		if !slices.Contains(p.all, at) {
			p.all = append(p.all, at)
		}
	}
	if len(text) > 0 && file == p.file && slices.Equal(p.all, listed) {
		return nil
	}
	return p.store()
}

func (p *places) store() error {
	text, err := json.Marshal(p.all)
	if err == nil {
		err = disk.Replace(p.disk, p.file, text, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("storing which directories the plugin uses: %w", err)
	}
	return nil
}

// sweep cleans each directory, and forgets former ones that clean keeps nothing in. Clean gets the directory's path as this process can write it: one
// that is not configured any more is not mounted either, so it is written through the mount of the host's root. The present directory is cleaned as
// long as a former one is listed: while clean keeps something in it, or fails, none is forgotten.
func (p *places) sweep(clean func(at place, dir string) (kept bool, err error)) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(p.all, []place{p.now}) {
		return nil
	}
	var failed []error
	var left []place
	unclean := false
	for _, at := range p.all {
		kept, err := p.clean(at, clean)
		if kept || at == p.now {
			left = append(left, at)
		}
		unclean = unclean || kept && at == p.now
		failed = append(failed, err)
	}
	err := errors.Join(failed...)
	if err == nil && !unclean && len(left) < len(p.all) {
		p.all = left
		err = p.store()
	}
	return err
}

// former reports whether another directory than the present one is listed.
func (p *places) former() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.all, func(at place) bool { return at.Path != p.now.Path })
}

func (p *places) clean(at place, clean func(at place, dir string) (kept bool, err error)) (bool, error) {
	if at.Path == p.now.Path {
		return clean(at, at.Path)
	}
	dir, release, err := p.host.Writable(at.Path)
	if errors.Is(err, gpu.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("removing what driver %s has in the former directory %s: %w; remove it when no pod needs it", at.Driver, at.Path, err)
	}
	defer release()
	return clean(at, dir)
}
