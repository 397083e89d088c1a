package programs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// Profiler contains the programs for containers of profiled claims, and the versions of them that specs name.
type Profiler struct {
	folders
	own *ownHook
	// installed are the programs besides prism-hook, err is why they are not installed.
	installed []cdi.Installed
	err       error
	// digests maps versions of the plugin to digests of libraries. written are the claims whose spec names this version: the specs of
	// others are read.
	digests, written sync.Map
}

// install installs the programs. If that fails, only profiles are refused.
func (p *Profiler) install(ctx context.Context, images string) {
	p.err = p.own.err
	for _, name := range []string{cdi.ProfilerLibrary, cdi.ProfilerRun} {
		if p.err != nil {
			break
		}
		image := filepath.Join(images, name)
		installed, err := p.current.Install(p.version, cdi.Program{Name: name, Image: image})
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("the image of the kubelet plugin does not contain %s: %w", image, gpu.ErrNotFound)
		}
		if err == nil {
			p.installed = append(p.installed, installed)
		}
		p.err = err
	}
	if p.err != nil {
		klog.FromContext(ctx).Error(p.err, "Processes are not profiled without the profiler's programs")
	}
}

// Err returns why the programs are not installed; nil if they are.
func (p *Profiler) Err() error { return p.err }

// Folder returns the host's directory of the programs of this version.
func (p *Profiler) Folder() string { return filepath.Dir(p.own.Path) }

// CreateContainer returns the CDI edit with which the runtime starts prism-hook in the container's mount namespace.
func (p *Profiler) CreateContainer(args ...string) *specs.Hook {
	return cdi.CreateContainerHook(p.own.Path, args...)
}

// Named reports whether the claim's spec names a path.
func (p *Profiler) Named(claimUID, path string) (bool, error) { return p.specs.Names(claimUID, path) }

// Version returns the version whose programs the claim's spec names; empty if there is no such spec.
func (p *Profiler) Version(claimUID string) string { return p.current.VersionOf(p.specs, claimUID) }

// Wrote records that this process wrote the claim's spec.
func (p *Profiler) Wrote(claimUID string) { p.written.Store(claimUID, nil) }

// Removed records that the claim's spec is removed.
func (p *Profiler) Removed(claimUID string) { p.written.Delete(claimUID) }

// Current reports whether this process wrote the claim's spec.
func (p *Profiler) Current(claimUID string) bool {
	_, written := p.written.Load(claimUID)
	return written
}

// Library returns the SHA-256 of the library that containers of a profiled claim load, "sha256:" and 64 hexadecimal digits. It is the
// version that the claim's spec names, which an upgrade of the plugin does not change until the claim is prepared again. It is empty if
// unknown.
func (p *Profiler) Library(claimUID string) string {
	version := p.version
	if !p.Current(claimUID) {
		version = p.Version(claimUID)
	}
	if known, ok := p.digests.Load(version); ok {
		return known.(string)
	}
	library, err := os.ReadFile(filepath.Join(p.current.Dir, version, cdi.ProfilerLibrary))
	if err != nil || version == "" {
		return ""
	}
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(library))
	p.digests.Store(version, sum)
	return sum
}
