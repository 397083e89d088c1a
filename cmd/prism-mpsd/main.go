// Prism-mpsd owns the MPS control daemons of a node. Without a command it is the init of its container; with "serve" it is the service that
// the init starts.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/logging/plain"
	"github.com/prism-gpu/prism/pkg/mpsd"
)

// version is set by the linker.
var version = "dev"

const (
	name         = "prism-mpsd"
	serveCommand = "serve"
	// program is this program, even if its file was replaced.
	program = "/proc/self/exe"
	// garbagePercent is the default of GOGC: both processes run on every node and are mostly idle.
	garbagePercent = 25
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	args, command := os.Args[1:], ""
	if len(args) > 0 && (args[0] == serveCommand || args[0] == mpsd.LaunchCommand) {
		command, args = args[0], args[1:]
	}
	if command == mpsd.LaunchCommand {
		exit(1, mpsd.Launch(args))
	}
	cfg, err := config.LoadMPSD(args, os.Getenv)
	if errors.Is(err, config.ErrHelp) {
		return
	}
	if err == nil {
		err = plain.Start(cfg.LogFormat, cfg.LogVerbosity)
	}
	if err != nil {
		exit(2, err)
	}
	if command == serveCommand {
		err = serveUntilSignal(cfg)
	} else {
		err = mpsd.Init(program, append([]string{serveCommand}, args...))
	}
	klog.Flush()
	if err != nil {
		exit(1, err)
	}
}

func exit(code int, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	os.Exit(code)
}
