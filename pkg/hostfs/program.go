package hostfs

import "os"

// Program returns the first of the host's paths with an executable file, false if there is none.
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

// executable reports whether a path of this process is an executable file.
func executable(seen string) bool {
	info, err := os.Stat(seen)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// FileID identifies the regular, non-empty file at the host's path; false for anything else.
func (f *FS) FileID(path string) (FileID, bool) {
	seen, err := f.resolve(path)
	if err != nil {
		return FileID{}, false
	}
	return fileID(seen)
}
