package mpsd

import (
	"context"
	"io/fs"
	"syscall"

	"github.com/prism-gpu/prism/pkg/hostfs"
)

// System contains all effects of the service on the machine. Linux is the real one.
type System interface {
	// MakeDir creates a directory, or sets the permissions of an existing one.
	MakeDir(path string, perm fs.FileMode) error
	// MakeFIFO creates a named pipe; nothing may exist at the path.
	MakeFIFO(path string) error
	// Write creates or replaces a file atomically.
	Write(path string, data []byte) error
	// Link creates a hard link, or replaces to by one, atomically.
	Link(from, to string) error
	// Symlink creates a symbolic link; nothing may exist at the path.
	Symlink(target, path string) error
	// Remove removes a file, or a directory with its content; no error if it does not exist.
	Remove(path string) error
	// Mount mounts a tmpfs, or changes the size of a mounted one. The size also limits the number of files.
	Mount(path string, bytes int64, mounted bool) error
	// ReplaceByDir creates an empty directory in a parent in which other processes create, replace and remove entries. It removes an
	// existing entry of that name, and follows no link.
	ReplaceByDir(parent, name string) error
	// MountEmpty mounts an empty, read-only tmpfs at a directory. The directory must not be a link.
	MountEmpty(path string) error
	// Unmount removes all mounts at the path; processes keep their open files in them.
	Unmount(path string) error
	// Start starts a program that outlives this process.
	Start(c Command) (*Started, error)
	// Run runs a program until it exits, and returns its stdout and its exit code. It kills the program when the context is done.
	Run(ctx context.Context, c Command) (output string, code int, err error)
	// Kill sends SIGKILL to a process; no error if it has exited.
	Kill(p hostfs.Process) error
}

// Command is a program with its arguments.
type Command struct {
	// Path is the file; Args[0] is the name that the program sees.
	Path string
	Args []string
	// Env is the whole environment.
	Env []string
	// Input is the stdin for Run.
	Input string
	// Stdin and Log are the files that Start opens for stdin, and for stdout and stderr.
	Stdin, Log string
}

// Started is a process that Start has started.
type Started struct {
	hostfs.Process
	// Exit receives the wait status when the process exits.
	Exit <-chan syscall.WaitStatus
}
