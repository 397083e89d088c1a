//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func (s *session) env() *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print shell assignments for outside tools: kubeconfig, programs, and each node's pid and folders",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			return c.Environment(cmd.OutOrStdout())
		},
	}
}

func (s *session) loadImage() *cobra.Command {
	return &cobra.Command{
		Use:   "load-image TAR...",
		Short: "Put the images of OCI or Docker archives into every node",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			for _, archive := range args {
				if err := c.LoadImage(cmd.Context(), archive); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (s *session) logs() *cobra.Command {
	follow := false
	cmd := &cobra.Command{
		Use:   "logs [NODE] COMPONENT",
		Short: "Print the log of a component, or with `boot` the log of a node's boot",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			component, err := c.Component(args)
			if err != nil {
				return err
			}
			return component.Log(cmd.Context(), cmd.OutOrStdout(), follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue to print new lines")
	return cmd
}

func (s *session) exec() *cobra.Command {
	return &cobra.Command{
		Use:                "exec NODE COMMAND...",
		Short:              "Run a command in a node's namespaces as root",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := s.takeName(args)
			if err != nil {
				return err
			}
			if len(args) > 0 && (args[0] == "-h" || args[0] == "--help") {
				return cmd.Help()
			}
			if len(args) < 2 {
				return errors.New("exec needs a node and a command: localcluster exec n0 ps ax")
			}
			c, err := s.cluster()
			if err != nil {
				return err
			}
			if args[1] == "--" && len(args) > 2 {
				args = append(args[:1:1], args[2:]...)
			}
			line, err := c.Enter(args[0], args[1:])
			if err != nil {
				return err
			}
			return become(line[0], line, os.Environ())
		},
	}
}

// passThrough creates a command that passes all arguments to a program of the cluster.
func (s *session) passThrough(program string) *cobra.Command {
	return &cobra.Command{
		Use:                program + " ARGUMENT...",
		Short:              "Run " + program + " against the cluster",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			args, err := s.takeName(args)
			if err != nil {
				return err
			}
			c, err := s.cluster()
			if err != nil {
				return err
			}
			if _, err := c.Load(); err != nil {
				return err
			}
			path := c.Program(program)
			return become(path, append([]string{program}, args...), aimed(os.Environ(), c.Kubeconfig()))
		},
	}
}

// aimed is the environment in which kubectl and helm find only this cluster. Variables of the caller for another one are removed, because a
// program may use the first of two values of one variable.
func aimed(environment []string, kubeconfig string) []string {
	others := slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		return strings.HasPrefix(variable, "KUBECONFIG=") || strings.HasPrefix(variable, "HELM_KUBE")
	})
	return append(others, "KUBECONFIG="+kubeconfig)
}

// takeName removes a leading --name from arguments for another program.
func (s *session) takeName(args []string) ([]string, error) {
	if len(args) == 0 {
		return args, nil
	}
	if name, ok := strings.CutPrefix(args[0], "--name="); ok {
		s.name = name
		return args[1:], nil
	}
	if args[0] != "--name" {
		return args, nil
	}
	if len(args) < 2 {
		return nil, errors.New("--name needs the name of a cluster")
	}
	s.name = args[1]
	return args[2:], nil
}

// become replaces this process with the program.
func become(program string, args, env []string) error {
	path, err := exec.LookPath(program)
	if err != nil {
		return fmt.Errorf("finding %s: %w", program, err)
	}
	if err := syscall.Exec(path, args, env); err != nil {
		return fmt.Errorf("running %s: %w", program, err)
	}
	return nil
}
