// Prism-kubelet-plugin publishes the GPUs of a node as DRA devices and prepares the claims that are given them.
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
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/logging"
	"github.com/prism-gpu/prism/pkg/plugin"
)

// version is set by the linker.
var version = "dev"

// garbagePercent is how much garbage the heap may have beside what is in use: a plugin is on every node and mostly idle, so memory
// counts for more than the time of a collection. GOGC says otherwise.
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
		klog.Background().Error(err, "Ending")
		klog.Flush()
		os.Exit(1)
	}
}

// run serves until a signal comes or something fails. A replaced driver is no failure: a new process goes on.
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
		logger.Info("Ending so that a new process loads the new driver library", "reason", err.Error())
		return nil
	}
	return err
}
