// Package collector records performance counters of whole GPUs for the kubelet plugin: for each order that the plugin writes into the
// directory of package counters, it runs prism-run beside a process that does nothing. It runs in the administrator's image with Nsight
// Systems.
package collector

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/profiler/tool"
)

// HoldCommand is the argument with which this program runs Hold.
const HoldCommand = "hold"

// Hold runs until its input ends: recordings are of the GPU and not of a process, but nsys requires one.
func Hold(input io.Reader) error {
	_, err := io.Copy(io.Discard, input)
	return err
}

// Collector carries out the orders of a node.
type Collector struct {
	tool.Source
	// Self is the path of this program, which can be started as tool.Contain and Hold; Programs is the directory of prism-run.
	Self, Programs string
	// Dir is the collector's directory on the host. Work is a private directory, in which prism-run finds the files of a container:
	// /run/prism.
	Dir, Work string
}

// Run carries out orders until the context ends, and returns when all recordings have ended.
func (c Collector) Run(ctx context.Context) error {
	program, err := c.Program(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(c.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching orders: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(c.Dir); err != nil {
		return fmt.Errorf("watching orders: %w", err)
	}
	runner, err := c.runner(program, root, watcher)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Recording counters with Nsight Systems", "version", c.Version, "directory", c.Dir)
	o := newOrders(c.Dir, root, watcher, runner)
	return o.run(ctx, watcher.Events, watcher.Errors)
}

// runner prepares the directories for prism-run.
func (c Collector) runner(program tool.Program, root *os.Root, watcher *fsnotify.Watcher) (*runner, error) {
	r := &runner{
		program: program, prismRun: filepath.Join(c.Programs, "prism-run"), self: c.Self, root: root, dir: c.Dir, work: c.Work, watcher: watcher,
		helpTimeout: time.Minute, grace: 20 * time.Second,
	}
	for _, dir := range []string{planMount, resultsMount, containerMount} {
		if err := os.MkdirAll(filepath.Join(c.Work, dir), 0o755); err != nil {
			return nil, err
		}
	}
	return r, os.RemoveAll(filepath.Join(c.Work, ownDir))
}
