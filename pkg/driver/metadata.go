package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/config"
)

// MetadataFiles are the files with device attributes that the kubelet-plugin library makes for claims while device metadata
// is on. It removes them only while it is on; a claim that was prepared before it was turned off would leave its files behind.
type MetadataFiles struct {
	// dir holds a folder per claim, cdi a spec per request.
	dir, cdi, driver string
}

// MetadataOf knows where the library puts its files.
func MetadataOf(cfg *config.Plugin) MetadataFiles {
	return MetadataFiles{dir: filepath.Join(cfg.PluginDir(), "dra-device-metadata"), cdi: cfg.Paths.CDIRoot, driver: cfg.DriverName}
}

// Remove removes the claim's files. Where device metadata never was on, it costs one stat of a directory.
func (m MetadataFiles) Remove(claim types.NamespacedName, uid types.UID) error {
	folder := filepath.Join(m.dir, claim.Namespace+"_"+claim.Name)
	if _, err := os.Lstat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// The folder last: it is how the next try sees that something is left.
	if err := m.RemoveSpecs(uid); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("removing the device metadata of claim %s: %w", claim, err)
	}
	return nil
}

// RemoveSpecs removes the claim's CDI specs of metadata files alone.
func (m MetadataFiles) RemoveSpecs(uid types.UID) error {
	specs, err := filepath.Glob(filepath.Join(m.cdi, fmt.Sprintf("%s_metadata_%s_*.json", m.driver, uid)))
	for _, spec := range specs {
		err = errors.Join(err, os.Remove(spec))
	}
	if err != nil {
		return fmt.Errorf("removing the device metadata of claim %s: %w", uid, err)
	}
	return nil
}
