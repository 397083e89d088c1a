package port

import "github.com/prism-gpu/prism/pkg/hostfs"

// Bare completes a host for the plugin where a test has no use for more: it has GPUs, and no programs, no other devices and no sockets.
type Bare struct{ Boot string }

// BootID is the boot that the test is in.
func (b Bare) BootID() (string, error) { return b.Boot, nil }

// MayHaveGPU is always true.
func (Bare) MayHaveGPU() (bool, error) { return true, nil }

// CharDevices finds none.
func (Bare) CharDevices(_, _ string) ([]hostfs.CharDevice, error) { return nil, nil }

// Locate finds nothing.
func (Bare) Locate(_, _ string) (string, bool) { return "", false }

// Program finds none.
func (Bare) Program(...string) (string, bool) { return "", false }

// NoExec is never true: programs may be executed anywhere.
func (Bare) NoExec(string) (bool, error) { return false, nil }

// CheckPrograms finds nothing wrong: all users may execute them.
func (Bare) CheckPrograms(string) error { return nil }

// Sockets finds none.
func (Bare) Sockets(_, _ string) ([]string, error) { return nil, nil }
