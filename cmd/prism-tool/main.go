// Prism-tool runs in an administrator's image with Nsight Systems: it installs that version on the node, tests it, imports recordings of
// processes, and records performance counters of GPUs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/logging/plain"
	"github.com/prism-gpu/prism/pkg/profiler/collector"
	"github.com/prism-gpu/prism/pkg/profiler/tool"
)

const name = "prism-tool"

const usage = "usage: " + name + " place DIRECTORY | install FLAGS | proven FLAGS | import FLAGS | collect FLAGS"

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, config.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	switch args[0] {
	case "place":
		if len(args) != 2 {
			return errors.New(usage)
		}
		return tool.Place(filepath.Dir(self), args[1])
	case tool.ConfineCommand:
		return tool.Confine(args[1:])
	case tool.ContainCommand:
		return tool.Contain(args[1:])
	case collector.HoldCommand:
		return collector.Hold(os.Stdin)
	}
	commands := map[string]func(context.Context, tool.Service, *config.Tool) error{
		"install": install, "proven": proven, "import": imports, "collect": collect,
	}
	command := commands[args[0]]
	if command == nil {
		return errors.New(usage)
	}
	cfg, err := config.LoadTool(args[1:], os.Getenv)
	if err != nil {
		return err
	}
	if err := plain.Start(cfg.LogFormat, cfg.LogVerbosity); err != nil {
		return err
	}
	defer klog.Flush()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return command(ctx, service(cfg, self), cfg)
}

func service(cfg *config.Tool, self string) tool.Service {
	importer := tool.Importer{
		Source: tool.Source{Version: cfg.Version, Path: cfg.Path}, Self: self, Work: cfg.WorkDir,
		Memory: cfg.ImportMemory.Value(), Deadline: cfg.ImportDeadline, Space: cfg.ImportSpace.Value(),
	}
	return tool.Service{
		Prover: tool.Prover{Importer: importer, Programs: filepath.Dir(self), Container: cfg.WorkDir},
		Tools:  filepath.Join(cfg.StateDir, "tools"), Versions: slices.Concat(cfg.Versions, []string{cfg.Version}), Specs: cfg.CDIRoots,
	}
}

func install(ctx context.Context, s tool.Service, _ *config.Tool) error { return s.Run(ctx) }

func proven(_ context.Context, s tool.Service, _ *config.Tool) error { return s.Proven() }

func imports(ctx context.Context, s tool.Service, cfg *config.Tool) error {
	if err := s.Clean(); err != nil {
		return err
	}
	own, err := s.Own()
	if err != nil {
		return err
	}
	if !s.AwaitProof(ctx) {
		return nil
	}
	return tool.Spool{
		Profiles: filepath.Join(cfg.StateDir, "profiles"), Version: cfg.Version, Tries: filepath.Join(own, "tries"), Import: s.Import,
	}.Run(ctx)
}

func collect(ctx context.Context, s tool.Service, cfg *config.Tool) error {
	return collector.Collector{
		Source: s.Source, Self: s.Self, Programs: s.Programs, Dir: filepath.Join(cfg.StateDir, "collector"), Work: s.Container,
	}.Run(ctx)
}
