//go:build !linux

package parts

import "os/exec"

func runTied(cmd *exec.Cmd) error { return cmd.Run() }
