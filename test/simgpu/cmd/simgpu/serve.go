package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// readyLine is written to file descriptor 3, which create opens for it.
const (
	readyLine = "ready\n"
	readyFD   = 3
)

func serveCommand() *cobra.Command {
	var root string
	c := &cobra.Command{
		Use:    "serve",
		Short:  "be the daemon of a node that create laid out",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(c *cobra.Command, _ []string) error { return serve(c, root) },
	}
	rootFlag(c, &root)
	return c
}

func serve(c *cobra.Command, root string) error {
	install, err := layout.Open(root)
	if err != nil {
		return err
	}
	node, err := model.New(install.Spec)
	if err != nil {
		return err
	}
	served, err := daemon.Listen(install.Paths, node)
	if err != nil {
		return err
	}
	served.Keep(func(spec model.Spec) error { return keepState(install.State, spec) })
	ready := os.NewFile(readyFD, "ready")
	if _, err := ready.WriteString(readyLine); err != nil {
		return fmt.Errorf("reporting that the node is ready: %w", err)
	}
	ready.Close()
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return served.Run(ctx)
}
