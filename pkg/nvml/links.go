package nvml

import (
	"debug/elf"
	"path"
	"path/filepath"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"
)

// linkMounts returns further mounts of the mounted libraries under the names by which programs load them: the soname of each
// ("libcuda.so.1") and "libcuda.so", which many load although only a compiler should. They replace the links that the hook program would
// create.
func (s *Session) linkMounts(mounts []*specs.Mount) []*specs.Mount {
	taken := map[string]bool{}
	for _, m := range mounts {
		taken[m.ContainerPath] = true
	}
	var links []*specs.Mount
	for _, m := range mounts {
		dir, file := path.Split(m.ContainerPath)
		if !strings.Contains(file, ".so.") {
			continue
		}
		names := []string{soname(filepath.Join(s.opts.Root, strings.TrimPrefix(m.HostPath, s.opts.HostRoot)))}
		if strings.HasPrefix(file, "libcuda.so.") {
			names = append(names, "libcuda.so")
		}
		for _, name := range names {
			if link := path.Join(dir, name); name != "" && !taken[link] {
				taken[link] = true
				links = append(links, readOnly(m.HostPath, link, false))
			}
		}
	}
	return links
}

// soname returns the soname in a library's file, empty if there is none.
func soname(library string) string {
	file, err := elf.Open(library)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	names, err := file.DynString(elf.DT_SONAME)
	if err != nil || len(names) == 0 {
		return ""
	}
	return path.Base(names[0])
}
