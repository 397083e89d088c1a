// Command simgpu creates a simulated GPU node, injects faults into it, prints its
// state and destroys it.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

const defaultRoot = "/run/nvidia/driver"

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "simgpu:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "simgpu",
		Short:         "a GPU node without GPUs: NVML, driver files and device nodes that behave like real ones",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(createCommand(), injectCommand(), loadCommand(), resetCommand(), stateCommand(), destroyCommand(), buildCommand(), boardsCommand(), serveCommand())
	return root
}

func rootFlag(c *cobra.Command, root *string) {
	c.Flags().StringVar(root, "root", defaultRoot, "driver root of the node")
}
