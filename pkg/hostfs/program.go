package hostfs

import "os"

// Program returns the first of the host's paths at which an executable file stands, false when there is none.
func (f *FS) Program(paths ...string) (string, bool) {
	for _, path := range paths {
		seen, err := f.resolve(path)
		if err != nil {
			continue
		}
		if executable(seen) {
			return path, true
		}
	}
	return "", false
}

// executable tells whether there is a program at a path as this process sees it.
func executable(seen string) bool {
	info, err := os.Stat(seen)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
