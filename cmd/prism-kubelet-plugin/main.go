// Prism-kubelet-plugin publishes the GPUs of a node as DRA devices and prepares the claims that they are allocated to.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/logging"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// version is set by the linker.
var version = "dev"

// garbagePercent is the default of GOGC: the plugin runs on every node and is mostly idle, so a small heap matters more than the CPU
// time of garbage collections.
const garbagePercent = 40

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	cfg, err := config.LoadPlugin(os.Args[1:], os.Getenv)
	if errors.Is(err, config.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "prism-kubelet-plugin: %v\n", err)
		os.Exit(2)
	}
	if err := run(cfg); err != nil {
		klog.Background().Error(err, "Exiting after a failure")
		klog.Flush()
		os.Exit(1)
	}
}

// run serves until a signal or a failure. A replaced driver library is not a failure: the restarted process loads the new one.
func run(cfg *config.Plugin) error {
	logger, err := logging.Start(cfg.Serving.LogFormat, cfg.Serving.LogVerbosity, version, cfg)
	if err != nil {
		return err
	}
	defer klog.Flush()
	ctx, stop := signal.NotifyContext(klog.NewContext(context.Background(), logger), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err = plugin.Serve(ctx, cfg, plugin.System(cfg, version), inventory.Clock{})
	if errors.Is(err, gpu.ErrDriverReplaced) {
		logger.Info("Exiting so that the restarted process loads the new driver library", "reason", err.Error())
		return nil
	}
	return err
}
