package mpsd

import (
	"context"
	"io/fs"
	"syscall"

	"github.com/prism-gpu/prism/pkg/hostfs"
)

// System is all that the service does to the machine. Linux is the real one.
type System interface {
	// MakeDir makes a directory, or gives an existing one the permissions.
	MakeDir(path string, perm fs.FileMode) error
	// MakeFIFO makes a named pipe where nothing is.
	MakeFIFO(path string) error
	// Write makes or replaces a file in one step.
	Write(path string, data []byte) error
	// Link makes a hard link, or replaces to with one, in one step.
	Link(from, to string) error
	// Symlink makes a symbolic link where nothing is.
	Symlink(target, path string) error
	// Remove removes a file or directory with all that is in it; no error when there is none.
	Remove(path string) error
	// Mount mounts a tmpfs; on one that is mounted it changes the size. The size bounds the number of files too.
	Mount(path string, bytes int64, mounted bool) error
	// ReplaceByDir makes an empty directory in one in which others make, replace and remove entries too. An entry of that name is
	// removed, and no link is followed.
	ReplaceByDir(parent, name string) error
	// MountEmpty mounts an empty tmpfs at a directory that is no link; nothing can be written to it.
	MountEmpty(path string) error
	// Unmount removes all mounts at the path; processes that have files open in them keep those.
	Unmount(path string) error
	// Start starts a program that outlives this process.
	Start(c Command) (*Started, error)
	// Run runs a program until it has exited, and returns what it printed on stdout, and its exit code; it is killed when the context
	// is done.
	Run(ctx context.Context, c Command) (output string, code int, err error)
	// Kill sends SIGKILL to a process; no error when it has exited.
	Kill(p hostfs.Process) error
}

// Command is a program with its arguments.
type Command struct {
	// Path is the file, Args[0] the name that the program sees.
	Path string
	Args []string
	// Env is the whole environment.
	Env []string
	// Input is what Run puts on stdin.
	Input string
	// Stdin and Log are the files that Start opens for stdin, and for stdout and stderr.
	Stdin, Log string
}

// Started is a process that Start has started.
type Started struct {
	hostfs.Process
	// Exit has its wait status when it has exited.
	Exit <-chan syscall.WaitStatus
}
