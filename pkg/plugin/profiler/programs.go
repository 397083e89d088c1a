package profiler

import (
	"crypto/sha256"
	"fmt"
	"os"
	"sync"

	"github.com/prism-gpu/prism/pkg/plugin/programs"
)

// Library and Run are the files of the image that containers of profiled claims get in addition to prism-hook.
const (
	Library = "libprism-inject.so"
	Run     = "prism-run"
)

// Programs are the names of all programs that Open may install.
var Programs = []string{Library, Run}

// containerPrograms are these files on the node.
type containerPrograms struct {
	*programs.Extra
	// digests maps paths of libraries to their digests.
	digests sync.Map
}

// Library returns the SHA-256 of the library that containers of a profiled claim load, "sha256:" and 64 hexadecimal digits; empty if
// unknown.
func (p *containerPrograms) Library(claimUID string) string {
	path := p.Path(claimUID, Library)
	if path == "" {
		return ""
	}
	if known, ok := p.digests.Load(path); ok {
		return known.(string)
	}
	library, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(library))
	p.digests.Store(path, sum)
	return sum
}
