package port

import (
	"fmt"
	"os"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// MinimalHost implements the rest of the plugin's host port: there are GPUs, and no programs, other devices or sockets.
type MinimalHost struct{ Boot string }

// BootID is the id of the boot.
func (b MinimalHost) BootID() (string, error) { return b.Boot, nil }

// MayHaveGPU is always true.
func (MinimalHost) MayHaveGPU() (bool, error) { return true, nil }

// CharDevices finds none.
func (MinimalHost) CharDevices(_, _ string) ([]hostfs.CharDevice, error) { return nil, nil }

// LinkCharDevices makes none: there is no /dev/char.
func (MinimalHost) LinkCharDevices([]hostfs.CharDevice) error { return nil }

// Locate finds nothing.
func (MinimalHost) Locate(_, _ string) (string, bool) { return "", false }

// GraphicsNodes finds none.
func (MinimalHost) GraphicsNodes(string) ([]string, error) { return nil, nil }

// Process finds a process of the machine that this runs on.
func (MinimalHost) Process(pid int) (hostfs.Process, bool) { return hostfs.New("/").Process(pid) }

// Program finds none.
func (MinimalHost) Program(...string) (string, bool) { return "", false }

// FileID finds none.
func (MinimalHost) FileID(string) (hostfs.FileID, bool) { return hostfs.FileID{}, false }

// NoExec is never true: programs may be executed anywhere.
func (MinimalHost) NoExec(string) (bool, error) { return false, nil }

// CheckPrograms finds nothing wrong: all users may execute them.
func (MinimalHost) CheckPrograms(string) error { return nil }

// UnifiedCgroups is false.
func (MinimalHost) UnifiedCgroups() bool { return false }

// Cgroup finds none.
func (MinimalHost) Cgroup(path string) (string, error) {
	return "", fmt.Errorf("cgroup %s: %w", path, gpu.ErrNotFound)
}

// Writable returns a directory that is there.
func (MinimalHost) Writable(path string) (dir string, release func(), err error) {
	if _, err := os.Stat(path); err != nil {
		return "", nil, fmt.Errorf("directory %s: %w", path, gpu.ErrNotFound)
	}
	return path, func() {}, nil
}

// Sockets finds none.
func (MinimalHost) Sockets(_, _ string) ([]string, error) { return nil, nil }
