package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/test/simgpu/bundle"
	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

func stateCommand() *cobra.Command {
	var root string
	c := &cobra.Command{
		Use:   "state",
		Short: "print GPUs, driver, faults and NVML calls of each process as JSON",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			result, err := send(root, daemon.Command{State: true})
			if err != nil {
				return err
			}
			encoder := json.NewEncoder(c.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(result.State)
		},
	}
	rootFlag(c, &root)
	return c
}

// send sends a command to the node with that driver root.
func send(root string, command daemon.Command) (daemon.Result, error) {
	install, err := layout.Open(root)
	if err != nil {
		return daemon.Result{}, err
	}
	return daemon.Send(install.Paths, command)
}

func destroyCommand() *cobra.Command {
	var root string
	c := &cobra.Command{
		Use:   "destroy",
		Short: "end the daemon and remove everything that create made",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			install, err := layout.Open(root)
			if err != nil {
				return err
			}
			if err := daemon.Stop(install.Paths); err != nil {
				return err
			}
			return install.Remove()
		},
	}
	rootFlag(c, &root)
	return c
}

func buildCommand() *cobra.Command {
	var out, driver string
	c := &cobra.Command{
		Use:   "build",
		Short: "compile the driver bundle of a driver version, and print its directory",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			version, err := model.ParseDriverVersion(driver)
			if err != nil {
				return err
			}
			dir := out
			if dir == "" {
				if dir, err = bundle.CacheDir(); err != nil {
					return err
				}
			}
			built, err := bundle.Ensure(c.Context(), dir, version)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), built)
			return err
		},
	}
	c.Flags().StringVar(&out, "out", "", "directory that keeps bundles (default: the user cache directory)")
	c.Flags().StringVar(&driver, "driver", model.DefaultDriver.String(), "driver version")
	return c
}

func boardsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "models",
		Short: "list the boards that --model takes",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "MODEL\tNAME\tMEMORY\tCOMPUTE\tMIG\tDRIVER")
			for _, id := range model.BoardIDs() {
				board, err := model.BoardByID(id)
				if err != nil {
					return err
				}
				fmt.Fprintln(table, strings.Join([]string{
					id, board.Product.Name, fmt.Sprintf("%d MiB", board.Memory.TotalMiB),
					fmt.Sprintf("%d.%d", board.Compute.Major, board.Compute.Minor),
					fmt.Sprintf("%d", board.MIG.MaxDevices), fmt.Sprintf(">= %d", board.Product.MinDriver),
				}, "\t"))
			}
			return table.Flush()
		},
	}
}
