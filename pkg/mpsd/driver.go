package mpsd

import (
	"fmt"
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/mpsd/state"
)

// driver is an installed NVIDIA driver with MPS.
type driver struct {
	root hostfs.DriverRoot
	// control is the program of the control daemon. Its PATH contains both directories.
	control, controlDir, serverDir string
}

func (d driver) identity() state.Driver {
	return state.Driver{Root: d.root.HostPath, Version: d.root.Version, Library: d.root.Library, File: d.root.LibraryID}
}

const (
	controlProgram = "nvidia-cuda-mps-control"
	serverProgram  = "nvidia-cuda-mps-server"
)

// driver finds the installation in use. gpu.ErrDriverNotLoaded: there is none. *gpu.UnsupportedError: it does not contain the programs of
// MPS.
func (o Options) driver() (driver, error) {
	root, err := o.Host.FindDriver(o.DriverRoot)
	if err != nil {
		return driver{}, err
	}
	found := driver{root: root}
	for name, dir := range map[string]*string{controlProgram: &found.controlDir, serverProgram: &found.serverDir} {
		program, exists := root.Tool(name)
		if !exists {
			return driver{}, &gpu.UnsupportedError{
				Feature: "MPS",
				Needs: fmt.Sprintf("%s and %s in the driver root %s (in %s): install the driver's MPS programs there, or add their directory with "+
					"--driver-search-dirs (chart value nvidiaSearchDirs)", controlProgram, serverProgram, root.HostPath, root.ToolDirs()),
			}
		}
		*dir = filepath.Dir(program)
	}
	found.control, _ = root.Tool(controlProgram)
	return found, nil
}
