package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
)

// ContainCommand is the argument with which this program runs Contain.
const ContainCommand = "contained"

// The arguments of Contain before the program: a mount of one directory at another one, an empty directory instead of another one, and a
// separate /dev/shm.
const (
	bindArgument = "--bind"
	hideArgument = "--hide"
	shmArgument  = "--shm"
)

// sharedMemory limits a separate /dev/shm to the usual size in a container.
const sharedMemory = "mode=1777,size=64m"

// Contained runs programs in PID and mount namespaces of their own, from which they see the other files of this container. They are killed
// with this program, including the processes that they start.
type Contained struct {
	// Self is the path of this program, which can be started as Contain.
	Self string
	// Binds are mounts of directories, Hidden are directories that are empty for the program.
	Binds  []Bind
	Hidden []string
	// SharedMemory keeps the /dev/shm of this container.
	SharedMemory bool
}

// Bind mounts directory From at directory To.
type Bind struct{ From, To string }

// Command returns the command of a program; without a program, it only tests whether mounts are permitted.
func (c Contained) Command(ctx context.Context, program ...string) *exec.Cmd {
	args := []string{ContainCommand}
	for _, b := range c.Binds {
		args = append(args, bindArgument, b.From, b.To)
	}
	for _, dir := range c.Hidden {
		args = append(args, hideArgument, dir)
	}
	if !c.SharedMemory {
		args = append(args, shmArgument)
	}
	command := exec.CommandContext(ctx, c.Self, append(args, program...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return command
}

// Contain runs in the first process of a new PID namespace: it mounts the namespace's /proc and executes the arguments. It returns only
// errors, and nil without a program.
func Contain(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	program, err := mounts(args)
	if err != nil || len(program) == 0 {
		return err
	}
	return unix.Exec(program[0], program, os.Environ())
}

// mounts carries out the arguments before the program, and returns the program.
func mounts(args []string) ([]string, error) {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	for len(args) > 0 {
		var err error
		used := 2
		switch {
		case args[0] == bindArgument && len(args) > 2:
			used = 3
			err = unix.Mount(args[1], args[2], "", unix.MS_BIND, "")
		case args[0] == hideArgument && len(args) > 1:
			err = unix.Mount("tmpfs", args[1], "tmpfs", flags|unix.MS_RDONLY, "")
		case args[0] == shmArgument:
			used = 1
			err = unix.Mount("tmpfs", "/dev/shm", "tmpfs", flags, sharedMemory)
		default:
			return args, nil
		}
		if err != nil {
			return nil, fmt.Errorf("mounting for %s: %w", strings.Join(args[:used], " "), err)
		}
		args = args[used:]
	}
	return nil, nil
}

// LayOut creates the files that the hook creates for a container, in a directory that prism-run finds at /run/prism/container.
func LayOut(dir, claim, container string) error {
	context := strings.Join([]string{"claim=" + claim, "pod=", "namespace=", "container=" + container, "node=", ""}, "\n")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "pipes"), 0o755), os.WriteFile(filepath.Join(dir, "context"), []byte(context), 0o644))
	for i := range runplan.MaxSessions {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "slot-"+strconv.Itoa(i)), nil, 0o644))
	}
	return err
}
