package mpsd

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// LaunchCommand is the argument with which the service's own program runs Launch.
const LaunchCommand = "exec-daemon"

// launch holds the settings for starting a control daemon in a new mount namespace.
type launch struct {
	// Shm is the daemon's directory shm.
	Shm       string    `json:"shm"`
	Hardening Hardening `json:"hardening"`
	Tree      mountTree `json:"tree"`
}

// arguments returns the arguments with which the service's program runs the daemon's program.
func (l launch) arguments(service, daemon string, options ...string) ([]string, error) {
	raw, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return append([]string{service, LaunchCommand, string(raw), daemon}, options...), nil
}

// Launch replaces this process by another program in the process's new mount namespace: mounts of the service propagate into it, its own
// mounts do not propagate, and the directory shm is its /dev/shm, with the mounts below it. args come from launch.arguments. It returns
// only if it fails.
func Launch(args []string) error {
	if len(args) < 2 {
		return errors.New("the arguments must be settings, a program and its arguments")
	}
	var l launch
	if err := json.Unmarshal([]byte(args[0]), &l); err != nil {
		return fmt.Errorf("reading the settings: %w", err)
	}
	program := args[1]
	runtime.LockOSThread()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keeping mounts in the mount namespace of the control daemon: %w", err)
	}
	if l.Hardening != HardeningNone {
		if err := l.Tree.enter(); err != nil {
			return fmt.Errorf("hiding directories from the control daemon: %w", err)
		}
	}
	if err := unix.Mount(l.Shm, "/dev/shm", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s at /dev/shm: %w", l.Shm, err)
	}
	if err := l.Hardening.restrict(); err != nil {
		return fmt.Errorf("restricting the control daemon: %w", err)
	}
	if err := unix.Exec(program, args[1:], unix.Environ()); err != nil {
		return fmt.Errorf("executing %s: %w", program, err)
	}
	return nil
}
