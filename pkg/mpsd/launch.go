package mpsd

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// LaunchCommand is the argument with which the service's own program runs Launch.
const LaunchCommand = "exec-daemon"

// Launch becomes another program, in the new mount namespace of this process: mounts of the service follow, its own go nowhere, and the
// directory shm is its /dev/shm, with the mounts in it. The arguments are shm, the program and its arguments. It returns only if that
// fails.
func Launch(args []string) error {
	if len(args) < 2 {
		return errors.New("the arguments must be a directory, a program and its arguments")
	}
	runtime.LockOSThread()
	shm, program := args[0], args[1]
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keeping mounts in the mount namespace of the control daemon: %w", err)
	}
	if err := unix.Mount(shm, "/dev/shm", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s at /dev/shm: %w", shm, err)
	}
	if err := unix.Exec(program, args[1:], unix.Environ()); err != nil {
		return fmt.Errorf("executing %s: %w", program, err)
	}
	return nil
}
