//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/hack/localcluster/cluster"
	"github.com/prism-gpu/prism/hack/localcluster/image"
	"github.com/prism-gpu/prism/hack/localcluster/parts"
	"github.com/prism-gpu/prism/hack/localcluster/supervise"
)

func (s *session) up() *cobra.Command {
	var want cluster.Settings
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or its parts that do not run; returns when pods can be created",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			if err := c.Up(cmd.Context(), want, s.progress); err != nil {
				return fmt.Errorf("starting cluster %s: %w", s.name, err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&want.Nodes, "nodes", 0, "number of nodes (1 for a new cluster)")
	flags.StringVar(&want.Kubernetes, "kubernetes", "", "Kubernetes "+parts.KubernetesVersions()+" ("+parts.KubernetesVersion+" for a new cluster)")
	flags.IntVar(&want.Port, "port", 0, "port on 127.0.0.1 for the API server (a free one for a new cluster)")
	flags.StringArrayVar(&want.BootCommands, "boot-command", nil,
		"shell command that each node runs at every boot, before its container runtime starts; can be repeated")
	flags.StringArrayVar(&want.KubeletConfig, "kubelet-config", nil,
		"a field of the configuration of every kubelet, as a line of YAML: \"cpuManagerPolicy: static\"; can be repeated")
	return cmd
}

func (s *session) down() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove the cluster and all its traces on the machine",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			return c.Down(s.progress)
		},
	}
}

func (s *session) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the components and whether they run",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			return c.Status(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

func (s *session) reboot() *cobra.Command {
	return &cobra.Command{
		Use:   "reboot NODE",
		Short: "Cut a node's power and boot it again, with a new boot id",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			return c.Reboot(cmd.Context(), args[0], s.progress)
		},
	}
}

// order creates the command that sends an order for a component to a supervisor.
func (s *session) order(order, short string) *cobra.Command {
	return &cobra.Command{
		Use:   order + " [NODE] COMPONENT",
		Short: short + ": etcd, apiserver, scheduler, controller-manager; on a node: kubelet, containerd",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			component, err := c.Component(args)
			if err != nil {
				return err
			}
			return component.Do(supervise.Order(order))
		},
	}
}

// build builds parts ahead of time and prints the paths of their programs.
func (s *session) build() *cobra.Command {
	return partsCommand("build", "Build the parts of a cluster (all, or the named ones) into the cache, and print the paths of the programs",
		func(cmd *cobra.Command, cache parts.Cache, recipes []parts.Recipe, all bool) error {
			dirs, err := parts.Ensure(cmd.Context(), cache, recipes, s.progress)
			if err != nil {
				return err
			}
			for _, r := range recipes {
				for _, program := range r.Programs() {
					fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(dirs[r.Name], program))
				}
			}
			if !all {
				return nil
			}
			_, err = image.Builtin(cmd.Context(), cache, s.progress)
			return err
		})
}

// fetch downloads the modules that build needs, concurrently with other work.
func (*session) fetch() *cobra.Command {
	return partsCommand("fetch", "Download the modules of the parts that are not built yet",
		func(cmd *cobra.Command, cache parts.Cache, recipes []parts.Recipe, _ bool) error {
			return parts.Fetch(cmd.Context(), cache, recipes)
		})
}

// partsCommand creates a command for parts: all parts of a cluster, or the named ones.
func partsCommand(name, short string, run func(cmd *cobra.Command, cache parts.Cache, recipes []parts.Recipe, all bool) error) *cobra.Command {
	kubernetes := parts.KubernetesVersion
	cmd := &cobra.Command{
		Use:   name + " [PART]...",
		Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := parts.CheckKubernetes(kubernetes); err != nil {
				return err
			}
			recipes, err := choose(parts.Table(kubernetes), parts.Extras(), args)
			if err != nil {
				return err
			}
			cache, err := parts.OpenCache()
			if err != nil {
				return err
			}
			return run(cmd, cache, recipes, len(args) == 0)
		},
	}
	cmd.Flags().StringVar(&kubernetes, "kubernetes", kubernetes, "Kubernetes "+parts.KubernetesVersions())
	return cmd
}

// choose returns the named recipes; without names, all recipes of a cluster.
func choose(cluster, extras []parts.Recipe, names []string) ([]parts.Recipe, error) {
	if len(names) == 0 {
		return cluster, nil
	}
	var chosen []parts.Recipe
	var known []string
	for _, r := range slices.Concat(cluster, extras) {
		known = append(known, r.Name)
		if slices.Contains(names, r.Name) {
			chosen = append(chosen, r)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown part %q; supported values: %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}
