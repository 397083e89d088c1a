package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// Extra contains the programs of an extension for containers, and the versions of them that specs name.
type Extra struct {
	folders
	own *ownHook
	// installed are the programs besides prism-hook, err is why they are not installed.
	installed []cdi.Installed
	err       error
	// written are the claims whose spec names this version: the specs of others are read.
	written sync.Map
}

// Extra installs programs of Images.Extra next to prism-hook, which their containers need too. If that fails, only the requests of the
// extension are refused: Err returns why. They are kept until Release.
func (s *Set) Extra(names ...string) *Extra {
	e := &Extra{folders: s.folders, own: s.own, err: s.own.err}
	s.extra = append(s.extra, e)
	for _, name := range names {
		if e.err != nil {
			break
		}
		image := filepath.Join(s.images, name)
		installed, err := e.current.Install(e.version, cdi.Program{Name: name, Image: image})
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("the image of the kubelet plugin does not contain %s: %w", image, gpu.ErrNotFound)
		}
		if err == nil {
			e.installed = append(e.installed, installed)
		}
		e.err = err
	}
	return e
}

// Err returns why the programs are not installed; nil if they are.
func (e *Extra) Err() error { return e.err }

// Folder returns the host's directory of the programs of this version.
func (e *Extra) Folder() string { return filepath.Dir(e.own.Path) }

// CreateContainer returns the CDI edit with which the runtime starts prism-hook in the container's mount namespace.
func (e *Extra) CreateContainer(args ...string) *specs.Hook {
	return cdi.CreateContainerHook(e.own.Path, args...)
}

// Named reports whether the claim's spec names a path.
func (e *Extra) Named(claimUID, path string) (bool, error) { return e.specs.Names(claimUID, path) }

// Version returns the version whose programs the claim's spec names; empty if there is no such spec.
func (e *Extra) Version(claimUID string) string { return e.current.VersionOf(e.specs, claimUID) }

// Wrote records that this process wrote the claim's spec.
func (e *Extra) Wrote(claimUID string) { e.written.Store(claimUID, nil) }

// Removed records that the claim's spec is removed.
func (e *Extra) Removed(claimUID string) { e.written.Delete(claimUID) }

// Current reports whether this process wrote the claim's spec.
func (e *Extra) Current(claimUID string) bool {
	_, written := e.written.Load(claimUID)
	return written
}

// Path returns the host's path of a program for the containers of a claim. It is of the version that the claim's spec names, which an
// upgrade of the plugin does not change until the claim is prepared again. It is empty if unknown.
func (e *Extra) Path(claimUID, name string) string {
	version := e.version
	if !e.Current(claimUID) {
		version = e.Version(claimUID)
	}
	if version == "" {
		return ""
	}
	return filepath.Join(e.current.Dir, version, name)
}
