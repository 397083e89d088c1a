package parts

import (
	"os/exec"
	"runtime"
	"syscall"
)

// runTied runs the command, which ends with this process: a compiler that goes on after a build was killed would compete with the next
// build. The kernel ties the command to the thread that started it.
func runTied(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return cmd.Run()
}
