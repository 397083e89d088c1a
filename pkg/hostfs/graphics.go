package hostfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// drmNode is the name of a device node of the Direct Rendering Manager.
var drmNode = regexp.MustCompile(`^(card|renderD)[0-9]+$`)

// GraphicsNodes returns the sorted paths of the device nodes for graphics on the GPU at a PCI address ("0000:3b:00.0"): "/dev/dri/card1"
// and "/dev/dri/renderD128". The nodes themselves may be missing. The list is empty if the GPU's driver creates none, for instance without
// the module nvidia-drm.
func (f *FS) GraphicsNodes(busID string) ([]string, error) {
	dir := filepath.Join("/sys/bus/pci/devices", busID, "drm")
	seen, err := f.resolve(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the graphics device nodes of the GPU at %s: %w", busID, err)
	}
	entries, err := os.ReadDir(seen)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the graphics device nodes of the GPU at %s: %w", busID, hostError(dir, err))
	}
	var nodes []string
	for _, entry := range entries {
		if drmNode.MatchString(entry.Name()) {
			nodes = append(nodes, "/dev/dri/"+entry.Name())
		}
	}
	return nodes, nil
}
