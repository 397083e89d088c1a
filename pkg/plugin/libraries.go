package plugin

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/prism-gpu/prism/pkg/cdi"
)

// libraries are the digests of what the containers of profiled claims load. The zero value has none.
type libraries struct {
	// digests are known by version of the plugin. written are the claims whose spec names this version: the specs of others are read.
	digests, written sync.Map
}

// wrote says that this plugin wrote the claim's spec, removed that the spec is removed.
func (l *libraries) wrote(claimUID string)   { l.written.Store(claimUID, nil) }
func (l *libraries) removed(claimUID string) { l.written.Delete(claimUID) }

// current reports whether this plugin wrote the claim's spec.
func (l *libraries) current(claimUID string) bool {
	_, written := l.written.Load(claimUID)
	return written
}

// of is the SHA-256 of the library that containers of a profiled claim load, "sha256:" and 64 hexadecimal digits: that of the version that
// the claim's spec names, which an upgrade of the plugin leaves alone until the claim is prepared again. It is empty where it is not known.
func (l *libraries) of(hook *hookPrograms, claimUID string) string {
	version := hook.version
	if !l.current(claimUID) {
		version = hook.current.VersionOf(hook.specs, claimUID)
	}
	if known, ok := l.digests.Load(version); ok {
		return known.(string)
	}
	library, err := os.ReadFile(filepath.Join(hook.current.Dir, version, cdi.ProfilerLibrary))
	if err != nil || version == "" {
		return ""
	}
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(library))
	l.digests.Store(version, sum)
	return sum
}
