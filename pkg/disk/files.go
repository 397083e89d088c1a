package disk

import (
	"io"
	"io/fs"
)

// Files is the port of all that does the plugin's own file work; OS is the real one.
type Files interface {
	Writer
	// Read returns the whole file; fs.ErrNotExist when there is none.
	Read(path string) ([]byte, error)
	// List names the entries of a directory in lexical order; none when the directory does not exist.
	List(dir string) ([]string, error)
	// MakeDir makes the directory with its parents; the directory itself gets the requested permissions, also when it was there.
	MakeDir(dir string, perm fs.FileMode) error
	// Overwrite replaces the first bytes of a file that is there, durably and without room on the disk; a power cut may tear it.
	Overwrite(path string, data []byte) error
	// RemoveDir removes a directory with all that is in it; no error when there is none.
	RemoveDir(dir string) error
	// Hold takes a directory for this process, exclusively or shared; it waits for others. TryHold does not wait.
	Hold(dir string, shared bool) (release func(), err error)
	TryHold(dir string) (release func(), held bool, err error)
	// Create opens an empty file for writing, also where one was there; it follows no link.
	Create(path string, perm fs.FileMode) (File, error)
	// Mirror makes to a durable copy of from where it is none; fs.ErrNotExist when there is no from.
	Mirror(from, to string, perm fs.FileMode) error
}

// File is a file that is being written. Sync puts its content, not yet its name, on stable storage.
type File interface {
	io.Writer
	Sync() error
	Close() error
}

var _ Files = OS{}
