package hostfs

import "os"

// Program returns the first of the host's paths at which an executable file stands, false when there is none.
func (f *FS) Program(paths ...string) (string, bool) {
	for _, path := range paths {
		seen, err := f.resolve(path)
		if err != nil {
			continue
		}
		if info, err := os.Stat(seen); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, true
		}
	}
	return "", false
}
