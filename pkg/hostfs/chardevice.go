package hostfs

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// CharDevice is a character device node of the host.
type CharDevice struct {
	// Path is the host's path of the node: "/dev/nvidia0".
	Path string
	// Major and Minor are the device's numbers.
	Major, Minor uint32
}

// CharDevice returns the host's device node at path, links followed. gpu.ErrNotFound: nothing exists at path. For another type of file, the
// error names the type.
func (f *FS) CharDevice(path string) (CharDevice, error) {
	seen, err := f.resolve(path)
	if err != nil {
		return CharDevice{}, fmt.Errorf("checking device node %s: %w", path, err)
	}
	info, err := os.Lstat(seen)
	if err != nil {
		return CharDevice{}, fmt.Errorf("checking device node %w", hostError(path, err))
	}
	if info.Mode()&fs.ModeCharDevice == 0 {
		return CharDevice{}, fmt.Errorf("checking device node %s: it is %s, not a character device", path, kindOf(info.Mode()))
	}
	var stat unix.Stat_t
	if err := unix.Stat(seen, &stat); err != nil {
		return CharDevice{}, fmt.Errorf("checking device node %w", hostError(path, err))
	}
	return CharDevice{Path: path, Major: unix.Major(stat.Rdev), Minor: unix.Minor(stat.Rdev)}, nil
}

// kindOf names the type of a file for an error.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a regular file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeDevice != 0:
		return "a block device"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a " + mode.Type().String()
	}
}
