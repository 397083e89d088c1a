// Prism-exporter serves metrics of the GPUs of a node and of the containers that use them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/exporter"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/logging/plain"
)

// version is set by the linker.
var version = "dev"

// garbagePercent is the default of GOGC: the exporter runs on every node and is mostly idle.
const garbagePercent = 25

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	cfg, err := config.LoadExporter(os.Args[1:], os.Getenv)
	if errors.Is(err, config.ErrHelp) {
		return
	}
	if err == nil {
		err = plain.Start(cfg.Serving.LogFormat, cfg.Serving.LogVerbosity)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "prism-exporter: %v\n", err)
		os.Exit(2)
	}
	if err := run(cfg); err != nil {
		klog.Background().Error(err, "Exiting after a failure")
		klog.Flush()
		os.Exit(1)
	}
	klog.Flush()
}

// run serves until a signal or a failure. A replaced driver library is not a failure: the restarted process loads the new one.
func run(cfg *config.Exporter) error {
	ctx, stop := signal.NotifyContext(klog.NewContext(context.Background(), klog.Background()), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	effective, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	klog.Background().Info("Starting", "version", version, "config", string(effective))
	adapters, err := exporter.System(ctx, cfg, version)
	if err != nil {
		return err
	}
	e, err := exporter.Build(cfg, adapters)
	if err != nil {
		return err
	}
	err = e.Run(ctx)
	if errors.Is(err, gpu.ErrDriverReplaced) {
		klog.Background().Info("Exiting so that the restarted process loads the new driver library", "reason", err.Error())
		return nil
	}
	return err
}
