// Package plain configures the logs of the programs that run on every node. It imports less than package logging.
package plain

import (
	"flag"
	"log/slog"
	"os"
	"strconv"

	"k8s.io/klog/v2"
)

// Start sets the format, "text" or "json", and the verbosity, 0 to 10, of the logs of the process. Call it once, and klog.Flush before
// the process exits.
func Start(format string, verbosity int) error {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Set("v", strconv.Itoa(verbosity)); err != nil {
		return err
	}
	if format == "json" {
		// klog filters the messages.
		klog.SetSlogLogger(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(-10)})))
	}
	return nil
}
