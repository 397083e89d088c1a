package library

import (
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// binding is the one library file that this process has loaded, or is about to.
type binding struct {
	mu   sync.Mutex
	lib  nvml.Interface
	file fs.FileInfo
	gate *Gate
}

// bound is a fact about the process, not about a session: the C library resolves each NVML function once and for good.
var bound = &binding{gate: NewGate()}

// library returns go-nvml for the file at path. gpu.ErrNotFound: the file does not exist. gpu.ErrDriverReplaced: the process has loaded
// another file.
func (b *binding) library(path string) (nvml.Interface, error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", path, gpu.ErrNotFound)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lib == nil {
		b.lib, b.file = nvml.New(nvml.WithLibraryPath(path)), file
		return b.lib, nil
	}
	if !sameContent(b.file, file) {
		return nil, fmt.Errorf("loading %s: %w: this process has already loaded %s", path, gpu.ErrDriverReplaced, b.file.Name())
	}
	return b.lib, nil
}

// reset undoes library for a file that could not be loaded, so that another one can be.
func (b *binding) reset(lib nvml.Interface) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lib == lib {
		b.lib, b.file = nil, nil
	}
}

// sameContent reports whether two calls of stat saw the same, unchanged file.
func sameContent(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
