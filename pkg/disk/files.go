package disk

import (
	"io"
	"io/fs"
)

// Files is the port for the plugin's own files; OS is the real one.
type Files interface {
	Writer
	// Read returns the whole file; fs.ErrNotExist if it does not exist.
	Read(path string) ([]byte, error)
	// List returns the names of a directory's entries in lexical order; none if the directory does not exist.
	List(dir string) ([]string, error)
	// MakeDir creates the directory with its parents. The directory itself gets the requested permissions, even if it exists.
	MakeDir(dir string, perm fs.FileMode) error
	// Overwrite replaces the first bytes of an existing file, durably and without free space on the disk; a power cut may tear it.
	Overwrite(path string, data []byte) error
	// RemoveDir removes a directory with its content; no error if it does not exist.
	RemoveDir(dir string) error
	// Hold locks a directory for this process, exclusively or shared; it waits for others. TryHold does not wait.
	Hold(dir string, shared bool) (release func(), err error)
	TryHold(dir string) (release func(), held bool, err error)
	// Create opens an empty file for writing and replaces an existing one; it follows no link.
	Create(path string, perm fs.FileMode) (File, error)
	// Mirror makes to a durable copy of from, unless it is one already; fs.ErrNotExist if from does not exist.
	Mirror(from, to string, perm fs.FileMode) error
}

// File is a file that is being written. Sync puts its content, but not its name, on stable storage.
type File interface {
	io.Writer
	Sync() error
	Close() error
}

var _ Files = OS{}
