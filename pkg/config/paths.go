package config

import "path/filepath"

// clean shortens paths with double or trailing slashes, as users write them, because they are compared and printed. It does not change
// values that are not absolute paths, such as NoCDIHook and the empty string.
func clean(paths ...*string) {
	for _, path := range paths {
		if filepath.IsAbs(*path) {
			*path = filepath.Clean(*path)
		}
	}
}
