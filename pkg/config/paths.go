package config

import "path/filepath"

// clean shortens paths as users write them, with a slash at the end or two slashes, since they are compared and printed. What is no absolute
// path, such as NoCDIHook and an empty one, stays as it is.
func clean(paths ...*string) {
	for _, path := range paths {
		if filepath.IsAbs(*path) {
			*path = filepath.Clean(*path)
		}
	}
}
