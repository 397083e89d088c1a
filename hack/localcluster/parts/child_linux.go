package parts

import (
	"os/exec"
	"runtime"
	"syscall"
)

// runTied runs the command, which is killed with this process: otherwise a compiler of a killed build would compete with the next build.
// The kernel ties the command to the thread that started it.
func runTied(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return cmd.Run()
}
