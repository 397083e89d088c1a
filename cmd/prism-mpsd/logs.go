package main

import (
	"flag"
	"log/slog"
	"os"
	"strconv"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
)

// startLogs sets format and verbosity. It draws in less than package logging: two processes of this program are resident on every node.
func startLogs(cfg *config.MPSD) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Set("v", strconv.Itoa(cfg.LogVerbosity)); err != nil {
		return err
	}
	if cfg.LogFormat == "json" {
		// klog decides what is logged.
		klog.SetSlogLogger(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(-10)})))
	}
	return nil
}
