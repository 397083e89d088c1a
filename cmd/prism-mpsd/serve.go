package main

import (
	"context"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/mpsd"
)

// serveUntilSignal answers requests until a signal.
func serveUntilSignal(cfg *config.MPSD) error {
	ctx, stop := signal.NotifyContext(klog.NewContext(context.Background(), klog.Background()), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return serve(ctx, cfg)
}

// serve answers requests until the context ends. It first waits until another service of the same directory, for example of a terminating
// pod, has released it.
func serve(ctx context.Context, cfg *config.MPSD) error {
	klog.Background().Info("Starting", "version", version, "config", cfg)
	if err := (disk.OS{}).MakeDir(cfg.DaemonsDir(), 0o755); err != nil {
		return err
	}
	release, err := disk.OS{}.HoldContext(ctx, cfg.DaemonsDir(), false)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	service, err := mpsd.New(ctx, mpsd.Options{
		Dir: cfg.DaemonsDir(), Host: hostfs.New(cfg.HostRoot, cfg.SearchDirs...), DriverRoot: cfg.DriverRoot, System: mpsd.Linux{}, Program: program, Version: version,
		Hardening: mpsd.Hardening(cfg.Hardening),
	})
	if err != nil {
		return err
	}
	return service.Serve(ctx, cfg.Socket())
}
