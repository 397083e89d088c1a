package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// openNodes lists the device nodes of GPUs that the process has open.
func openNodes() []string {
	nodes := []string{}
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && strings.HasPrefix(filepath.Base(to), "nvidia") {
			nodes = append(nodes, to)
		}
	}
	return nodes
}

// attach initialises NVML twice.
func attach(c *child) error {
	for _, step := range []func() error{
		func() error { return must("init", c.lib.Init()) }, func() error { return must("init", c.lib.Init()) },
		func() error { return must("shutdown", c.lib.Shutdown()) }, func() error { return must("shutdown", c.lib.Shutdown()) },
	} {
		if err := step(); err != nil {
			return err
		}
		if err := c.send(openNodes()); err != nil {
			return err
		}
	}
	return nil
}

// A process with a session has the device nodes of its GPUs open, until its last shutdown.
func TestSession_Open_HoldsDeviceNodes(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	child := start(t, node, "attach")
	both := []string{filepath.Join(node.Paths.Dev, "nvidia0"), filepath.Join(node.Paths.Dev, "nvidia1")}
	for _, want := range [][]string{both, both, both, {}} {
		var open []string
		child.receive(&open)
		assert.Equal(t, want, open)
	}
	child.end()
}
