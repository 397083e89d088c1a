package tool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

// Sweep removes installations below dir that are no longer needed: earlier builds of the version that is kept, and versions that are not in
// the chart. Directories that a CDI spec mounts stay, because a restarted container needs them. The plugin may have chosen a build without
// having written its spec yet, so the first call only makes the build unavailable to new claims, and a later call removes it.
func Sweep(dir string, keep manifest.Installed, versions, specs []string) error {
	installed, err := manifest.List(dir)
	if err != nil {
		return err
	}
	for _, one := range installed {
		old := one.Version == keep.Version && one.Dir != keep.Dir || !slices.Contains(versions, one.Version)
		if !old {
			continue
		}
		mounted, mountedErr := named(specs, one.Dir)
		if mountedErr != nil || mounted {
			err = errors.Join(err, mountedErr)
			continue
		}
		if !one.Proven.IsZero() {
			one.Proven = time.Time{}
			err = errors.Join(err, one.Write(one.Dir))
			continue
		}
		if removeErr := os.RemoveAll(one.Dir); removeErr != nil {
			err = errors.Join(err, fmt.Errorf("removing Nsight Systems %s: %w", one.Version, removeErr))
		}
	}
	return err
}

// named reports whether a CDI spec contains a path in the directory.
func named(specs []string, dir string) (bool, error) {
	for _, folder := range specs {
		paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
		if err != nil {
			return false, err
		}
		for _, path := range paths {
			spec, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return false, err
			}
			if bytes.Contains(spec, []byte(`"`+dir+`/`)) || bytes.Contains(spec, []byte(`"`+dir+`"`)) {
				return true, nil
			}
		}
	}
	return false, nil
}
